"""Index files after a clean shutdown: they are trusted unless they do not fit the log file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from odradek.protocol.batch import build_batch
from odradek.storage.config import LogConfig
from odradek.storage.disk.os_disk import OsDisk
from tests.support.cleaning import clean
from tests.support.logs import NOW_MS, append, batch, headers, open_log

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = LogConfig(index_interval_bytes=100)


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
