"""Samples of the exactly-once campaign when look-ups fail."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import pytest

from odradek.client import ClientError, Cluster, ConsumerRecord, NotFound, TransactionDescription
from odradek.pipeline.cluster.access import Access
from odradek.pipeline.eos import sampler as sampler_module
from odradek.pipeline.eos.sampler import Sampler
from odradek.pipeline.eos.visibility import Visibility
from odradek.spark.ledger import LedgerEntry
from odradek.spark.options import sink_options

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SINK = sink_options({"kafka.bootstrap.servers": "a:1", "topic": "out", "sink": "s"})
CLUSTER = cast("Cluster", None)
"""The functions that use a connection are replaced."""


class Fakes:
    """Responses of the cluster: the ledger look-ups in order, and the records of each read."""

    def __init__(self, ledger: list[LedgerEntry | ClientError | None], reads: list[list[ConsumerRecord]]) -> None:
        self.ledger = ledger
        self.reads = reads
        self.states: dict[str, str] = {}

    async def read_ledger(self, *_: object, require_stable: bool) -> LedgerEntry | None:
        entry = self.ledger.pop(0)
        if isinstance(entry, ClientError):
            raise entry
        return entry

    async def describe_transaction(self, _cluster: Cluster, transactional_id: str) -> TransactionDescription:
        if transactional_id not in self.states:
            raise NotFound(f"transactional id {transactional_id} does not exist", "")
        state = self.states[transactional_id]
        return TransactionDescription(transactional_id, state, 1, 0, None, 1, 0, None, [])

    def consumer(self, *_: object, **__: object) -> Fakes:
        return self

    async def batches(self) -> AsyncIterator[list[ConsumerRecord]]:
        yield self.reads.pop(0)

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sampler_module, "read_ledger", self.read_ledger)
        monkeypatch.setattr(sampler_module, "describe_transaction", self.describe_transaction)
        monkeypatch.setattr(sampler_module, "Consumer", self.consumer)


def entry(batch: int, tasks: int) -> LedgerEntry:
    return LedgerEntry(batch, "query", "run", 1, 0, tasks)


def record(offset: int, batch: int) -> ConsumerRecord:
    headers = (("batch", b"%d" % batch), ("run", b"1"))
    return ConsumerRecord("out", 0, offset, 0, None, b"%d" % offset, headers)


def test_rows_of_a_sample_that_failed_later_are_counted_and_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes = Fakes([None, ClientError("down", "wait"), None, None], [[record(0, 0)], []])
    fakes.install(monkeypatch)
    visibility = Visibility()
    sampler = Sampler(Access("a:1"), "out", SINK, visibility)
    with pytest.raises(ClientError):
        asyncio.run(sampler._sample(CLUSTER))
    assert sampler.values == 1
    asyncio.run(sampler._sample(CLUSTER))
    assert visibility.undecided == ["a row of batch 0 is visible, and the ledger ends with batch -1"]


@pytest.mark.parametrize(
    ("states", "judged"),
    [
        ({"spark.s/0": "Ongoing"}, {0: 1}),
        ({"spark.s/0": "Ongoing", "spark.s/1": "PrepareCommit"}, {}),
        ({"spark.s": "PrepareCommit"}, {}),
    ],
)
def test_batch_is_judged_as_whole_if_no_transaction_of_sink_or_tasks_waits_for_markers(
    monkeypatch: pytest.MonkeyPatch, states: dict[str, str], judged: dict[int, int]
) -> None:
    fakes = Fakes([entry(1, tasks=2)], [[record(0, 0)]])
    fakes.states = states
    fakes.install(monkeypatch)
    visibility = Visibility(two_phase=True)
    asyncio.run(Sampler(Access("a:1"), "out", SINK, visibility)._sample(CLUSTER))
    assert visibility.whole == judged
