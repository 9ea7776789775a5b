"""Replay of producer state from a log with damaged bytes below the recovery point."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.storage.disk.os_disk import OsDisk
from tests.support.logs import NOW_MS, append, batch, headers, open_log, produced

if TYPE_CHECKING:
    from pathlib import Path


def test_batch_whose_base_offset_is_damaged_is_not_replayed(tmp_path: Path) -> None:
    disk = OsDisk()
    log = open_log(disk, str(tmp_path))
    for producer_id in (1, 2, 3):
        append(log, produced(producer_id, 0, transactional=True))
    first, second, _ = headers(log)
    log.roll(NOW_MS)
    append(log, batch())
    log.close(clean=False)
    path = tmp_path / "t-0" / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    position = first.size
    assert data[position : position + 8] == second.base_offset.to_bytes(8, "big")
    data[position : position + 8] = bytes(8)  # the offset of the first batch; the checksum does not cover it
    path.write_bytes(data)
    log = open_log(disk, str(tmp_path), recovery_point=3)
    assert set(log.producers.entries) == {1, 3}
    assert log.producers.first_unstable_offset == 0
    disk.close()
