"""Compaction of one log: the retained records, their segments, and concurrent reads."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import odradek.storage.compaction.batch_filter
import odradek.storage.compaction.cleaner
from odradek.protocol.batch import BatchHeader, Compression, build_batch, iter_batches
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.primitives import INT64_MAX
from odradek.protocol.record import RawRecord, read_raw_records
from odradek.storage.batches.work import PAUSE_UNITS
from odradek.storage.compaction.batch_filter import SLICE_BYTES
from odradek.storage.compaction.cleaner import CHUNK_BYTES_MAX, DEDUPE_BYTES_MAX, CleanerLimits, cleanable
from odradek.storage.compaction.offset_map import ENTRY_BYTES, LARGE_KEY_BYTES, key_digest
from odradek.storage.config import LogConfig
from odradek.storage.disk.os_disk import OsDisk
from odradek.storage.log.reads import ColdRead
from odradek.storage.segment.segment import Segment
from tests.support.cleaning import LIMITS, clean, fetched, latest
from tests.support.crafted import traced_peak
from tests.support.faulty_disk import FaultyDisk
from tests.support.logs import NOW_MS, append, headers, marker, open_log, produced, read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=100, cleanup_policy=("compact",))


@pytest.fixture
def disk() -> Iterator[OsDisk]:
    os_disk = OsDisk()
    yield os_disk
    os_disk.close()


def put(**values: str | None) -> bytes:
    """Append a batch with one record per key."""
    return build_batch(
        [(key.encode(), None if value is None else value.encode(), NOW_MS, ()) for key, value in values.items()]
    )


async def test_compaction_keeps_the_last_value_of_each_key(disk: OsDisk, tmp_path: Path) -> None:
    log = open_log(disk, str(tmp_path), CONFIG)
    for number in range(60):
        append(log, put(**{f"k{number % 7}": f"v{number}"}))
    records_before = fetched(log, committed=False)
    bases = [segment.base_offset for segment in log.segments]
    assert len(bases) > 4
    done = await clean(log)
    records_after = fetched(log, committed=False)
    assert done.end_offset == log.segments.active.base_offset == log.cleaned_to
    assert latest(records_after) == latest(records_before)
    assert [record for record in records_after if record.offset < done.end_offset] == [
        record for record in records_before if done.end_offset - 7 <= record.offset < done.end_offset
    ]
    assert [segment.base_offset for segment in log.segments] == bases, (
        "before the compaction, no two segments fit one segment"
    )
    assert done.bytes_after < done.bytes_before
    await clean(log)
    assert [segment.base_offset for segment in log.segments] == [0, bases[-1]]
    assert fetched(log, committed=False) == records_after
    log.close(clean=True)
    reopened = open_log(disk, str(tmp_path), LogConfig(), clean=True)
    reopened.update_high_watermark(reopened.log_end_offset)
    assert fetched(reopened, committed=False) == records_after
    assert [header.last_offset for header in headers(reopened)][-1] == reopened.log_end_offset - 1


@pytest.mark.parametrize("marker_lies", ["beside", "behind"])
async def test_reader_of_a_replaced_segment_gets_its_aborted_transactions(tmp_path: Path, marker_lies: str) -> None:
    """The read has the old bytes. The transaction index of the new segment lacks a transaction without records."""
    disk = FaultyDisk()
    log = open_log(disk, str(tmp_path), replace(CONFIG, segment_bytes=250, delete_retention_ms=0))
    append(log, produced(7, 0, 2, transactional=True))
    if marker_lies == "behind":
        append(log, put(a="v"))
        log.roll(NOW_MS)
    append(log, marker(7, commit=False))
    for number in range(9):
        append(log, put(a=f"v{number}"))
    log.producers.expire(NOW_MS + 10**9, 1)
    assert [len(segment.txn_index) for segment in log.segments][:2] == ([1, 0] if marker_lies == "beside" else [0, 1])
    disk.cold = True
    reading = log.read(0, max_bytes=1000, limit=log.last_stable_offset)
    assert isinstance(reading, ColdRead)
    task = asyncio.create_task(reading.resolve())
    for now_ms in (NOW_MS, NOW_MS + 1, NOW_MS + 2):
        log.cleaned_to = None
        await clean(log, now_ms=now_ms)
    result = await task
    assert next(iter_batches(result.records))[0].producer_id == 7
    assert log.aborted_transactions(0, result) == [(7, 0)]
    assert not any(len(segment.txn_index) for segment in log.segments)
    log.close(clean=True)


class Slices:
    """Work of a compaction between two pauses: records checked, and bytes read and written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.records: list[int] = []
        self.moved: list[int] = []
        self._looked_at = 0
        for module in (odradek.storage.compaction.cleaner, odradek.storage.compaction.batch_filter):
            monkeypatch.setattr(module, "read_raw_records", self._count)

    def _count(self, body: memoryview, count: int) -> Iterator[RawRecord]:
        for record in read_raw_records(body, count):
            self._looked_at += 1
            yield record

    async def pace(self, moved_bytes: int) -> None:
        self.records.append(self._looked_at)
        self.moved.append(moved_bytes)
        self._looked_at = 0
        await asyncio.sleep(0)


async def test_compaction_pauses_after_a_number_of_records(
    disk: OsDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(disk, str(tmp_path), replace(CONFIG, segment_bytes=200_000))
    for codec in Compression:
        rows = [(b"k%d" % (number % 900), b"v" * 20, NOW_MS, ()) for number in range(2000)]
        append(log, build_batch(rows, compression=codec))
    log.roll(NOW_MS)
    slices = Slices(monkeypatch)
    await clean(log, pace=slices.pace)
    assert sum(slices.records) >= 5 * 2000 * 2, "each record is checked twice"
    assert max(slices.records) <= PAUSE_UNITS
    assert len(fetched(log, committed=False)) == 900
    log.close(clean=True)


async def test_memory_of_a_compaction_does_not_grow_with_the_number_of_records(disk: OsDisk, tmp_path: Path) -> None:
    log = open_log(disk, str(tmp_path), replace(CONFIG, segment_bytes=200_000, cleanup_policy=("delete",)))
    count = 20_000
    rows = [(b"k%d" % number, b"", NOW_MS, ()) for number in range(count)]
    for data in (build_batch(rows, compression=Compression.ZSTD), build_batch(rows[:1])):
        append(log, data)
    log.roll(NOW_MS)
    log.update_config(CONFIG)
    with traced_peak() as peak:
        await clean(log, limits=CleanerLimits(dedupe_buffer_size=1 << 23, load_factor=0.9, io_buffer_size=1 << 17))
    assert [record.offset for record in fetched(log, committed=False)] == list(range(1, count + 1))
    assert peak.bytes < count * (ENTRY_BYTES + 120), "a record has 13 bytes, and is rewritten once"


async def test_hash_of_a_large_key_is_computed_in_a_thread(
    disk: OsDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(disk, str(tmp_path), replace(CONFIG, segment_bytes=1 << 20))
    keys = [bytes(LARGE_KEY_BYTES + 1), b"small", bytes(LARGE_KEY_BYTES + 1)]
    for key in keys:
        append(log, build_batch([(key, b"v", NOW_MS, ())], compression=Compression.ZSTD))
    log.roll(NOW_MS)
    hashed: list[int] = []

    async def in_thread(work: Callable[[], Any]) -> Any:
        if isinstance(work, partial) and work.func is key_digest:
            hashed.append(len(work.args[0]))
        return work()

    monkeypatch.setattr(disk, "in_thread", in_thread)
    await clean(log)
    assert hashed == [LARGE_KEY_BYTES + 1] * 4, "two records, each for the map and for the filter"
    assert [record.offset for record in fetched(log, committed=False)] == [1, 2]


@pytest.mark.parametrize("kept", [True, False])
async def test_compaction_pauses_after_a_number_of_bytes(
    disk: OsDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, kept: bool
) -> None:
    """A few large batches fill a slice of work: each is read, checked and written."""
    log = open_log(disk, str(tmp_path), replace(CONFIG, segment_bytes=1 << 24))
    size = 200_000
    for number in range(60):
        key = b"k%d" % (number if kept else 0)
        append(log, build_batch([(key, b"v" * size, NOW_MS, ()), (b"all", b"", NOW_MS, ())]))
    log.roll(NOW_MS)
    slices = Slices(monkeypatch)
    await clean(log, pace=slices.pace)
    batches = SLICE_BYTES // size + 2
    assert sum(slices.moved) > 60 * size * (3 if kept else 2)
    assert max(slices.moved) <= batches * size * 2, "read and written"
    log.close(clean=True)


async def test_compaction_writes_a_bounded_number_of_batches_per_call(
    disk: OsDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each batch is indexed when it is written, so a call with many small ones blocks the event loop for 10 ms."""
    log = open_log(disk, str(tmp_path), replace(CONFIG, segment_bytes=1 << 20))
    for number in range(2000):
        append(log, put(**{f"k{number}": "v"}))
    log.roll(NOW_MS)
    written: list[int] = []
    original = Segment.append

    def count(self: Segment, batches: list[BatchHeader], buffers: list[bytes], interval: int) -> None:
        written.append(len(batches))
        original(self, batches, buffers, interval)

    monkeypatch.setattr(Segment, "append", count)
    append(log, put(k0="w"))
    log.roll(NOW_MS)
    await clean(log)
    assert sum(written) == 2001, "the newest value unchanged, and the others rewritten"
    assert max(written) <= 64
    log.close(clean=True)


async def test_keys_beyond_the_map_are_left_to_the_next_compaction(disk: OsDisk, tmp_path: Path) -> None:
    log = open_log(disk, str(tmp_path), CONFIG)
    for number in range(60):
        append(log, put(**{f"k{number % 30}": f"v{number}"}))
    latest_before = latest(fetched(log, committed=False))
    limits = CleanerLimits(ENTRY_BYTES * 8, 1.0, 1000)
    ends = []
    while cleanable(log, NOW_MS).dirty_bytes:
        ends.append((await clean(log, limits=limits)).end_offset)
        assert latest(fetched(log, committed=False)) == latest_before
    assert ends == sorted(set(ends))
    assert len(ends) > 3
    assert ends[-1] == log.segments.active.base_offset
    log.close(clean=True)


async def test_follower_of_a_compacted_log_accepts_gaps_after_a_crash(disk: OsDisk, tmp_path: Path) -> None:
    """The follower accepts the gaps even if its metadata does not say yet that the topic is compacted."""
    leader = open_log(disk, str(tmp_path / "leader"), CONFIG)
    for number in range(60):
        append(leader, put(**{f"k{number % 7}": f"v{number}"}))
    await clean(leader)
    await clean(leader)
    follower = open_log(disk, str(tmp_path / "follower"), CONFIG)
    at = 0
    while at < leader.log_end_offset:
        info = follower.append_as_follower(read(leader, at), now_ms=NOW_MS, monotonic_ms=NOW_MS)
        assert info is not None
        at = info.last_offset + 1
    follower.close(clean=False)
    reopened = open_log(disk, str(tmp_path / "follower"), LogConfig(segment_bytes=600))
    reopened.update_high_watermark(reopened.log_end_offset)
    assert reopened.log_end_offset == leader.log_end_offset
    assert fetched(reopened, committed=False) == fetched(leader, committed=False)
    reopened.close(clean=True)
    leader.close(clean=True)


async def test_epoch_of_an_emptied_marker_fences_after_a_crash(disk: OsDisk, tmp_path: Path) -> None:
    """Only the last marker of the producer is left, without its record.

    A broker that derives the producer state from the log gets its epoch. The next compaction keeps the batch again.
    """
    config = replace(CONFIG, delete_retention_ms=0)
    log = open_log(disk, str(tmp_path), config)
    append(log, produced(7, 0, 2, transactional=True))
    append(log, marker(7, commit=False, epoch=1, timestamp=NOW_MS + 5))
    for number in range(9):
        append(log, put(a=f"v{number}"))
    log.roll(NOW_MS)
    for now_ms in (NOW_MS, NOW_MS + 1, NOW_MS + 2):
        log.cleaned_to = None
        await clean(log, now_ms=now_ms)
    left = headers(log)[0]
    assert (left.producer_id, left.is_control, left.record_count) == (7, True, 0)
    log.close(clean=False)
    reopened = open_log(disk, str(tmp_path), config)
    reopened.update_high_watermark(reopened.log_end_offset)
    follower = open_log(disk, str(tmp_path / "follower"), config)
    follower.append_as_follower(read(reopened, 0), now_ms=NOW_MS, monotonic_ms=NOW_MS)
    for replica in (reopened, follower):
        entry = replica.producers.entries[7]
        assert (entry.epoch, entry.last_timestamp, entry.batches) == (1, NOW_MS + 5, [])
    with pytest.raises(Refusal) as refused:
        append(reopened, produced(7, 2, transactional=True))
    assert refused.value.error is ErrorCode.INVALID_PRODUCER_EPOCH
    reopened.cleaned_to = None
    await clean(reopened, now_ms=NOW_MS + 3)
    assert headers(reopened)[0].producer_id == 7
    for replica in (reopened, follower):
        replica.close(clean=True)


async def test_tombstones_stay_with_the_maximum_delete_retention(disk: OsDisk, tmp_path: Path) -> None:
    log = open_log(disk, str(tmp_path), replace(CONFIG, delete_retention_ms=INT64_MAX))
    append(log, put(a=None))
    log.roll(NOW_MS)
    for _ in range(2):
        append(log, put(b="v"))
        log.roll(NOW_MS)
        await clean(log)
        assert (headers(log)[0].record_count, headers(log)[0].base_timestamp) == (1, INT64_MAX)
    log.close(clean=True)


async def test_compaction_ends_at_the_first_unstable_offset(disk: OsDisk, tmp_path: Path) -> None:
    log = open_log(disk, str(tmp_path), CONFIG)
    for number in range(20):
        append(log, put(a=f"v{number}"))
    first = append(log, produced(7, 0, 1, transactional=True)).first_offset
    for number in range(40):
        append(log, put(a=f"w{number}"))
    done = await clean(log)
    assert done.end_offset <= first
    kept = [record.offset for record in fetched(log, committed=False)]
    assert kept[kept.index(first) :] == list(range(first, log.log_end_offset))
    log.close(clean=True)


async def test_cancelled_compaction_ends_without_a_pause(disk: OsDisk, tmp_path: Path) -> None:
    """A broker that stops does not wait until the map is freed in slices."""
    log = open_log(disk, str(tmp_path), CONFIG)
    for number in range(60):
        append(log, put(**{f"k{number}": "v"}))
    paced = 0
    reached = asyncio.Event()

    async def pace(_moved_bytes: int) -> None:
        nonlocal paced
        paced += 1
        if not reached.is_set():
            reached.set()
            await asyncio.Event().wait()

    cleaning = asyncio.create_task(clean(log, pace=pace))
    await reached.wait()
    cleaning.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cleaning
    assert paced == 1


def test_buffers_of_a_compaction_are_bounded_whatever_is_configured() -> None:
    limits = CleanerLimits(dedupe_buffer_size=2**63 - 1, load_factor=1.0, io_buffer_size=2**31 - 1)
    assert (limits.dedupe_bytes, limits.chunk_bytes) == (DEDUPE_BYTES_MAX, CHUNK_BYTES_MAX)
    assert (LIMITS.dedupe_bytes, LIMITS.chunk_bytes) == (LIMITS.dedupe_buffer_size, LIMITS.io_buffer_size // 2)
