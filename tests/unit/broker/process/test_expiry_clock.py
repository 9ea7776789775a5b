"""The clock of a node: what a jump of its wall clock by days deletes, before and after a restart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from odradek.broker.process.expiry_clock import ExpiryClock
from odradek.runtime.expiry_time import AHEAD_OF_MEDIAN_MS_MAX
from odradek.storage.config import LogConfig
from odradek.storage.disk.os_disk import OsDisk
from odradek.storage.files.names import EXPIRY_TIME
from tests.support.data_rig import NOW_MS, Clock
from tests.unit.broker.partition.test_background_jobs import Bench

if TYPE_CHECKING:
    from pathlib import Path

DAY_MS = 24 * 60 * 60 * 1_000
JUMP_MS = 8 * DAY_MS


class JumpingClock(Clock):
    """Clock whose wall time is `ahead_ms` ahead of its monotonic time."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead_ms = 0

    def wall_ms(self) -> int:
        return self.now_ms + self.ahead_ms


async def test_jump_by_eight_days_deletes_no_records_and_no_producers(tmp_path: Path) -> None:
    source = JumpingClock()
    clock = ExpiryClock(source)
    week = LogConfig(segment_bytes=200, retention_ms=7 * DAY_MS, producer_id_expiration_ms=DAY_MS)
    bench = Bench(tmp_path, week, clock=clock)
    for sequence in range(3):
        bench.append(producer_id=5, epoch=0, sequence=sequence)
    clock.received(2, NOW_MS)
    clock.received(3, NOW_MS)
    await bench.jobs.delete_expired()
    source.ahead_ms = JUMP_MS
    await bench.jobs.delete_expired()
    await bench.jobs.expire_producers()
    log = bench.rig.partition().log
    assert (log.log_start_offset, len(log.producers.active())) == (0, 1)
    source.now_ms += 7 * DAY_MS + 1
    await bench.jobs.delete_expired()
    assert log.log_start_offset == 3


def test_expiry_time_is_near_the_clocks_in_datagrams_of_other_nodes() -> None:
    source = JumpingClock()
    clock = ExpiryClock(source)
    source.ahead_ms = JUMP_MS
    for node_id in (2, 3):
        clock.received(node_id, NOW_MS)
    source.now_ms += DAY_MS
    assert clock.expiry_ms() == source.now_ms + AHEAD_OF_MEDIAN_MS_MAX
    assert clock.wall_ms() == source.now_ms + JUMP_MS


async def test_restarted_node_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    source, disk, directory = JumpingClock(), OsDisk(), str(tmp_path)
    await ExpiryClock(source).checkpoint(disk, directory)
    source.ahead_ms = JUMP_MS
    source.now_ms += DAY_MS  # the node is down
    clock = ExpiryClock(source)
    clock.restore(disk, directory)
    assert clock.expiry_ms() == NOW_MS
    source.now_ms += DAY_MS
    assert clock.expiry_ms() == NOW_MS + 2 * DAY_MS
    disk.close()


def test_checkpoint_that_the_disk_cannot_read_ends_the_start(tmp_path: Path) -> None:
    disk = OsDisk()
    (tmp_path / EXPIRY_TIME).mkdir()
    with pytest.raises(IsADirectoryError):
        ExpiryClock(JumpingClock()).restore(disk, str(tmp_path))
    disk.close()


def test_damaged_checkpoint_is_ignored(tmp_path: Path) -> None:
    source, disk = JumpingClock(), OsDisk()
    for content in (b"", b"[]", b'{"expiryMs": "x"}', b"\xff"):
        (tmp_path / EXPIRY_TIME).write_bytes(content)
        clock = ExpiryClock(source)
        with capture_logs() as logs:
            clock.restore(disk, str(tmp_path))
        assert [entry["event"] for entry in logs] == ["checkpoint of the expiry time ignored"]
        assert clock.expiry_ms() == NOW_MS
    disk.close()


def test_begin_and_end_of_a_large_difference_are_logged() -> None:
    source = JumpingClock()
    clock = ExpiryClock(source)
    with capture_logs() as logs:
        for ahead_ms in (0, JUMP_MS, JUMP_MS, 0, 0):
            source.ahead_ms = ahead_ms
            clock.expiry_ms()
    assert [(entry["event"], entry.get("lag_ms")) for entry in logs] == [
        ("expiry time behind wall clock", JUMP_MS),
        ("expiry time equals wall clock", None),
    ]
