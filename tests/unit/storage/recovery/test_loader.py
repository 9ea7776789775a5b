"""Index files after a clean shutdown: they are trusted unless they do not fit the log file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from odradek.storage.config import LogConfig
from odradek.storage.disk.os_disk import OsDisk
from tests.support.logs import NOW_MS, append, batch, headers, open_log

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = LogConfig(index_interval_bytes=100)


@pytest.mark.parametrize(("suffix", "offset_at"), [("index", -8), ("timeindex", -4)])
def test_segment_with_an_index_entry_after_the_log_end_is_recovered(
    tmp_path: Path, suffix: str, offset_at: int
) -> None:
    disk = OsDisk()
    log = open_log(disk, str(tmp_path), CONFIG)
    for _ in range(10):
        append(log, batch())
    log.close(clean=True)
    path = tmp_path / "t-0" / f"{0:020}.{suffix}"
    data = bytearray(path.read_bytes())
    data[len(data) + offset_at + 2] ^= 1  # adds 256 to the relative offset of the last entry
    path.write_bytes(data)
    log = open_log(disk, str(tmp_path), CONFIG, clean=True)
    for number in range(10):
        append(log, batch(timestamp=NOW_MS + 1_000 + number))
    assert [header.base_offset for header in headers(log)] == list(range(20))
    disk.close()
