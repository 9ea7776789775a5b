"""When a stop leaves `leader-epoch-checkpoint`, and what the next start makes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from odradek.storage.config import LogConfig
from odradek.storage.disk.os_disk import OsDisk
from odradek.storage.files import checkpoint
from odradek.storage.segment.segment import UNINDEXED_BYTES_MAX
from tests.support.logs import append, batch, open_log

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from odradek.storage.log.log import PartitionLog

Entries = list[tuple[int, int]]


@pytest.fixture
def disk() -> Iterator[OsDisk]:
    disk = OsDisk()
    yield disk
    disk.close()


def in_file(disk: OsDisk, tmp_path: Path) -> Entries | None:
    """Return the entries of the file; None if it is missing."""
    path = f"{tmp_path}/t-0/{checkpoint.LEADER_EPOCHS}"
    return checkpoint.decode_leader_epochs(disk.read_file(path)) if disk.exists(path) else None


def restarted(log: PartitionLog, disk: OsDisk, tmp_path: Path) -> PartitionLog:
    """Stop the log cleanly, and open it again."""
    end = log.log_end_offset
    log.close(clean=True)
    return open_log(disk, str(tmp_path), clean=True, recovery_point=end)


def test_small_log_of_one_epoch_needs_no_file(disk: OsDisk, tmp_path: Path) -> None:
    log = open_log(disk, str(tmp_path))
    append(log, batch(3), leader_epoch=4)
    for _ in range(2):
        log = restarted(log, disk, tmp_path)
        assert in_file(disk, tmp_path) is None
        assert log.epochs.entries() == [(4, 0)]
        assert log.closes_without_writes


def test_second_epoch_is_written_with_the_first(disk: OsDisk, tmp_path: Path) -> None:
    log = open_log(disk, str(tmp_path))
    append(log, batch(3), leader_epoch=4)
    log = restarted(log, disk, tmp_path)
    append(log, batch(2), leader_epoch=7)
    log = restarted(log, disk, tmp_path)
    assert in_file(disk, tmp_path) == log.epochs.entries() == [(4, 0), (7, 3)]
    assert log.closes_without_writes


def test_epoch_without_records_needs_no_file(disk: OsDisk, tmp_path: Path) -> None:
    """The epoch may be lost: the next leader of the partition gets a higher one."""
    log = open_log(disk, str(tmp_path))
    append(log, batch(3), leader_epoch=4)
    log.assign_epoch(5)
    log = restarted(log, disk, tmp_path)
    assert in_file(disk, tmp_path) is None
    assert log.epochs.entries() == [(4, 0)]


def test_log_that_a_start_does_not_read_gets_the_file(disk: OsDisk, tmp_path: Path) -> None:
    log = open_log(disk, str(tmp_path))
    append(log, batch(3), leader_epoch=4)
    log = restarted(log, disk, tmp_path)
    append(log, batch(1, size=UNINDEXED_BYTES_MAX), leader_epoch=4)
    log = restarted(log, disk, tmp_path)
    assert in_file(disk, tmp_path) == log.epochs.entries() == [(4, 0)]


async def test_flush_of_a_sealed_segment_writes_the_file(disk: OsDisk, tmp_path: Path) -> None:
    log = open_log(disk, str(tmp_path), LogConfig(segment_bytes=1_000))
    append(log, batch(3), leader_epoch=4)
    log = restarted(log, disk, tmp_path)
    log.update_config(LogConfig(segment_bytes=1_000))
    while len(log.segments) < 2:
        append(log, batch(3), leader_epoch=4)
    await log.flush()
    assert in_file(disk, tmp_path) == [(4, 0)]
    log.close(clean=False)


def test_file_of_truncated_epochs_is_replaced(disk: OsDisk, tmp_path: Path) -> None:
    log = open_log(disk, str(tmp_path))
    append(log, batch(3), leader_epoch=4)
    append(log, batch(3), leader_epoch=7)
    log = restarted(log, disk, tmp_path)
    assert in_file(disk, tmp_path) == [(4, 0), (7, 3)]
    log.truncate_fully_and_start_at(0, now_ms=0)
    append(log, batch(3), leader_epoch=9)
    log = restarted(log, disk, tmp_path)
    assert in_file(disk, tmp_path) == log.epochs.entries() == [(9, 0)]
