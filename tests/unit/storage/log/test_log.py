"""PartitionLog: append, read, roll, watermarks, and failed disk operations."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from odradek.protocol.batch import iter_batches, iter_records, read_header, verify_crc
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.storage.config import LogConfig
from odradek.storage.log.reads import ColdRead, read_batches
from odradek.storage.producers.entry import Origin
from odradek.storage.segment.segment import RECENT_BATCHES_MAX
from tests.support.faulty_disk import FaultyDisk
from tests.support.logs import NOW_MS, append, batch, headers, marker, open_log, produced, read

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from odradek.storage.log.log import PartitionLog

SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=100)


@pytest.fixture
def disk() -> Iterator[FaultyDisk]:
    disk = FaultyDisk()
    yield disk
    disk.close()


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path)


def refused(code: ErrorCode, log: PartitionLog, data: bytes, **options: Any) -> None:
    before = (log.log_end_offset, log.segments.active.size, log.producers.active())
    with pytest.raises(Refusal) as caught:
        append(log, data, **options)
    assert caught.value.error is code
    assert before == (log.log_end_offset, log.segments.active.size, log.producers.active())


# ---- append ---------------------------------------------------------------------------------------------------------


def test_append_sets_offsets_and_epoch_without_changing_the_buffer(disk: FaultyDisk, root: str) -> None:
    log = open_log(disk, root)
    data = bytearray(batch(3))
    before = bytes(data)
    append(log, bytes(data))
    info = append(log, data, leader_epoch=7)  # type: ignore[arg-type]  # a writable buffer, to detect a change of it
    assert data == before
    assert (info.first_offset, info.last_offset, info.log_append_time, info.duplicate) == (3, 5, -1, False)
    stored = read(log, 3)
    header = read_header(stored)
    assert (header.base_offset, header.leader_epoch) == (3, 7)
    assert verify_crc(stored, 0, header)
    assert stored[16:] == before[16:]
    assert log.epochs.entries() == [(0, 0), (7, 3)]


def test_log_append_time_replaces_timestamps(disk: FaultyDisk, root: str) -> None:
    log = open_log(disk, root, LogConfig(message_timestamp_type="LogAppendTime"))
    info = append(log, batch(2, timestamp=5), now_ms=NOW_MS)
    assert info.log_append_time == NOW_MS
    stored = read(log, 0)
    header = read_header(stored)
    assert (header.timestamp_type, header.max_timestamp) == (1, NOW_MS)
    assert verify_crc(stored, 0, header)
    assert [record.timestamp for record in iter_records(stored, max_decompressed_bytes=1000)] == [NOW_MS, NOW_MS]


def test_duplicates_of_the_last_five_batches_are_detected(disk: FaultyDisk, root: str) -> None:
    log = open_log(disk, root)
    sent = [produced(7, sequence, timestamp=NOW_MS + sequence) for sequence in range(6)]
    for data in sent:
        append(log, data)
    for number in range(1, 6):
        info = append(log, sent[number])
        assert (info.duplicate, info.first_offset, info.log_append_time) == (True, number, NOW_MS + number)
    assert log.log_end_offset == 6
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log, sent[0])
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log, produced(7, 7))


def test_after_a_restart_only_a_duplicate_of_the_last_batch_is_detected(disk: FaultyDisk, root: str) -> None:
    log = open_log(disk, root)
    for sequence in range(3):
        append(log, produced(7, sequence))
    log.close(clean=True)
    log = open_log(disk, root, clean=True, high_watermark=3)
    assert append(log, produced(7, 2)).duplicate
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log, produced(7, 1))


def test_append_larger_than_a_segment_is_refused(disk: FaultyDisk, root: str) -> None:
    log, narrow = open_log(disk, root, SMALL), open_log(disk, f"{root}/b", LogConfig(max_message_bytes=100))
    refused(ErrorCode.RECORD_LIST_TOO_LARGE, log, batch(20, size=100))
    refused(ErrorCode.MESSAGE_TOO_LARGE, narrow, batch(5, size=50))
    assert (log.log_end_offset, narrow.log_end_offset) == (0, 0)


def test_transactional_batch_without_guard_is_refused(disk: FaultyDisk, root: str) -> None:
    log = open_log(disk, root)
    data = produced(7, 0, transactional=True)
    refused(ErrorCode.INVALID_TXN_STATE, log, data, guard=0)
    guard = log.producers.start_verification(7, 0, 0, supports_epoch_bump=False)
    assert (
        guard
        == log.producers.verification_guard(7)
        == log.producers.start_verification(7, 0, 0, supports_epoch_bump=False)
    )
    refused(ErrorCode.INVALID_TXN_STATE, log, data, guard=guard + 1)
    append(log, data, guard=guard)
    assert log.producers.has_ongoing_transaction(7, 0)
    assert log.producers.start_verification(7, 0, 1, supports_epoch_bump=False) == 0, "its transaction is open"
    append(log, produced(7, 1, transactional=True), guard=0)
    append(log, marker(7, commit=True))
    refused(ErrorCode.INVALID_TXN_STATE, log, produced(7, 2, transactional=True), guard=guard)
    unchecked = open_log(disk, f"{root}/b", LogConfig(verification_enabled=False))
    append(unchecked, data, guard=0)


def test_stale_epoch_is_refused_before_a_missing_guard(disk: FaultyDisk, root: str) -> None:
    log = open_log(disk, root)
    append(log, marker(7, epoch=3, commit=False))
    refused(ErrorCode.INVALID_PRODUCER_EPOCH, log, produced(7, 0, epoch=2, transactional=True), guard=0)
    with pytest.raises(Refusal) as caught:
        log.producers.start_verification(7, 2, 0, supports_epoch_bump=True)
    assert caught.value.error is ErrorCode.INVALID_PRODUCER_EPOCH


def test_marker_keeps_the_guard_of_the_next_transaction(disk: FaultyDisk, root: str) -> None:
    """KAFKA-18654: with TV2 the marker has the epoch of the next transaction."""
    log = open_log(disk, root)
    append(log, produced(7, 0, transactional=True))
    guard = log.producers.start_verification(7, 1, 0, supports_epoch_bump=True)
    append(log, marker(7, epoch=1, commit=True), transaction_version=2)
    assert log.producers.verification_guard(7) == guard
    append(log, produced(7, 0, epoch=1, transactional=True), guard=guard)
    assert log.producers.verification_guard(7) == 0


# ---- roll -----------------------------------------------------------------------------------------------------------


def test_segments_roll_by_size_time_and_index(disk: FaultyDisk, root: str) -> None:
    by_size = open_log(disk, f"{root}/a", SMALL)
    for _ in range(12):
        append(by_size, batch(1, size=200))
    assert [segment.base_offset for segment in by_size.segments] == [0, 3, 6, 9]
    assert all(segment.size <= 1000 for segment in by_size.segments)

    by_time = open_log(disk, f"{root}/b", LogConfig(segment_ms=1000))
    for at in (0, 999, 1000, 1001, 1500):
        append(by_time, batch(1, timestamp=NOW_MS + at))
    assert [segment.base_offset for segment in by_time.segments] == [0, 3]

    by_index = open_log(disk, f"{root}/c", LogConfig(segment_index_bytes=24, index_interval_bytes=0))
    for number in range(6):
        append(by_index, batch(1, timestamp=NOW_MS + number))
    assert [segment.base_offset for segment in by_index.segments] == [0, 2, 4]


def test_roll_writes_a_producer_snapshot(disk: FaultyDisk, root: str) -> None:
    log = open_log(disk, root, SMALL)
    for sequence in range(8):
        append(log, produced(7, sequence, size=200))
    assert log.local.snapshots.offsets == [segment.base_offset for segment in log.segments][1:]


# ---- read -----------------------------------------------------------------------------------------------------------


def test_reads_are_bounded_by_offsets_limit_and_bytes(disk: FaultyDisk, root: str) -> None:
    log = open_log(disk, root)
    for _ in range(3):
        append(log, batch(2))
    for offset in (-1, 7):
        with pytest.raises(Refusal) as caught:
            log.read(offset, max_bytes=100)
        assert caught.value.error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert read(log, 6) == b""
    assert read(log, 4, limit=4) == b""
    size = len(batch(2))
    assert len(read(log, 0, limit=4)) == 2 * size
    assert len(read(log, 1, max_bytes=1)) == size, "the first batch is returned whole"
    assert read(log, 1, max_bytes=1, min_one_batch=False) == b""
    assert len(read(log, 0, max_bytes=size + 5)) == size + 5, "the data may end within a batch"


def test_recent_batch_is_read_without_an_index_look_up(disk: FaultyDisk, root: str) -> None:
    log = open_log(disk, root)
    count = RECENT_BATCHES_MAX + 2
    for _ in range(count):
        append(log, batch(1))
    segment = log.segments.active
    size = segment.size // count

    def first_piece(offset: int) -> int:
        reading = read_batches(
            log.segments,
            disk,
            offset,
            limit=count,
            log_end=count,
            max_bytes=size,
            min_one_batch=True,
            interval=4096,
        )
        piece = next(reading)
        reading.close()
        assert piece is not None
        return piece[1]

    assert [first_piece(offset) for offset in (1, 2, count - 1)] == [0, 2 * size, (count - 1) * size]
    log.truncate_to(3, now_ms=NOW_MS, monotonic_ms=NOW_MS)
    assert not segment.recent_positions


@pytest.mark.parametrize("sealed", [False, True])
async def test_cold_read_returns_the_same_as_a_warm_read(disk: FaultyDisk, root: str, sealed: bool) -> None:
    log = open_log(disk, root, SMALL)
    for _ in range(20):
        append(log, batch(2, size=50))
    if sealed:  # start-up does not load the indexes of sealed segments: the read does
        log.close(clean=True)
        log = open_log(disk, root, SMALL, clean=True)
    for offset in (0, 3, 17, 38):
        log.segments.active.drop_recent()
        warm = read(log, offset, max_bytes=400)
        disk.cold = True
        read_result = log.read(offset, max_bytes=400)
        assert isinstance(read_result, ColdRead)
        assert bytes((await read_result.resolve()).records) == warm
        disk.cold = False


def begin_cold_read(disk: FaultyDisk, root: str) -> tuple[PartitionLog, ColdRead]:
    """Begin to read the second of two batches of a new log, which begins at offset 5."""
    log = open_log(disk, root)
    append(log, batch(5))
    append(log, batch(5))
    log.segments.active.drop_recent()
    disk.cold = True
    read_result = log.read(5, max_bytes=400)
    assert isinstance(read_result, ColdRead)
    return log, read_result


async def test_cold_read_of_a_log_truncated_during_it_is_refused(disk: FaultyDisk, root: str) -> None:
    log, read_result = begin_cold_read(disk, root)
    log.truncate_to(5, now_ms=NOW_MS, monotonic_ms=NOW_MS)
    with pytest.raises(Refusal) as caught:
        await read_result.resolve()
    assert caught.value.error is ErrorCode.OFFSET_NOT_AVAILABLE, "the offset may still exist"


@pytest.mark.parametrize("begun", [False, True])
async def test_cold_read_of_a_log_closed_during_it_is_refused(disk: FaultyDisk, root: str, begun: bool) -> None:
    log, read_result = begin_cold_read(disk, root)
    reading = asyncio.create_task(read_result.resolve())
    if begun:
        await asyncio.sleep(0)
    log.close(clean=False)  # the topic is deleted, or this broker is no longer a replica
    with pytest.raises(Refusal) as caught:
        await reading
    assert caught.value.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_cold_read_raises_the_error_of_the_disk(disk: FaultyDisk, root: str) -> None:
    log = open_log(disk, root)
    append(log, batch(5))
    log.segments.active.drop_recent()
    disk.cold = True
    disk.refuse("read_cold", ".log")
    read_result = log.read(0, max_bytes=400)
    assert isinstance(read_result, ColdRead)
    with pytest.raises(OSError, match="read_cold refused"):
        await read_result.resolve()


async def test_damaged_indexes_of_sealed_segments_are_rebuilt(disk: FaultyDisk, root: str) -> None:
    log = open_log(disk, root, SMALL)
    for _ in range(20):
        append(log, batch(2, size=50))
    expected = [header.base_offset for header in headers(log)]
    log.close(clean=True)
    path = log.segments.first.path(".index")
    data = bytearray(disk.read_file(path))
    data[:8], data[8:16] = data[8:16], data[:8]  # the last entry, which the start-up checks, stays valid
    disk.replace_file_now(path, bytes(data))
    log = open_log(disk, root, SMALL, clean=True)
    assert [header.base_offset for header in headers(log)] == expected
    assert disk.read_file(path) != data


# ---- watermarks -----------------------------------------------------------------------------------------------------


def test_high_watermark_stays_within_the_log_and_never_decreases(disk: FaultyDisk, root: str) -> None:
    log = open_log(disk, root)
    append(log, batch(5), commit=False)
    log.update_high_watermark(99)
    assert log.high_watermark == log.last_stable_offset == 5
    log.update_high_watermark(2)
    assert log.high_watermark == 5


def test_transaction_is_unstable_until_its_marker_is_committed(disk: FaultyDisk, root: str) -> None:
    log = open_log(disk, root)
    append(log, produced(7, 0, transactional=True))
    append(log, marker(7, commit=True), commit=False)
    append(log, batch(1), commit=False)
    assert (log.high_watermark, log.last_stable_offset, log.first_unstable_offset) == (1, 0, 0)
    log.update_high_watermark(2)
    assert (log.last_stable_offset, log.first_unstable_offset) == (2, None)


def test_empty_transaction_changes_neither_index_nor_stable_offset(disk: FaultyDisk, root: str) -> None:
    log = open_log(disk, root)
    append(log, marker(7, commit=False), commit=False)
    assert log.first_unstable_offset is None
    assert len(log.segments.active.txn_index) == 0
    assert not disk.exists(log.segments.active.path(".txnindex"))


# ---- failed writes --------------------------------------------------------------------------------------------------


def test_failed_write_of_batches_changes_no_offset(disk: FaultyDisk, root: str) -> None:
    log = open_log(disk, root)
    append(log, produced(7, 0))
    disk.refuse("write", ".log")
    with pytest.raises(OSError, match="refused"):
        append(log, produced(7, 1))
    disk.heal()
    assert log.failed
    assert (log.log_end_offset, log.producers.active()[0].last_sequence) == (1, 0)
    with pytest.raises(OSError, match="failed"):
        append(log, produced(7, 1))


def test_failed_txnindex_write_advances_the_log_end_but_not_the_stable_offset(disk: FaultyDisk, root: str) -> None:
    """KAFKA-7866: recovery writes the missing index entry."""
    log = open_log(disk, root)
    append(log, produced(7, 0, transactional=True))
    disk.refuse("write", ".txnindex")
    with pytest.raises(OSError, match="refused"):
        append(log, marker(7, commit=False))
    disk.heal()
    assert log.failed
    assert (log.log_end_offset, log.high_watermark, log.last_stable_offset) == (2, 1, 0)
    log.close(clean=True)
    log = open_log(disk, root)
    log.update_high_watermark(2)
    assert log.last_stable_offset == 2
    result = log.read(0, max_bytes=1000)
    assert not isinstance(result, ColdRead)
    assert log.aborted_transactions(0, result) == [(7, 0)]


def test_failed_roll_marks_the_log_as_failed(disk: FaultyDisk, root: str) -> None:
    log = open_log(disk, root, SMALL)
    append(log, batch(1, size=600))
    disk.refuse("open", f"{1:020d}.log")
    with pytest.raises(OSError, match="refused"):
        append(log, batch(1, size=600))
    assert log.failed
    assert log.log_end_offset == 1


# ---- appends of followers, Raft and coordinators --------------------------------------------------------------------


def test_follower_writes_the_batches_of_the_leader_unchanged(disk: FaultyDisk, root: str) -> None:
    leader = open_log(disk, f"{root}/leader")
    for number in range(3):
        append(leader, produced(7, number, transactional=True), leader_epoch=number)
    append(leader, marker(7, commit=False), leader_epoch=2)
    pieces = read(leader, 0)
    follower = open_log(disk, f"{root}/follower")
    info = follower.append_as_follower(pieces + pieces[:30], now_ms=NOW_MS, monotonic_ms=NOW_MS)
    assert info is not None
    assert (info.first_offset, info.last_offset) == (0, 3)
    assert read(follower, 0) == pieces
    assert follower.epochs.entries() == leader.epochs.entries()
    assert follower.producers.active() == leader.producers.active()
    assert follower.append_as_follower(pieces[:30], now_ms=NOW_MS, monotonic_ms=NOW_MS) is None
    for wrong, code in (
        (pieces, ErrorCode.OFFSET_OUT_OF_RANGE),
        (pieces[:70] + b"?" + pieces[71:], ErrorCode.CORRUPT_MESSAGE),
    ):
        with pytest.raises(Refusal) as caught:
            follower.append_as_follower(wrong, now_ms=NOW_MS, monotonic_ms=NOW_MS)
        assert caught.value.error is code


def test_raft_and_coordinators_may_append_several_batches(disk: FaultyDisk, root: str) -> None:
    log = open_log(disk, root)
    info = log.append_as_leader(
        batch(2) + batch(3), leader_epoch=1, origin=Origin.RAFT_LEADER, now_ms=NOW_MS, monotonic_ms=NOW_MS
    )
    assert (info.first_offset, info.last_offset) == (0, 4)
    assert [header.base_offset for header, _ in iter_batches(read(log, 0))] == [0, 2]
