"""Retention, truncation, expiry and look-ups by time on a log."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from odradek.protocol.batch import build_batch
from odradek.storage.config import DAY_MS, LogConfig
from odradek.storage.log import removal, retention
from odradek.storage.log.log import PartitionLog
from odradek.storage.log.reads import ColdRead, ReadResult
from tests.support.faulty_disk import FaultyDisk
from tests.support.logs import CODECS, NOW_MS, append, batch, headers, marker, open_log, produced, read

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from odradek.protocol.batch import Compression

SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=100, retention_ms=1000, file_delete_delay_ms=50)


@pytest.fixture
def disk() -> Iterator[FaultyDisk]:
    disk = FaultyDisk()
    yield disk
    disk.close()


def names(disk: FaultyDisk, root: Path) -> list[str]:
    return disk.list(f"{root}/t-0")


def test_retention_removes_segments_with_all_their_files(disk: FaultyDisk, tmp_path: Path) -> None:
    log = open_log(disk, str(tmp_path), SMALL)
    for number in range(9):
        append(log, produced(7, number, size=200, timestamp=NOW_MS + 100 * number), leader_epoch=number // 4)
    bases = [segment.base_offset for segment in log.segments]
    assert bases == [0, 3, 6]
    assert log.delete_expired_segments(NOW_MS + 1201) == 1
    assert (log.log_start_offset, log.epochs.entries()[0]) == (3, (0, 3))
    assert [header.base_offset for header in headers(log)] == list(range(3, 9))
    assert f"{0:020d}.log.deleted" in names(disk, tmp_path)
    assert log.remove_deleted(NOW_MS) == 0
    assert log.remove_deleted(NOW_MS + 50) > 0
    assert not any(name.startswith(f"{0:020d}") for name in names(disk, tmp_path))


def test_retention_removes_many_segments_in_steps(
    disk: FaultyDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client can make a segment of each batch, so that a log has tens of thousands of segments."""
    monkeypatch.setattr(retention, "SEGMENTS_PER_STEP", 2)
    monkeypatch.setattr(removal, "FILES_PER_STEP", 3)
    log = open_log(disk, str(tmp_path), SMALL)
    for number in range(15):
        append(log, produced(7, number, size=200, timestamp=NOW_MS + number))
    bases = [segment.base_offset for segment in log.segments]
    assert len(bases) == 5
    removed = [log.delete_expired_segments(NOW_MS + 10**6) for _ in range(4)]
    assert removed == [2, 2, 1, 0]
    assert log.log_start_offset == 15
    assert log.remove_deleted(NOW_MS) == 0
    steps = [log.remove_deleted(NOW_MS + 50) for _ in range(4)]
    assert [files >= 3 for files in steps] == [True, True, True, False]
    assert not any(name.endswith(".deleted") for name in names(disk, tmp_path))


def fetch(log: PartitionLog) -> Awaitable[ReadResult]:
    read_result = log.read(0, max_bytes=500)
    assert isinstance(read_result, ColdRead)
    return read_result.resolve()


READERS: dict[str, Callable[[PartitionLog], Awaitable[Any]]] = {
    "fetch": fetch,
    "search": lambda log: log.offset_for_timestamp(NOW_MS + 1),
    "flush": PartitionLog.flush,
}


@pytest.mark.parametrize("reader", READERS)
async def test_removed_files_stay_while_a_read_or_flush_uses_them(
    disk: FaultyDisk, tmp_path: Path, reader: str
) -> None:
    """Otherwise a read under way would fail, and its partition would go offline."""
    log = open_log(disk, str(tmp_path), replace(SMALL, file_delete_delay_ms=0))
    for number in range(9):
        append(log, batch(3, size=100, timestamp=NOW_MS + number))
    await log.flush()
    log.close(clean=True)
    log = open_log(disk, str(tmp_path), replace(SMALL, file_delete_delay_ms=0), clean=reader != "flush")
    log.update_high_watermark(log.log_end_offset)
    disk.cold = True
    at_work = asyncio.ensure_future(READERS[reader](log))
    await asyncio.sleep(0)
    assert log.delete_expired_segments(NOW_MS + 10**6) > 1
    assert log.remove_deleted(NOW_MS) == 0
    await at_work
    assert not log.failed
    assert log.remove_deleted(NOW_MS) > 0


def test_roll_by_age_is_earlier_by_the_jitter(disk: FaultyDisk, tmp_path: Path) -> None:
    """The jitter differs between logs, is at most segment.jitter.ms, and never delays a roll beyond segment.ms."""
    rolled = []
    for number in range(8):
        log = open_log(disk, f"{tmp_path}/{number}", LogConfig(segment_ms=1000, segment_jitter_ms=900))
        for at in range(0, 1002, 50):
            append(log, batch(1, timestamp=NOW_MS + at))
        append(log, batch(1, timestamp=NOW_MS + 1001))
        rolled.append([segment.base_offset for segment in log.segments][1])
    assert len(dict.fromkeys(rolled)) > 3
    assert all(2 <= base_offset <= 21 for base_offset in rolled)


def test_aborted_transactions_of_later_segments_are_not_returned(disk: FaultyDisk, tmp_path: Path) -> None:
    log = open_log(disk, str(tmp_path), LogConfig(segment_bytes=400))
    for producer in (1, 2, 3):
        append(log, produced(producer, 0, size=200, transactional=True))
        append(log, marker(producer, commit=False))
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4]
    read_result = log.read(0, max_bytes=10_000)
    assert isinstance(read_result, ReadResult)
    assert log.aborted_transactions(0, read_result) == [(1, 0)]


def test_retention_of_all_segments_leaves_an_empty_one(disk: FaultyDisk, tmp_path: Path) -> None:
    log = open_log(disk, str(tmp_path), SMALL)
    for number in range(9):
        append(log, produced(7, number, size=200))
    assert log.delete_expired_segments(NOW_MS + 10**6) == 3
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (9, 9, 9)
    assert log.producers.active()[0].last_sequence == 8, "producers outlive their records"
    log.close(clean=True)
    log = open_log(disk, str(tmp_path), SMALL, clean=True, high_watermark=9)
    assert (log.log_start_offset, log.log_end_offset) == (9, 9)
    assert log.producers.active()[0].last_sequence == 8
    assert append(log, produced(7, 9)).first_offset == 9


@pytest.mark.parametrize("beginning_gone", [False, True])
def test_producers_below_the_log_start_are_known_after_a_restart(
    disk: FaultyDisk, tmp_path: Path, *, beginning_gone: bool
) -> None:
    """The log start is within the first segment, and the checkpointed high watermark is below the second segment."""
    log = open_log(disk, str(tmp_path))
    if beginning_gone:
        append(log, produced(4, 0))
        log.roll(NOW_MS)
        log.local.remove_first(1)
    first = append(log, produced(5, 0)).first_offset
    append(log, produced(7, 0, transactional=True))
    log.advance_log_start(first + 2)
    append(log, marker(7, commit=False))
    append(log, produced(8, 0, transactional=True))
    append(log, marker(8, commit=True))
    log.roll(NOW_MS)
    log.close(clean=False)
    log = open_log(
        disk,
        str(tmp_path),
        log_start_offset=first + 2,
        high_watermark=first + 4,
        recovery_point=first + 5,
    )
    assert (log.log_start_offset, log.log_end_offset) == (first + 2, first + 5)
    assert log.last_stable_offset == first + 3, "the marker of producer 8 is not known to be committed"
    assert append(log, produced(5, 0)).duplicate
    assert not append(log, produced(7, 1, transactional=True)).duplicate
    assert not beginning_gone or append(log, produced(4, 0)).duplicate


def test_retention_keeps_segments_above_the_high_watermark(disk: FaultyDisk, tmp_path: Path) -> None:
    log = open_log(disk, str(tmp_path), SMALL)
    for _ in range(9):
        append(log, batch(1, size=200), commit=False)
    log.update_high_watermark(5)
    assert log.delete_expired_segments(NOW_MS + 10**6) == 1


def test_transaction_begun_below_the_log_start_is_unstable_from_the_log_start(disk: FaultyDisk, tmp_path: Path) -> None:
    log = open_log(disk, str(tmp_path), SMALL)
    append(log, produced(7, 0, transactional=True))
    for _ in range(9):
        append(log, batch(1, size=200))
    assert log.last_stable_offset == 0
    log.delete_expired_segments(NOW_MS + 10**6)
    assert log.last_stable_offset == log.log_start_offset == log.first_unstable_offset
    append(log, marker(7, commit=False))
    assert log.last_stable_offset == log.log_end_offset


def test_truncation_removes_batches_indexes_epochs_and_producers(disk: FaultyDisk, tmp_path: Path) -> None:
    log = open_log(disk, str(tmp_path), SMALL)
    for number in range(4):
        append(log, produced(7, number, size=200, transactional=True), leader_epoch=number)
    append(log, marker(7, commit=False), leader_epoch=4)
    append(log, batch(5), leader_epoch=5)
    assert not log.truncate_to(10, now_ms=NOW_MS, monotonic_ms=NOW_MS)
    assert log.truncate_to(7, now_ms=NOW_MS, monotonic_ms=NOW_MS), (
        "an offset within a batch: the whole batch is removed"
    )
    assert log.log_end_offset == 5
    assert log.truncate_to(4, now_ms=NOW_MS, monotonic_ms=NOW_MS)
    assert len(log.segments.active.txn_index) == 0
    assert (log.log_end_offset, log.high_watermark, log.last_stable_offset) == (4, 4, 0)
    assert log.epochs.entries() == [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert log.truncate_to(2, now_ms=NOW_MS, monotonic_ms=NOW_MS)
    assert [segment.base_offset for segment in log.segments] == [0]
    assert append(log, produced(7, 2, transactional=True), leader_epoch=6).first_offset == 2
    assert log.epochs.entries() == [(0, 0), (1, 1), (6, 2)]
    log.truncate_fully_and_start_at(100, now_ms=NOW_MS)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark, log.producers.active()) == (100, 100, 100, [])
    assert append(log, batch(1)).first_offset == 100
    log.close(clean=False)
    reopened = open_log(disk, str(tmp_path), SMALL)
    assert (reopened.log_start_offset, reopened.log_end_offset) == (100, 101)


def test_idle_producer_without_open_transaction_expires(disk: FaultyDisk, tmp_path: Path) -> None:
    log = open_log(disk, str(tmp_path))
    append(log, produced(1, 0))
    append(log, produced(2, 0, transactional=True))
    log.producers.start_verification(3, 0, 0, supports_epoch_bump=False)
    assert log.expire_producers(NOW_MS + DAY_MS - 1) == 0
    assert log.producers.verification_guard(3) != 0
    assert log.expire_producers(NOW_MS + DAY_MS) == 1
    assert [row.producer_id for row in log.producers.active()] == [2], "an open transaction keeps its producer"
    log.expire_producers(NOW_MS + 2 * DAY_MS)
    assert log.producers.verification_guard(3) == 0
    assert append(log, produced(1, 5)).first_offset == 2, "an expired producer is unknown: any sequence is accepted"


@pytest.mark.parametrize("clean", [True, False])
def test_producer_of_old_timestamps_is_known_after_a_restart(disk: FaultyDisk, tmp_path: Path, *, clean: bool) -> None:
    """KIP-98: a producer that copies old records keeps their timestamps, and its retries must be found."""
    log = open_log(disk, str(tmp_path))
    batch_of_old_records = produced(1, 0, timestamp=NOW_MS - 2 * DAY_MS)
    assert append(log, batch_of_old_records).first_offset == 0
    assert log.expire_producers(NOW_MS + DAY_MS - 1) == 0
    log.close(clean=clean)
    reopened = open_log(disk, str(tmp_path))
    assert append(reopened, batch_of_old_records).first_offset == 0, "a retry gets the offset of the first attempt"
    assert reopened.log_end_offset == 1


def test_producer_of_future_timestamps_expires(disk: FaultyDisk, tmp_path: Path) -> None:
    log = open_log(disk, str(tmp_path))
    append(log, produced(1, 0, timestamp=NOW_MS + DAY_MS // 24))
    assert log.expire_producers(NOW_MS + DAY_MS) == 1


@pytest.mark.parametrize("codec", CODECS)
async def test_timestamp_look_up_finds_a_record_within_a_batch(
    disk: FaultyDisk, tmp_path: Path, codec: Compression
) -> None:
    log = open_log(disk, str(tmp_path), SMALL)
    for number in range(20):
        stamps = [NOW_MS + 100 * number, NOW_MS + 100 * number + 50, NOW_MS + 100 * number + 20]
        append(
            log,
            build_batch([(b"k", b"v" * 50, stamp, ()) for stamp in stamps], compression=codec),
            leader_epoch=number // 10,
        )
    assert await log.offset_for_timestamp(0) == (NOW_MS, 0, 0)
    assert await log.offset_for_timestamp(NOW_MS + 1) == (NOW_MS + 50, 1, 0)
    assert await log.offset_for_timestamp(NOW_MS + 1500) == (NOW_MS + 1500, 45, 1)
    assert await log.offset_for_timestamp(NOW_MS + 1951) is None
    assert await log.max_timestamp_offset() == (NOW_MS + 1950, 58, 1)
    log.advance_log_start(44)
    assert await log.offset_for_timestamp(0) == (NOW_MS + 1420, 44, 1)
    disk.cold = True
    assert await log.offset_for_timestamp(NOW_MS + 1500) == (NOW_MS + 1500, 45, 1)
    disk.cold = False
    log.close(clean=True)
    log = open_log(disk, str(tmp_path), SMALL, clean=True)
    assert await log.offset_for_timestamp(NOW_MS + 1500) == (NOW_MS + 1500, 45, 1)
    assert await log.max_timestamp_offset() == (NOW_MS + 1950, 58, 1)


async def test_logs_without_timestamps_have_no_newest_record(disk: FaultyDisk, tmp_path: Path) -> None:
    log = open_log(disk, str(tmp_path))
    assert await log.max_timestamp_offset() is None
    append(log, build_batch([(b"k", b"v", -1, ())]))
    assert await log.max_timestamp_offset() is None
    assert await log.offset_for_timestamp(0) is None


def test_log_that_ends_below_its_start_is_reset_to_the_start(disk: FaultyDisk, tmp_path: Path) -> None:
    log = open_log(disk, str(tmp_path))
    append(log, produced(7, 0))
    log.close(clean=False)
    log = open_log(disk, str(tmp_path), log_start_offset=50)
    assert (log.log_start_offset, log.log_end_offset, log.producers.active()) == (50, 50, [])
    assert read(log, 50) == b""
    assert append(log, produced(7, 1)).first_offset == 50
