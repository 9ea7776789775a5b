"""Samples of the exactly-once campaign when look-ups fail."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import pytest

from odradek.client import ClientError, Cluster, CommittedOffset, ConsumerRecord
from odradek.pipeline.eos import sampler as sampler_module
from odradek.pipeline.eos.sampler import Sampler
from odradek.pipeline.eos.visibility import Visibility
from odradek.spark.ledger import LedgerEntry, encoded
from odradek.spark.options import sink_options

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from odradek.client import TopicPartition

SINK = sink_options({"kafka.bootstrap.servers": "a:1", "topic": "out", "sink": "s"})
CLUSTER = cast("Cluster", None)
"""The functions that use a connection are replaced."""


class Fakes:
    """Responses of the cluster: the ledger look-ups in order, and the records of each read."""

    def __init__(self, ledger: list[LedgerEntry | ClientError | None], reads: list[list[ConsumerRecord]]) -> None:
        self.ledger = ledger
        self.reads = reads

    async def committed_offsets(
        self, _cluster: Cluster, _group: str, *, require_stable: bool
    ) -> Mapping[TopicPartition, CommittedOffset]:
        entry = self.ledger.pop(0)
        if isinstance(entry, ClientError):
            raise entry
        return {} if entry is None else {SINK.ledger: encoded(entry)}

    def consumer(self, *_: object, **__: object) -> Fakes:
        return self

    async def batches(self) -> AsyncIterator[list[ConsumerRecord]]:
        yield self.reads.pop(0)

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sampler_module, "committed_offsets", self.committed_offsets)
        monkeypatch.setattr(sampler_module, "Consumer", self.consumer)


def entry(batch: int) -> LedgerEntry:
    return LedgerEntry(batch, "query", "run", 1, 0)


def record(offset: int, batch: int) -> ConsumerRecord:
    headers = (("batch", b"%d" % batch), ("run", b"1"))
    return ConsumerRecord("out", 0, offset, 0, None, b"%d" % offset, headers)


def test_rows_of_a_sample_that_failed_later_are_counted_and_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes = Fakes([None, ClientError("down", "wait"), None, None], [[record(0, 0)], []])
    fakes.install(monkeypatch)

    async def is_complete(*_: object) -> bool:
        return True

    monkeypatch.setattr(Sampler, "_is_complete", is_complete)
    visibility = Visibility()
    sampler = Sampler("a:1", "out", SINK, visibility)
    with pytest.raises(ClientError):
        asyncio.run(sampler._sample(CLUSTER))
    assert sampler.values == 1
    asyncio.run(sampler._sample(CLUSTER))
    assert visibility.undecided == ["a row of batch 0 is visible, and the ledger ends with batch -1"]
