"""Last bytes of a log in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from odradek.storage.log.reads import ColdRead, ReadResult
from odradek.storage.segment.segment import RECENT_BYTES_MAX
from tests.support.faulty_disk import FaultyDisk
from tests.support.logs import NOW_MS, append, batch, headers, open_log

if TYPE_CHECKING:
    from pathlib import Path


def test_recent_bytes_are_read_without_the_file(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = open_log(disk, str(tmp_path))
    count = 2 * RECENT_BYTES_MAX // 100
    for _ in range(count):
        append(log, batch(1, size=40))
    segment = log.segments.active
    assert len(segment.recent_bytes) <= RECENT_BYTES_MAX
    from_memory = {}
    disk.cold = True
    for offset in range(count):
        read_result = log.read(offset, max_bytes=100_000)
        if isinstance(read_result, ReadResult):
            from_memory[offset] = read_result
            assert isinstance(log.read(offset, max_bytes=len(read_result.records) - 1), ColdRead)
            assert isinstance(log.read(offset, max_bytes=100_000, limit=count - 1), ColdRead) or offset == count - 1
    disk.cold = False
    segment.drop_recent()
    assert count - 1 in from_memory
    assert 0 not in from_memory
    assert all(log.read(offset, max_bytes=100_000) == read_result for offset, read_result in from_memory.items())
    append(log, batch(1, size=RECENT_BYTES_MAX))
    assert not segment.recent_bytes
    append(log, batch(1))
    log.truncate_to(count + 1, now_ms=NOW_MS, monotonic_ms=NOW_MS)
    assert not segment.recent_bytes
    disk.close()


def test_failed_write_leaves_no_recent_bytes(tmp_path: Path) -> None:
    """A reader must not receive bytes that a later sync could not make durable."""
    disk = FaultyDisk()
    log = open_log(disk, str(tmp_path))
    append(log, batch(1))
    before = log.segments.active.recent_bytes
    disk.refuse("write", ".log")
    with pytest.raises(OSError, match="refused"):
        append(log, batch(1))
    assert log.segments.active.recent_bytes == before
    assert len(headers(log)) == 1
    disk.close()


def test_only_the_active_segment_has_recent_bytes(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = open_log(disk, str(tmp_path))
    append(log, batch(1))
    sealed = log.segments.active
    log.roll(NOW_MS)
    append(log, batch(1))
    last = log.segments.active
    assert (bool(sealed.recent_bytes), bool(last.recent_bytes)) == (False, True)
    log.close(clean=False)
    assert not last.recent_bytes
    with pytest.raises(OSError, match="closed"):
        log.read(1, max_bytes=100)
    disk.close()
