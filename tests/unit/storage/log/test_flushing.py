"""What is durable, and what is left when the rest is lost."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from odradek.storage.config import LogConfig
from odradek.storage.disk.os_disk import OsDisk
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


async def test_concurrent_flushes_share_the_work(disk: FaultyDisk, root: str) -> None:
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
    assert log.flushed_offset == log.recovery_point == 3


async def test_a_flush_that_fails_fails_the_log(disk: FaultyDisk, root: str) -> None:
    log = open_log(disk, root)
    append(log, batch(1))
    disk.refuse("sync", ".log")
    with pytest.raises(OSError, match="refused"):
        await log.flush()
    assert log.failed
    assert log.flushed_offset == 0


async def test_the_recovery_point_waits_for_the_index_files_of_sealed_segments(disk: FaultyDisk, root: str) -> None:
    """A flush ends exactly where the active segment is sealed meanwhile: its index files are not durable yet."""
    log = open_log(disk, root, SMALL)
    append(log, batch(1, size=600))
    flush = asyncio.ensure_future(log.flush())
    await asyncio.sleep(0)
    log.roll(NOW_MS)
    assert (log.recovery_point, log.sealed_unflushed) == (0, True)
    await flush
    assert f"{0:020d}.index" in [path.rpartition("/")[2] for path in disk.synced]
    assert (log.flushed_offset, log.recovery_point, log.sealed_unflushed) == (1, 1, False)


async def test_held_bytes_make_a_kill_a_power_cut(root: str) -> None:
    """What another disk sees is what kill -9 leaves: flushed batches, and nothing of the others."""
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


async def test_a_log_that_is_cut_under_a_flush_counts_as_flushed_no_further_than_the_cut(
    disk: FaultyDisk, root: str
) -> None:
    log = open_log(disk, root, SMALL)
    for _ in range(4):
        append(log, batch(1, size=600), commit=False)
    flush = asyncio.ensure_future(log.flush())
    await asyncio.sleep(0)
    log.truncate_to(1, now_ms=NOW_MS)
    append(log, batch(3, size=100), commit=False)
    await flush
    assert log.flushed_offset <= 1
    await log.flush()
    assert log.flushed_offset == log.log_end_offset


async def test_a_log_that_is_closed_under_a_flush_ends_it(disk: FaultyDisk, root: str) -> None:
    log = open_log(disk, root, SMALL)
    for _ in range(4):
        append(log, batch(1, size=600), commit=False)
    flush = asyncio.ensure_future(log.flush())
    await asyncio.sleep(0)
    log.close(clean=False)
    await flush
    assert log.flushed_offset == 0
