"""The last bytes of a log are in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.log import ColdRead, ReadResult
from storage.segment import TAIL_BYTES_MAX
from tests.support.faulty_disk import FaultyDisk
from tests.support.logs import NOW_MS, append, batch, open_log

if TYPE_CHECKING:
    from pathlib import Path


def test_what_was_appended_last_is_read_without_the_file(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = open_log(disk, str(tmp_path))
    count = 2 * TAIL_BYTES_MAX // 100
    for _ in range(count):
        append(log, batch(1, size=40))
    segment = log.segments.active
    assert len(segment.tail) <= TAIL_BYTES_MAX
    from_memory = {}
    disk.cold = True
    for offset in range(count):
        found = log.read(offset, max_bytes=100_000)
        if isinstance(found, ReadResult):
            from_memory[offset] = found
            assert isinstance(log.read(offset, max_bytes=len(found.records) - 1), ColdRead)
            assert isinstance(log.read(offset, max_bytes=100_000, limit=count - 1), ColdRead) or offset == count - 1
    disk.cold = False
    segment.forget_recent()
    assert count - 1 in from_memory
    assert 0 not in from_memory
    assert all(log.read(offset, max_bytes=100_000) == found for offset, found in from_memory.items())
    append(log, batch(1, size=TAIL_BYTES_MAX))
    assert not segment.tail
    append(log, batch(1))
    log.truncate_to(count + 1, now_ms=NOW_MS)
    assert not segment.tail
    disk.close()
