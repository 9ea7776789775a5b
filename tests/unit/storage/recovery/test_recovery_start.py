"""Recovery of an active segment from its recovery start: it reads only later batches, and derives the same state."""

from __future__ import annotations

import asyncio
import errno
import shutil
from typing import TYPE_CHECKING

import pytest

from odradek.storage.config import LogConfig
from odradek.storage.disk.os_disk import OsDisk, OsFile
from odradek.storage.files import checkpoint, names
from odradek.storage.producers.snapshot import ACTIVE_SEGMENT_SNAPSHOTS_MAX, decode_snapshot
from odradek.storage.recovery.producer_replay import BatchApplier
from odradek.storage.segment.index import TXN_ENTRY_BYTES
from odradek.storage.segment.segment import Segment
from tests.support.logs import NOW_MS, append, batch, headers, marker, open_log, produced
from tests.support.recovery_starts import BIG, CONFIG, checkpointed, fill, state

if TYPE_CHECKING:
    from pathlib import Path

    from odradek.protocol.batch import BatchHeader
    from odradek.protocol.schema import Buffer
    from odradek.storage.log.log import PartitionLog
    from odradek.storage.producers.entry import EndMarker

LAST_OFFSET_DELTA_AT = 23
"""Position of the field in a batch (https://kafka.apache.org/documentation/#recordbatch), in bytes."""
MAX_TIMESTAMP_AT = 35
"""Position of the field in a batch, in bytes."""


def killed(log: PartitionLog, disk: OsDisk, tmp_path: Path, options: dict[str, int | None]) -> PartitionLog:
    """End the process, and open the log again. Check that a recovery of whole segments derives the same."""
    log.close(clean=False)
    shutil.copytree(tmp_path / "t-0", tmp_path / "whole" / "t-0", dirs_exist_ok=True)
    whole = open_log(disk, str(tmp_path / "whole"), CONFIG, **options | {"recovery_start": None})
    found = open_log(disk, str(tmp_path), CONFIG, **options)
    assert state(found) == state(whole)
    files = {path.name: path.read_bytes() for path in (tmp_path / "whole" / "t-0").iterdir()}
    for name, content in files.items():
        assert (tmp_path / "t-0" / name).read_bytes() == content, name
    whole.close(clean=False)
    shutil.rmtree(tmp_path / "whole")
    return found


async def test_recovery_from_the_start_derives_what_a_whole_recovery_derives(disk: OsDisk, tmp_path: Path) -> None:
    log = open_log(disk, str(tmp_path), CONFIG)
    for round_number in range(3):
        fill(log, round_number)
        await log.flush_for_recovery()
        start = log.recovery_start
        assert start == log.log_end_offset
        assert log.bytes_to_recover == 0
        append(log, batch(3))
        append(log, marker(9, commit=False))  # of a transaction without records
        log = killed(log, disk, tmp_path, checkpointed(log))
        assert log.recovery_start == start
        assert 0 < log.bytes_to_recover < BIG
        assert len(log.local.snapshots.offsets) <= ACTIVE_SEGMENT_SNAPSHOTS_MAX + 1


async def test_bytes_before_the_start_are_not_read(disk: OsDisk, tmp_path: Path) -> None:
    """The damage of a record shows that: a recovery of the whole segment ends there."""
    log = open_log(disk, str(tmp_path), CONFIG)
    fill(log, 0)
    await log.flush_for_recovery()
    append(log, batch(3))
    end, options = log.log_end_offset, checkpointed(log)
    log.close(clean=False)
    path = tmp_path / "t-0" / names.offset_file(0, names.LOG_SUFFIX)
    with path.open("r+b") as file:
        file.seek(200)
        file.write(b"\0")
    log = open_log(disk, str(tmp_path), CONFIG, **options)
    assert log.log_end_offset == end
    log.close(clean=False)
    log = open_log(disk, str(tmp_path), CONFIG, **options | {"recovery_start": None})
    assert log.log_end_offset == 0


async def test_damaged_offset_before_the_start_has_no_effect_on_later_index_entries(
    disk: OsDisk, tmp_path: Path
) -> None:
    """A batch with a damaged offset beyond the start, and with a larger timestamp, is not the newest one."""
    config = LogConfig(index_interval_bytes=BIG // 2)
    log = open_log(disk, str(tmp_path), config)
    fill(log, 0)
    position = sum(header.size for header in headers(log)[:-2])
    await log.flush_for_recovery()
    append(log, batch(3))
    end, options = log.log_end_offset, checkpointed(log)
    log.close(clean=False)
    path = tmp_path / "t-0" / names.offset_file(0, names.LOG_SUFFIX)
    with path.open("r+b") as file:
        file.seek(position + LAST_OFFSET_DELTA_AT)
        file.write((1_000).to_bytes(4, "big"))
        file.seek(position + MAX_TIMESTAMP_AT)
        file.write((NOW_MS + 1_000).to_bytes(8, "big"))
    log = open_log(disk, str(tmp_path), config, **options)
    assert log.log_end_offset == end
    assert log.segments.active.offset_of_max_timestamp < end


async def test_batches_after_the_start_are_no_out_of_order_batches(
    disk: OsDisk, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The replay of producers ends at the recovery start, wherever its snapshot is."""
    log = open_log(disk, str(tmp_path), CONFIG)
    fill(log, 0)
    await log.flush_for_recovery()
    append(log, batch(3))
    options = checkpointed(log) | {"high_watermark": 3}
    log = killed(log, disk, tmp_path, options)
    assert log.recovery_start == log.log_end_offset - 3
    assert "out-of-order" not in capsys.readouterr().out


async def test_damage_after_the_start_ends_the_log(disk: OsDisk, tmp_path: Path) -> None:
    log = open_log(disk, str(tmp_path), CONFIG)
    fill(log, 0)
    await log.flush_for_recovery()
    start, size = log.log_end_offset, log.segments.active.size
    append(log, batch(3))
    append(log, batch(3))
    options = checkpointed(log)
    log.close(clean=False)
    with (tmp_path / "t-0" / names.offset_file(0, names.LOG_SUFFIX)).open("r+b") as file:
        file.seek(size + 70)
        file.write(b"\xff")
    losses: list[str] = []
    log = open_log(disk, str(tmp_path), CONFIG, on_loss=losses.append, **options)
    assert log.log_end_offset == start == log.recovery_start
    assert f"byte {size} of" in losses[0]


@pytest.mark.parametrize("suffix", [names.OFFSET_INDEX_SUFFIX, names.TIME_INDEX_SUFFIX, names.SNAPSHOT_SUFFIX])
async def test_without_a_file_of_the_start_the_whole_segment_is_recovered(
    disk: OsDisk, tmp_path: Path, suffix: str
) -> None:
    log = open_log(disk, str(tmp_path), CONFIG)
    fill(log, 0)
    await log.flush_for_recovery()
    start, options = log.log_end_offset, checkpointed(log)
    append(log, batch(3))
    expected = state(log)
    log.close(clean=False)
    offset = start if suffix == names.SNAPSHOT_SUFFIX else 0
    (tmp_path / "t-0" / names.offset_file(offset, suffix)).unlink()
    log = open_log(disk, str(tmp_path), CONFIG, **options)
    assert state(log) == expected
    assert log.recovery_start is None
    assert log.bytes_to_recover == log.segments.active.size


async def test_damaged_snapshot_at_the_start_is_written_again_if_it_is_above_the_high_watermark(
    disk: OsDisk, tmp_path: Path
) -> None:
    log = open_log(disk, str(tmp_path), CONFIG)
    fill(log, 0)
    await log.flush_for_recovery()
    start, options = log.log_end_offset, checkpointed(log) | {"high_watermark": 3}
    log.close(clean=False)
    path = tmp_path / "t-0" / names.offset_file(start, names.SNAPSHOT_SUFFIX)
    content = path.read_bytes()
    path.write_bytes(content[:-1] + b"\xff")
    log = open_log(disk, str(tmp_path), CONFIG, **options)
    assert log.recovery_start == start
    log.close(clean=True)
    assert len(decode_snapshot(path.read_bytes())) == len(decode_snapshot(content))


@pytest.mark.parametrize("shift", [-1, 1, 1_000])
async def test_start_at_which_no_batch_ends_is_not_used(disk: OsDisk, tmp_path: Path, shift: int) -> None:
    log = open_log(disk, str(tmp_path), CONFIG)
    fill(log, 0)
    append(log, batch(3))
    await log.flush_for_recovery()
    options = checkpointed(log)
    append(log, batch(3))
    expected = state(log)
    log.close(clean=False)
    wrong = log.log_end_offset - 3 + shift
    directory = tmp_path / "t-0"
    snapshot = directory / names.offset_file(log.log_end_offset - 3, names.SNAPSHOT_SUFFIX)
    snapshot.rename(directory / names.offset_file(wrong, names.SNAPSHOT_SUFFIX))
    log = open_log(disk, str(tmp_path), CONFIG, **options | {"recovery_start": wrong})
    assert state(log) == expected
    assert log.recovery_start is None


@pytest.mark.parametrize("rolled_at_start", [False, True])
async def test_sealed_segment_is_recovered_from_its_start(disk: OsDisk, tmp_path: Path, rolled_at_start: bool) -> None:
    """A recovery start at which the next segment begins is not used: the offset is in two segments."""
    log = open_log(disk, str(tmp_path), CONFIG)
    fill(log, 0)
    await log.flush_for_recovery()
    start = log.log_end_offset
    if not rolled_at_start:
        append(log, batch(3))
    active = log.roll(NOW_MS).base_offset
    append(log, batch(3))
    for _ in range(2):
        log = killed(log, disk, tmp_path, checkpointed(log))
        assert log.recovery_start == (None if rolled_at_start else start)
        assert log.recovery_point < active, "the index files of the sealed segment may not be durable"
    await log.flush(active)
    assert (log.recovery_point, log.recovery_start) == (active, None)


async def test_durable_entries_of_aborted_transactions_are_never_written_again(
    disk: OsDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power failure could lose them, and recovery from the start would not find them again."""
    log = open_log(disk, str(tmp_path), CONFIG)
    fill(log, 0)
    await log.flush_for_recovery()
    path = tmp_path / "t-0" / names.offset_file(0, names.TXN_INDEX_SUFFIX)
    durable = path.read_bytes()
    assert len(durable) == TXN_ENTRY_BYTES
    append(log, produced(9, 1, transactional=True))
    append(log, marker(9, commit=False))
    options = checkpointed(log)
    log.close(clean=False)
    sizes: list[int] = []
    truncate = OsFile.truncate

    def noting(file: OsFile, size: int) -> None:
        if size < file.size:
            sizes.append(size)
        truncate(file, size)

    monkeypatch.setattr(OsFile, "truncate", noting)
    log = open_log(disk, str(tmp_path), CONFIG, **options)
    assert len(path.read_bytes()) == 2 * TXN_ENTRY_BYTES
    assert path.read_bytes().startswith(durable)
    assert sizes == [TXN_ENTRY_BYTES]


@pytest.mark.parametrize("more", [False, True])
async def test_start_that_is_not_used_is_removed_before_the_files_are_rebuilt(
    disk: OsDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: bool
) -> None:
    """Otherwise a second power failure could lose rebuilt index entries, and a start would not derive them again."""
    log = open_log(disk, str(tmp_path), CONFIG)
    fill(log, 0)
    await log.flush_for_recovery()
    options = checkpointed(log)
    start = log.log_end_offset
    if more:
        append(log, batch(3))
    log.close(clean=False)
    directory = tmp_path / "t-0"
    (directory / names.offset_file(0, names.OFFSET_INDEX_SUFFIX)).unlink()
    snapshot = directory / names.offset_file(start, names.SNAPSHOT_SUFFIX)
    events: list[tuple[str, bool]] = []
    sync, reset = disk.sync_directory_now, Segment.reset_indexes

    def noting_sync(path: str) -> None:
        events.append(("sync", snapshot.exists()))
        sync(path)

    def noting_reset(segment: Segment) -> None:
        events.append(("reset", snapshot.exists()))
        reset(segment)

    monkeypatch.setattr(disk, "sync_directory_now", noting_sync)
    monkeypatch.setattr(Segment, "reset_indexes", noting_reset)
    open_log(disk, str(tmp_path), CONFIG, **options)
    assert events[:2] == [("sync", False), ("reset", False)]
    assert not snapshot.exists()


async def test_start_above_the_high_watermark_uses_an_older_snapshot(disk: OsDisk, tmp_path: Path) -> None:
    """A transaction that ended above the high watermark is still unstable. The snapshot at the start lacks it."""
    log = open_log(disk, str(tmp_path), CONFIG)
    for sequence in range(5):
        append(log, produced(7, sequence, size=BIG))
    await log.flush_for_recovery()
    opened_at = append(log, produced(8, 0, transactional=True), commit=False).first_offset
    append(log, marker(8, commit=True), commit=False)
    await log.flush_for_recovery()
    assert log.last_stable_offset == log.high_watermark == opened_at
    log = killed(log, disk, tmp_path, checkpointed(log))
    assert log.recovery_start == log.log_end_offset
    assert log.first_unstable_offset == log.last_stable_offset == opened_at


async def test_truncation_below_the_start_removes_it(disk: OsDisk, tmp_path: Path) -> None:
    log = open_log(disk, str(tmp_path), CONFIG)
    fill(log, 0)
    await log.flush_for_recovery()
    log.truncate_to(log.log_end_offset - 1, now_ms=NOW_MS, monotonic_ms=NOW_MS)
    assert log.recovery_start is None
    assert log.bytes_to_recover == log.segments.active.size


async def test_log_that_is_truncated_during_the_flush_gets_no_start(disk: OsDisk, tmp_path: Path) -> None:
    log = open_log(disk, str(tmp_path), CONFIG)
    fill(log, 0)
    flush = asyncio.ensure_future(log.flush_for_recovery())
    await asyncio.sleep(0)
    log.truncate_to(log.log_end_offset - 1, now_ms=NOW_MS, monotonic_ms=NOW_MS)
    await flush
    assert log.recovery_start is None


async def test_log_that_is_rolled_during_the_flush_gets_no_start(disk: OsDisk, tmp_path: Path) -> None:
    log = open_log(disk, str(tmp_path), CONFIG)
    fill(log, 0)
    end = log.log_end_offset
    flush = asyncio.ensure_future(log.flush_for_recovery())
    await asyncio.sleep(0)
    log.roll(NOW_MS)
    append(log, batch(3))
    await flush
    assert (log.flushed_offset, log.recovery_start) == (end, None)


async def test_log_has_its_start_after_a_clean_stop(disk: OsDisk, tmp_path: Path) -> None:
    log = open_log(disk, str(tmp_path), CONFIG)
    fill(log, 0)
    log.close(clean=True)
    end = log.log_end_offset
    log = open_log(disk, str(tmp_path), CONFIG, clean=True, recovery_point=end, high_watermark=end)
    assert (log.recovery_start, log.bytes_to_recover) == (end, 0)


async def test_log_that_has_failed_gets_no_start(disk: OsDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An abort marker can be in the log without its entry in `.txnindex`. Only a recovery of the segment adds it."""
    log = open_log(disk, str(tmp_path), CONFIG)
    fill(log, 0)
    append(log, produced(20, 0, transactional=True))
    running = asyncio.ensure_future(log.flush())
    await asyncio.sleep(0)
    waiting = asyncio.ensure_future(log.flush_for_recovery())
    await asyncio.sleep(0)
    write, failing_file = OsFile.write, log.segments.active._txn_file

    def failing(file: OsFile, offset: int, *buffers: Buffer) -> None:
        if file is failing_file:
            raise OSError(errno.EIO, "injected")
        write(file, offset, *buffers)

    monkeypatch.setattr(OsFile, "write", failing)
    with pytest.raises(OSError, match="injected"):
        append(log, marker(20, commit=False))
    await running
    await waiting
    assert (log.failed, log.recovery_start) == (True, None)


async def test_snapshot_at_the_high_watermark_is_kept(
    disk: OsDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recovery then reads the batches from there on, however often the log is flushed above it."""
    log = open_log(disk, str(tmp_path), CONFIG)
    for sequence in range(30):
        append(log, produced(7, sequence, size=BIG), commit=sequence < 10)
        if sequence % 5 == 4:
            await log.flush_for_recovery()
    assert log.high_watermark == 10
    options = checkpointed(log)
    log.close(clean=False)
    replayed: list[int] = []
    add = BatchApplier.add

    def noting(applier: BatchApplier, header: BatchHeader, marker: EndMarker | None) -> None:
        replayed.append(header.base_offset)
        add(applier, header, marker)

    monkeypatch.setattr(BatchApplier, "add", noting)
    log = open_log(disk, str(tmp_path), CONFIG, **options)
    assert replayed == list(range(10, 30))
    assert log.recovery_start == 30


async def test_retention_of_the_segment_removes_the_start(disk: OsDisk, tmp_path: Path) -> None:
    log = open_log(disk, str(tmp_path), CONFIG)
    fill(log, 0)
    await log.flush_for_recovery()
    log.update_config(LogConfig(retention_bytes=0))
    append(log, marker(10, commit=True))
    assert log.delete_expired_segments(NOW_MS) == 1
    assert (log.recovery_start, log.bytes_to_recover) == (None, 0)


async def test_epochs_are_derived_from_all_batches_if_their_file_is_missing(disk: OsDisk, tmp_path: Path) -> None:
    log = open_log(disk, str(tmp_path), CONFIG)
    for round_number in range(2):
        fill(log, round_number)
        await log.flush_for_recovery()
    append(log, batch(3), leader_epoch=4)
    (tmp_path / "t-0" / checkpoint.LEADER_EPOCHS).unlink()
    log = killed(log, disk, tmp_path, checkpointed(log))
    assert [epoch for epoch, _ in log.epochs.entries()] == [0, 1, 4]


async def test_checkpointed_start_stays_usable_after_the_next_flush(disk: OsDisk, tmp_path: Path) -> None:
    """A crash can follow before the new recovery start is in its file."""
    log = open_log(disk, str(tmp_path), CONFIG)
    fill(log, 0)
    await log.flush_for_recovery()
    options = checkpointed(log)
    append(log, batch(3))
    log.roll(NOW_MS)
    fill(log, 1)
    await log.flush_for_recovery()
    log = killed(log, disk, tmp_path, options)
    assert log.segments.first.base_offset < (log.recovery_start or 0) < log.segments.active.base_offset
