"""Rows of a task, out of responses of a fake leader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import pytest

from odradek.client import FetchedBatches, IsolationLevel, NotFound, RequestTimedOut, TopicPartition
from odradek.protocol.batch import Compression
from odradek.protocol.errors import ErrorCode
from odradek.spark import DataLoss, source_tasks
from odradek.spark.source_offsets import OffsetRange
from odradek.spark.source_options import source_options
from tests.support.batches import batch, marker

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

KEY = TopicPartition("t", 0)


class Leader:
    """Fake leader with a log of batches of one record each.

    Attributes:
        log: The batches, from offset 0 on.
        stable: The last stable offset that ListOffsets requests receive. Fetch requests come later: they receive the
            whole log.
        silent: True if responses have no batch.
        deleted: True if the topic does not exist any more.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, log: list[bytes]) -> None:
        self.log = log
        self.stable = len(log)
        self.silent = self.deleted = False
        for name in ("fetch_range", "offsets_of_partitions", "begins_of"):
            monkeypatch.setattr(source_tasks, name, getattr(self, name))
        monkeypatch.setattr(source_tasks, "connection", lambda _: self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def fetch_range(
        self, _: object, __: object, start: int, end: int, isolation: IsolationLevel, *, bytes_max: int
    ) -> AsyncGenerator[FetchedBatches, None]:
        self._check()
        while self.silent:
            yield FetchedBatches(start, start, b"", ())
        yield FetchedBatches(start, len(self.log), b"".join(self.log[start:]), ())

    async def offsets_of_partitions(
        self, _: object, __: object, isolation: IsolationLevel
    ) -> dict[TopicPartition, int]:
        self._check()
        return {KEY: self.stable if isolation is IsolationLevel.READ_COMMITTED else len(self.log)}

    async def begins_of(self, *_: object) -> dict[TopicPartition, int]:
        return {} if self.deleted else {KEY: 0}

    def _check(self) -> None:
        if self.deleted:
            raise NotFound("topic t does not exist", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def arrow_batches(end: int, **given: str) -> list[list[dict[str, Any]]]:
    options = source_options({"kafka.bootstrap.servers": "x:1", "subscribe": "t", **given})
    return [each.to_pylist() for each in source_tasks.read_range(options, OffsetRange(KEY, 0, end))]


def rows(end: int, **given: str) -> list[dict[str, Any]]:
    return [row for each in arrow_batches(end, **given) for row in each]


def test_response_beyond_the_last_stable_offset_that_was_looked_up_has_no_row_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = [batch(0, b"a"), batch(1, b"b", producer_id=1), marker(2, 1, commit=True), batch(3, b"c")]
    Leader(monkeypatch, log).stable = 1
    found = rows(4, includeTransactions="true")
    assert [(each["offset"], each["transactionOutcome"]) for each in found] == [
        (0, "none"), (1, "committed"), (2, "committed"), (3, "none"),
    ]  # fmt: skip


def test_arrow_batches_are_bounded_by_the_bytes_after_decompression(monkeypatch: pytest.MonkeyPatch) -> None:
    third = bytes(source_tasks.BYTES_PER_BATCH // 3)
    values = [third, third, third, bytes(2 * source_tasks.BYTES_PER_BATCH), b"last"]
    Leader(monkeypatch, [batch(at, each, compression=Compression.ZSTD) for at, each in enumerate(values)])
    assert [[row["offset"] for row in each] for each in arrow_batches(len(values))] == [[0, 1], [2], [3], [4]]


@pytest.mark.parametrize("fails", ["true", "false"])
def test_leader_that_sends_no_batch_of_an_existing_offset_is_a_time_out(
    fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Leader(monkeypatch, [batch(0, b"a")]).silent = True
    with pytest.raises(RequestTimedOut, match=r"reading t-0: no batch at offset 0 arrived in 0\.001 s"):
        rows(1, failOnDataLoss=fails, **{"kafka.default.api.timeout.ms": "1"})


@pytest.mark.parametrize("transactions", ["true", "false"])
def test_topic_that_was_deleted_after_the_plan_is_a_loss(transactions: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Leader(monkeypatch, [batch(0, b"a")]).deleted = True
    with pytest.raises(DataLoss, match="t-0 does not exist any more"):
        rows(1, includeTransactions=transactions)
    with pytest.warns(UserWarning, match="t-0 does not exist any more"):
        assert rows(1, includeTransactions=transactions, failOnDataLoss="false") == []
