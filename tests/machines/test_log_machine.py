"""A partition log against a list of batches: append, read, roll, truncate, flush, and clean and unclean reopening.

The model shares only the batch format with the log. It computes the last stable offset and the aborted transactions
from the whole list each time.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from odradek.protocol.batch import iter_batches, iter_records
from odradek.storage.config import LogConfig
from odradek.storage.disk.os_disk import OsDisk
from odradek.storage.log.reads import ColdRead
from tests.support.effort import run_machine
from tests.support.logs import CODECS, NOW_MS, append, batch, headers, marker, open_log, produced

if TYPE_CHECKING:
    from odradek.storage.log.log import PartitionLog

SEGMENT_BYTES = 1200
INDEX_INTERVAL_BYTES = 150
PRODUCERS = st.integers(0, 2)


@dataclass(frozen=True)
class WrittenBatch:
    first: int
    last: int
    producer_id: int = -1
    transactional: bool = False
    ends: bool = False
    aborts: bool = False
    timestamp: int = NOW_MS
    epoch: int = 0

    @property
    def key(self) -> tuple[Any, ...]:
        return (self.first, self.last, self.producer_id, self.transactional, self.ends, self.epoch)


@dataclass(frozen=True)
class Transaction:
    producer_id: int
    first: int
    marker: int | None
    aborted: bool


def transactions(written: list[WrittenBatch]) -> list[Transaction]:
    """Return all transactions with data in order of their markers, open ones last."""
    open_transactions: dict[int, int] = {}
    ended = []
    for batch_ in written:
        if batch_.ends:
            first = open_transactions.pop(batch_.producer_id, None)
            if first is not None:
                ended.append(Transaction(batch_.producer_id, first, batch_.first, batch_.aborts))
        elif batch_.transactional:
            open_transactions.setdefault(batch_.producer_id, batch_.first)
    return ended + [Transaction(producer_id, first, None, False) for producer_id, first in open_transactions.items()]


class LogMachine(RuleBasedStateMachine):
    """Operations on one partition log."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.mkdtemp()
        self.disk = OsDisk()
        self.config = LogConfig(segment_bytes=SEGMENT_BYTES, index_interval_bytes=INDEX_INTERVAL_BYTES)
        self.written: list[WrittenBatch] = []
        self.sequences: dict[int, int] = {}
        self.high_watermark = 0
        self.leader_epoch = 0
        self.log: PartitionLog

    @initialize()
    def start(self) -> None:
        self.log = open_log(self.disk, self.directory, self.config)

    def teardown(self) -> None:
        self.log.close(clean=False)
        self.disk.close()
        shutil.rmtree(self.directory)

    def _append(self, data: bytes, **fields: Any) -> None:
        info = append(self.log, data, commit=False, leader_epoch=self.leader_epoch)
        self.written.append(WrittenBatch(info.first_offset, info.last_offset, epoch=self.leader_epoch, **fields))

    @rule(
        count=st.integers(1, 5),
        size=st.integers(0, 120),
        codec=st.sampled_from(CODECS),
        timestamp_offset=st.integers(-50, 50),
    )
    def append_plain(self, count: int, size: int, codec: Any, timestamp_offset: int) -> None:
        timestamp = NOW_MS + timestamp_offset
        self._append(batch(count, size=size, compression=codec, timestamp=timestamp), timestamp=timestamp + count - 1)

    @rule(producer_id=PRODUCERS, count=st.integers(1, 4))
    def append_transactional(self, producer_id: int, count: int) -> None:
        sequence = self.sequences.get(producer_id, 0)
        self._append(
            produced(producer_id, sequence, count, transactional=True), producer_id=producer_id, transactional=True
        )
        self.sequences[producer_id] = sequence + count

    @rule(producer_id=PRODUCERS, commit=st.booleans())
    def end_transaction(self, producer_id: int, commit: bool) -> None:
        self._append(
            marker(producer_id, commit=commit),
            producer_id=producer_id,
            transactional=True,
            ends=True,
            aborts=not commit,
        )

    @rule(data=st.data())
    def advance(self, data: st.DataObject) -> None:
        ends = [self.high_watermark, *(batch_.last + 1 for batch_ in self.written)]
        self.high_watermark = max(self.high_watermark, data.draw(st.sampled_from(ends)))
        self.log.update_high_watermark(self.high_watermark)

    @rule()
    def flush(self) -> None:
        asyncio.run(self.log.flush())
        assert self.log.flushed_offset == self.log.log_end_offset

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        end = self.log.log_end_offset
        offset = data.draw(st.integers(max(0, end - 12), end))
        self.log.truncate_to(offset, now_ms=NOW_MS, monotonic_ms=NOW_MS)
        self.written = [batch_ for batch_ in self.written if batch_.last < offset]
        self.high_watermark = min(self.high_watermark, self._end())
        self.sequences = {}
        for batch_ in self.written:
            if batch_.producer_id >= 0 and not batch_.ends:
                self.sequences[batch_.producer_id] = (
                    self.sequences.get(batch_.producer_id, 0) + batch_.last - batch_.first + 1
                )

    @rule(clean=st.booleans(), data=st.data())
    def reopen(self, clean: bool, data: st.DataObject) -> None:
        point = self.log.recovery_point
        self.log.close(clean=clean)
        if not clean:
            point = data.draw(st.integers(0, point))
        self.log = open_log(
            self.disk,
            self.directory,
            self.config,
            clean=clean,
            recovery_point=point,
            high_watermark=self.high_watermark,
        )
        self.leader_epoch += 1
        self.log.assign_epoch(self.leader_epoch)

    def _end(self) -> int:
        return self.written[-1].last + 1 if self.written else 0

    @invariant()
    def offsets_agree(self) -> None:
        assert self.log.log_end_offset == self._end()
        assert self.log.high_watermark == self.high_watermark
        unstable = [
            batch_.first
            for batch_ in transactions(self.written)
            if batch_.marker is None or batch_.marker >= self.high_watermark
        ]
        assert self.log.last_stable_offset == min([*unstable, self.high_watermark])

    @invariant()
    def all_batches_are_read(self) -> None:
        actual = [
            (
                batch_.base_offset,
                batch_.last_offset,
                batch_.producer_id,
                batch_.is_transactional,
                batch_.is_control,
                batch_.leader_epoch,
            )
            for batch_ in headers(self.log)
        ]
        assert actual == [batch_.key for batch_ in self.written]

    @invariant()
    def producers_agree(self) -> None:
        actual = {row.producer_id: row.current_txn_start_offset for row in self.log.producers.active()}
        open_transactions = {
            batch_.producer_id: batch_.first for batch_ in transactions(self.written) if batch_.marker is None
        }
        assert actual == {
            batch_.producer_id: open_transactions.get(batch_.producer_id, -1)
            for batch_ in self.written
            if batch_.producer_id >= 0
        }

    @precondition(lambda self: self.written)
    @rule(data=st.data(), max_bytes=st.integers(1, 3 * SEGMENT_BYTES))
    def read_from_any_offset(self, data: st.DataObject, max_bytes: int) -> None:
        """Read from any offset with any limit and size.

        The result has whole batches below the limit, and all their aborted transactions.
        """
        end = self._end()
        offset = data.draw(st.integers(0, end))
        limit = data.draw(st.sampled_from([self.high_watermark, self.log.last_stable_offset, end]))
        result = self.log.read(offset, max_bytes=max_bytes, limit=limit, min_one_batch=True)
        assert not isinstance(result, ColdRead)
        headers_ = [header for header, _ in iter_batches(result.records)]
        expected = [batch_ for batch_ in self.written if batch_.last >= offset and batch_.first < limit]
        assert bool(headers_) == bool(expected and offset < limit)
        assert [header.base_offset for header in headers_] == [batch_.first for batch_ in expected[: len(headers_)]]
        if not headers_:
            return
        assert len(result.records) <= max(max_bytes, headers_[0].size)
        aborted = self.log.aborted_transactions(offset, result)
        aborted_transactions = [
            batch_
            for batch_ in transactions(self.written)
            if batch_.aborted and batch_.marker is not None and batch_.marker >= offset
        ]
        required = [
            (batch_.producer_id, batch_.first)
            for batch_ in aborted_transactions
            if batch_.first <= headers_[-1].last_offset
        ]
        allowed = [(batch_.producer_id, batch_.first) for batch_ in aborted_transactions]
        assert [batch_ for batch_ in allowed if batch_ in aborted] == aborted, (
            "aborted transactions in the order of their markers"
        )
        assert all(batch_ in aborted for batch_ in required)

    @rule(timestamp=st.integers(NOW_MS - 60, NOW_MS + 60))
    def look_up_by_timestamp(self, timestamp: int) -> None:
        actual = asyncio.run(self.log.offset_for_timestamp(timestamp))
        expected = None
        for header in headers(self.log):
            for record in iter_records(self._bytes(header.base_offset), max_decompressed_bytes=1 << 20):
                if record.timestamp >= timestamp and expected is None:
                    expected = (record.timestamp, record.offset, header.leader_epoch)
        assert actual == expected

    def _bytes(self, offset: int) -> bytes:
        result = self.log.read(offset, max_bytes=1, min_one_batch=True)
        assert not isinstance(result, ColdRead)
        return bytes(result.records)


def test_log_matches_the_list_of_batches() -> None:
    run_machine(LogMachine, examples=60, steps=30)
