"""Each test breaks one invariant of a log, and the transition that comes next finds it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from odradek.invariants.storage import (
    COMPACTION_BOUND,
    COMPLETED_TRANSACTION_ORDER,
    FILE_WITHOUT_HOLES,
    FIRST_UNSTABLE_OFFSET,
    LEADER_EPOCH_ORDER,
    LOG_END_ADVANCES,
    LOG_OFFSETS,
    OFFSET_INDEX_ORDER,
    OFFSET_INDEX_RANGE,
    OPEN_TRANSACTION_ORDER,
    PRODUCER_BATCHES,
    PRODUCER_EPOCH,
    PRODUCER_SEQUENCE,
    READ_RANGE,
    RECOVERY_POINT,
    SEGMENT_CONTIGUOUS,
    SEGMENT_ORDER,
    TIME_INDEX_ORDER,
    TXN_INDEX_ORDER,
)
from odradek.storage.compaction.cleaner import Cleaning, cleanable
from odradek.storage.config import LogConfig
from odradek.storage.disk.os_disk import OsDisk
from odradek.storage.files import names
from odradek.storage.files.leader_epochs import LeaderEpochs
from odradek.storage.producers.entry import CachedBatch, CompletedTransaction
from odradek.storage.segment.index import AbortedTransaction, OffsetIndex, TimeIndex, TxnIndex
from odradek.storage.segment.segment import Segment
from odradek.storage.segment.segments import Segments
from tests.support.cleaning import LIMITS, no_pause
from tests.support.invariants import breaks, violation_of
from tests.support.logs import NOW_MS, append, batch, marker, open_log, produced

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from odradek.storage.log.log import PartitionLog

SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=100)


@pytest.fixture
def disk() -> Iterator[OsDisk]:
    os_disk = OsDisk()
    yield os_disk
    os_disk.close()


@pytest.fixture
def log(disk: OsDisk, tmp_path: Path) -> PartitionLog:
    return open_log(disk, str(tmp_path), SMALL)


# ---- offsets of a log -----------------------------------------------------------------------------------------------


@breaks(LOG_OFFSETS)
def test_log_start_offset_above_the_high_watermark_is_a_violation(log: PartitionLog) -> None:
    append(log, batch(5), commit=False)
    log.log_start_offset = 4
    log.update_high_watermark(3)


@breaks(LOG_END_ADVANCES)
def test_append_below_the_log_end_offset_is_a_violation(log: PartitionLog, monkeypatch: pytest.MonkeyPatch) -> None:
    append(log, batch(5))
    monkeypatch.setattr("odradek.storage.batches.validation.CheckedBatch.set_offset", lambda *_: None)
    append(log, batch(5))


@breaks(RECOVERY_POINT)
async def test_flushed_offset_above_the_log_end_offset_is_a_violation(log: PartitionLog) -> None:
    append(log, batch())
    log.local._flusher.flushed_offset = 7
    await log.flush()


@breaks(READ_RANGE)
def test_read_of_batches_from_the_limit_on_is_a_violation(log: PartitionLog) -> None:
    append(log, batch())
    append(log, batch())
    log.read(0, max_bytes=1000)
    index = log.segments.active.offset_index
    assert index is not None
    index.append(5, log.segments.active.size, 1)  # the walk to the limit begins behind it
    log.read(0, max_bytes=1000, limit=1)


@breaks(FILE_WITHOUT_HOLES)
def test_write_behind_the_end_of_a_file_is_a_violation(disk: OsDisk, tmp_path: Path) -> None:
    disk.open(f"{tmp_path}/file", create=True).write(10, b"x")


# ---- segments and indexes -------------------------------------------------------------------------------------------


@breaks(SEGMENT_ORDER)
def test_segment_that_begins_below_an_indexed_offset_is_a_violation(disk: OsDisk, tmp_path: Path) -> None:
    segments = Segments()
    first = Segment(disk, str(tmp_path), 0, created_ms=NOW_MS, create=True)
    segments.add(first)
    assert first.offset_index is not None
    first.offset_index.append(9, 100, 9)
    segments.add(Segment(disk, str(tmp_path), 9, created_ms=NOW_MS, create=True))


@breaks(SEGMENT_CONTIGUOUS)
def test_segment_that_does_not_begin_at_the_log_end_offset_is_a_violation(
    log: PartitionLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = log.local.roll
    monkeypatch.setattr(log.local, "roll", lambda base, producers, now: original(base + 1, producers, now))
    for _ in range(20):
        append(log, batch())


@breaks(OFFSET_INDEX_ORDER)
def test_offset_index_entry_at_an_earlier_position_is_a_violation() -> None:
    index = OffsetIndex(100)
    index.append(105, 200, 101)
    index.append(106, 200, 106)


@breaks(OFFSET_INDEX_RANGE)
def test_offset_index_entry_behind_a_truncated_file_is_a_violation(
    log: PartitionLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(10):
        append(log, batch())
    monkeypatch.setattr(OffsetIndex, "truncate_to", lambda *_: None)
    log.truncate_to(2, now_ms=NOW_MS, monotonic_ms=NOW_MS)


@breaks(TIME_INDEX_ORDER)
def test_time_index_entry_for_an_earlier_offset_is_a_violation() -> None:
    index = TimeIndex(100)
    index.maybe_append(NOW_MS, 105)
    index.maybe_append(NOW_MS + 1, 104)


@breaks(TXN_INDEX_ORDER)
def test_txn_index_entry_with_an_earlier_marker_is_a_violation() -> None:
    index = TxnIndex(100)
    index.append(AbortedTransaction(1, 101, 105, 106))
    index.append(AbortedTransaction(2, 102, 104, 105))


@breaks(COMPACTION_BOUND)
async def test_compaction_that_reaches_into_the_active_segment_is_a_violation(disk: OsDisk, tmp_path: Path) -> None:
    log = open_log(disk, str(tmp_path), replace(SMALL, cleanup_policy=("compact",)))
    append(log, batch(5))
    log.update_high_watermark(5)
    plan = replace(cleanable(log, NOW_MS), bound=5)
    await Cleaning(log, plan, LIMITS, no_pause, expiry_ms=NOW_MS, wall_ms=NOW_MS).run()


# ---- producers ------------------------------------------------------------------------------------------------------


@breaks(PRODUCER_EPOCH)
def test_producer_epoch_that_decreases_is_a_violation(log: PartitionLog, monkeypatch: pytest.MonkeyPatch) -> None:
    append(log, produced(1, 0, epoch=2))
    monkeypatch.setattr("odradek.storage.producers.entry.ProducerUpdate._check_epoch", lambda *_: None)
    append(log, produced(1, 0, epoch=1))


@breaks(PRODUCER_BATCHES)
def test_cached_batch_with_an_earlier_offset_is_a_violation(log: PartitionLog) -> None:
    append(log, produced(1, 0))
    log.producers.entries[1].batches[0] = CachedBatch(0, 50, 0, NOW_MS)
    append(log, produced(1, 1))


@breaks(PRODUCER_SEQUENCE)
def test_batch_with_a_sequence_gap_is_a_violation(log: PartitionLog, monkeypatch: pytest.MonkeyPatch) -> None:
    append(log, produced(1, 0))
    monkeypatch.setattr("odradek.storage.producers.entry.ProducerUpdate._check_sequence", lambda *_: None)
    append(log, produced(1, 7))


@breaks(OPEN_TRANSACTION_ORDER)
def test_transaction_that_is_opened_before_an_open_one_is_a_violation(log: PartitionLog) -> None:
    log.producers._ongoing[50] = 9
    append(log, produced(1, 0, transactional=True))


@breaks(COMPLETED_TRANSACTION_ORDER)
def test_transaction_that_completes_before_a_completed_one_is_a_violation(log: PartitionLog) -> None:
    log.producers.complete(CompletedTransaction(1, 3, 8, aborted=False))
    log.producers.complete(CompletedTransaction(2, 4, 7, aborted=False))


@breaks(FIRST_UNSTABLE_OFFSET)
def test_open_transaction_below_the_first_unstable_offset_is_a_violation(log: PartitionLog) -> None:
    append(log, produced(1, 0, transactional=True), commit=False)
    log.producers._ongoing.clear()
    log.update_high_watermark(1)


# ---- leader epochs --------------------------------------------------------------------------------------------------


@breaks(LEADER_EPOCH_ORDER)
def test_leader_epoch_that_begins_below_an_earlier_one_is_a_violation() -> None:
    epochs = LeaderEpochs([(1, 10), (2, 20), (3, 30)])
    epochs._epochs[0] = 9
    epochs.assign(4, 15)


# ---- after a violation ----------------------------------------------------------------------------------------------


def test_log_with_a_violated_invariant_takes_no_more_appends(log: PartitionLog) -> None:
    append(log, batch(5), commit=False)
    log.log_start_offset = 4
    with violation_of(LOG_OFFSETS):
        log.update_high_watermark(3)
    assert log.failed
    with pytest.raises(OSError, match="has failed"):
        append(log, batch())


def test_append_that_violates_an_invariant_fails_the_log(log: PartitionLog) -> None:
    append(log, produced(1, 0))
    log.producers._ongoing[50] = 9
    with violation_of(OPEN_TRANSACTION_ORDER):
        append(log, produced(2, 0, transactional=True))
    with pytest.raises(OSError, match="has failed"):
        append(log, marker(2, commit=True))


def test_compaction_that_violates_an_invariant_fails_the_log(log: PartitionLog, disk: OsDisk, tmp_path: Path) -> None:
    """The list of segments has the new segment, whose files do not have their final names."""
    while len(log.segments) < 3:
        append(log, batch())
    first, second, _ = log.segments
    assert first.offset_index is not None
    first.offset_index.append(second.base_offset, first.size, second.base_offset)
    cleaned = Segment(
        disk, log.directory, second.base_offset, created_ms=NOW_MS, create=True, file_suffix=names.SWAP_SUFFIX
    )
    with violation_of(SEGMENT_ORDER):
        log.local.replace_segments([second], cleaned)
    assert log.failed


def test_log_with_a_violated_invariant_is_recovered_by_the_next_start(
    log: PartitionLog, disk: OsDisk, tmp_path: Path
) -> None:
    append(log, batch(5), commit=False)
    log.log_start_offset = 4
    with violation_of(LOG_OFFSETS):
        log.update_high_watermark(3)
    log.close(clean=True)
    reopened = open_log(disk, str(tmp_path), SMALL)
    assert (reopened.log_start_offset, reopened.log_end_offset) == (0, 5)
    append(reopened, batch())
