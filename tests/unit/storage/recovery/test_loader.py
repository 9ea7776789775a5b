"""Index files after a clean shutdown: they are trusted unless they do not fit the log file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from odradek.protocol.batch import build_batch
from odradek.storage.config import LogConfig
from odradek.storage.disk.os_disk import OsDisk
from odradek.storage.files import checkpoint
from odradek.storage.producers.entry import ProducerEntry
from odradek.storage.producers.snapshot import decode_snapshot, encode_snapshot
from tests.support.cleaning import clean
from tests.support.logs import NOW_MS, append, batch, headers, open_log, produced

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = LogConfig(index_interval_bytes=100)
SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=100)
LAST_FILES = [checkpoint.PARTITION_METADATA]
"""Files that a stop leaves beside the segment of a small log."""


def raise_last_offset(tmp_path: Path, suffix: str, offset_at: int) -> None:
    """Add 256 to the relative offset of the last entry of an index file of the first segment."""
    path = tmp_path / "t-0" / f"{0:020}.{suffix}"
    data = bytearray(path.read_bytes())
    data[len(data) + offset_at + 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(("suffix", "offset_at"), [("index", -8), ("timeindex", -4)])
def test_segment_with_an_index_entry_after_the_log_end_is_recovered(
    tmp_path: Path, suffix: str, offset_at: int
) -> None:
    disk = OsDisk()
    log = open_log(disk, str(tmp_path), CONFIG)
    for _ in range(10):
        append(log, batch())
    log.close(clean=True)
    raise_last_offset(tmp_path, suffix, offset_at)
    log = open_log(disk, str(tmp_path), CONFIG, clean=True)
    for number in range(10):
        append(log, batch(timestamp=NOW_MS + 1_000 + number))
    assert [header.base_offset for header in headers(log)] == list(range(20))
    disk.close()


@pytest.mark.parametrize(("suffix", "offset_at"), [("index", -8), ("timeindex", -4)])
async def test_sealed_segment_with_an_index_entry_in_the_next_segment_is_recovered(
    tmp_path: Path, suffix: str, offset_at: int
) -> None:
    """Otherwise the compaction of the next segment would fail at each attempt."""
    disk = OsDisk()
    config = LogConfig(segment_bytes=600, index_interval_bytes=100, cleanup_policy=("compact",))
    log = open_log(disk, str(tmp_path), config)
    for number in range(30):
        key = b"unique %d" % number if number < 10 else b"same"
        append(log, build_batch([(key, b"value", NOW_MS + number, ())]))
    second_base_offset = log.segments.at(1).base_offset
    assert second_base_offset < 10 < log.segments.active.base_offset
    log.close(clean=True)
    raise_last_offset(tmp_path, suffix, offset_at)
    log = open_log(disk, str(tmp_path), config, clean=True, high_watermark=30)
    first_segment = log.segments.first
    assert [header.base_offset for header in headers(log)] == list(range(30))
    await clean(log)
    assert [header.base_offset for header in headers(log)][:10] == list(range(10))
    assert log.segments.first is first_segment
    assert first_segment.offset_index is not None
    assert first_segment.time_index is not None
    assert first_segment.offset_index.last_offset < second_base_offset
    assert first_segment.time_index.last_offset < second_base_offset
    log.close(clean=True)
    disk.close()


def test_repeated_recovery_changes_no_file(tmp_path: Path) -> None:
    """Files with the right content are neither removed nor truncated: both cost milliseconds on some file systems."""
    disk = OsDisk()
    log = open_log(disk, str(tmp_path), SMALL)
    for sequence in range(7):
        append(log, produced(7, sequence, size=200))
    log.close(clean=True)
    before = {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in (tmp_path / "t-0").iterdir()}
    log = open_log(disk, str(tmp_path), SMALL)
    log.close(clean=False)
    after = {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in (tmp_path / "t-0").iterdir()}
    assert after == before
    disk.close()


def test_snapshot_with_other_content_is_replaced_by_recovery(tmp_path: Path) -> None:
    disk = OsDisk()
    log = open_log(disk, str(tmp_path))
    append(log, produced(7, 0))
    log.close(clean=True)
    other = log.local.snapshots.path(1)
    disk.replace_file_now(other, encode_snapshot([ProducerEntry(8)]))
    disk.replace_file_now(log.local.snapshots.path(5), encode_snapshot([ProducerEntry(9)]))
    log = open_log(disk, str(tmp_path))
    assert list(log.producers.entries) == [7]
    assert [entry.producer_id for entry in decode_snapshot(disk.read_file(other))] == [7]
    assert log.local.snapshots.offsets == [1]
    assert not disk.exists(log.local.snapshots.path(5))
    disk.close()


@pytest.mark.parametrize("clean", [False, True])
def test_small_log_needs_no_index_files_after_a_stop(tmp_path: Path, clean: bool) -> None:
    disk = OsDisk()
    log = open_log(disk, str(tmp_path))
    append(log, batch(1, timestamp=NOW_MS + 5))
    append(log, batch(1, timestamp=NOW_MS))
    log.close(clean=clean)
    log = open_log(disk, str(tmp_path), clean=clean, recovery_point=2 if clean else 0)
    assert sorted(disk.list(f"{tmp_path}/t-0")) == [f"{0:020d}.log", *LAST_FILES]
    assert (log.log_end_offset, log.segments.active.largest_timestamp) == (2, NOW_MS + 5)
    assert log.local.is_complete(2) == clean
    disk.close()


def test_small_log_that_lost_whole_batches_after_a_clean_stop_is_detected(tmp_path: Path) -> None:
    """The recovery point shows the loss, because there is no index that does not fit the log."""
    disk = OsDisk()
    log = open_log(disk, str(tmp_path))
    append(log, batch(1))
    size = log.segments.active.size
    append(log, batch(1))
    log.close(clean=True)
    losses: list[str] = []
    (tmp_path / "t-0" / f"{0:020d}.log").write_bytes((tmp_path / "t-0" / f"{0:020d}.log").read_bytes()[:size])
    log = open_log(disk, str(tmp_path), clean=True, recovery_point=2, on_loss=losses.append)
    assert log.log_end_offset == 1
    assert len(losses) == 1
    disk.close()
