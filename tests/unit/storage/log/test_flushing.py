"""Flushes of a log: the recovery point, and the batches that survive a power failure."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import pytest

from odradek.storage.config import LogConfig
from odradek.storage.disk.os_disk import OsDisk
from odradek.storage.log.reads import ColdRead
from tests.support.faulty_disk import FaultyDisk
from tests.support.logs import NOW_MS, append, batch, headers, marker, open_log, produced

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=100)


@pytest.fixture
def disk() -> Iterator[FaultyDisk]:
    disk = FaultyDisk()
    yield disk
    disk.close()


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path)


async def test_concurrent_flushes_share_one_sync(disk: FaultyDisk, root: str) -> None:
    log = open_log(disk, root)
    append(log, batch(1))
    await log.flush()
    await log.flush()
    assert log.flushed_offset == 1
    append(log, batch(1))
    first = asyncio.ensure_future(log.flush())
    await asyncio.sleep(0)
    append(log, batch(1))
    await asyncio.gather(first, log.flush(), log.flush(2))
    assert (log.flushed_offset, log.recovery_point) == (3, 2)


async def test_failed_flush_marks_the_log_as_failed(disk: FaultyDisk, root: str) -> None:
    log = open_log(disk, root)
    append(log, batch(1))
    disk.refuse("sync", ".log")
    with pytest.raises(OSError, match="refused"):
        await log.flush()
    assert log.failed
    assert log.flushed_offset == 0


async def test_recovery_point_stays_before_a_sealed_segment_with_unsynced_indexes(disk: FaultyDisk, root: str) -> None:
    """The active segment is sealed during a flush of all its batches: its index files are not durable yet."""
    log = open_log(disk, root, SMALL)
    append(log, batch(1, size=600))
    flush = asyncio.ensure_future(log.flush())
    await asyncio.sleep(0)
    log.roll(NOW_MS)
    assert (log.recovery_point, log.sealed_unflushed) == (0, True)
    await flush
    assert f"{0:020d}.index" in [path.rpartition("/")[2] for path in disk.synced]
    assert (log.flushed_offset, log.recovery_point, log.sealed_unflushed) == (1, 1, False)


async def test_recovery_checks_a_segment_that_was_sealed_after_the_last_checkpoint(disk: FaultyDisk, root: str) -> None:
    """All batches of the active segment are flushed, then it is sealed: the power fails before its indexes are durable.

    The only entry of its transaction index is lost. Without recovery of the segment, readers would get the records of
    the aborted transaction.
    """
    log = open_log(disk, root, SMALL)
    append(log, produced(7, 0, size=200, transactional=True))
    append(log, marker(7, commit=False))
    await log.flush()
    checkpointed = log.recovery_point
    log.roll(NOW_MS)
    log.close(clean=False)
    os.truncate(f"{log.directory}/{0:020d}.txnindex", 0)
    survivor = open_log(disk, root, SMALL, recovery_point=checkpointed, high_watermark=2)
    assert survivor.log_end_offset == survivor.last_stable_offset == 2
    result = survivor.read(0, max_bytes=10_000)
    assert not isinstance(result, ColdRead)
    assert survivor.aborted_transactions(0, result) == [(7, 0)]


async def test_only_flushed_batches_survive_a_kill_with_a_write_back_file(root: str) -> None:
    """A second disk object reads the files in their state after kill -9: only the flushed batches."""
    holding = OsDisk(hold_unsynced=True)
    log = open_log(holding, root, SMALL)
    for sequence in range(7):
        append(log, produced(7, sequence, size=200, transactional=True))
    await log.flush()
    for sequence in range(7, 12):
        append(log, produced(7, sequence, size=200, transactional=True))
    append(log, marker(7, commit=True))
    assert len(headers(log)) == 13
    assert log.last_stable_offset == 13
    survivor = open_log(OsDisk(), root, SMALL, recovery_point=log.recovery_point, high_watermark=7)
    assert (survivor.log_end_offset, survivor.last_stable_offset, survivor.high_watermark) == (7, 0, 7)
    assert survivor.producers.active()[0].last_sequence == 6
    assert survivor.epochs.entries() == [(0, 0)]
    holding.close()


async def test_truncation_during_a_flush_bounds_the_flushed_offset(disk: FaultyDisk, root: str) -> None:
    log = open_log(disk, root, SMALL)
    for _ in range(4):
        append(log, batch(1, size=600), commit=False)
    flush = asyncio.ensure_future(log.flush())
    await asyncio.sleep(0)
    log.truncate_to(1, now_ms=NOW_MS, monotonic_ms=NOW_MS)
    append(log, batch(3, size=100), commit=False)
    await flush
    assert log.flushed_offset <= 1
    await log.flush()
    assert log.flushed_offset == log.log_end_offset


async def test_close_during_a_flush_ends_the_flush(disk: FaultyDisk, root: str) -> None:
    log = open_log(disk, root, SMALL)
    for _ in range(4):
        append(log, batch(1, size=600), commit=False)
    flush = asyncio.ensure_future(log.flush())
    await asyncio.sleep(0)
    log.close(clean=False)
    await flush
    assert log.flushed_offset == 0
