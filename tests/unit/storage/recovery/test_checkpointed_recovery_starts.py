"""Recovery starts of all logs of a data directory: when they are written to the checkpoint, and when removed."""

from __future__ import annotations

import asyncio
import errno
import random
from typing import TYPE_CHECKING

import pytest

from odradek.protocol.internal_topics import CLUSTER_METADATA
from odradek.storage.config import LogConfig
from odradek.storage.data_directory.log_manager import BYTES_TO_RECOVER_MAX, LogManager
from odradek.storage.disk.os_disk import OsDisk
from odradek.storage.files import checkpoint, names
from odradek.storage.producers.snapshot import SnapshotFiles
from tests.support.logs import NOW_MS, TOPIC_ID, append, batch, headers, load_all
from tests.support.recovery_starts import BIG, CONFIG, fill

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from odradek.storage.log.log import PartitionLog
    from odradek.storage.producers.entry import ProducerEntry


def opened(disk: OsDisk, tmp_path: Path) -> LogManager:
    manager = LogManager(disk, str(tmp_path), CONFIG)
    manager.directory.claim(node_id=1, rng=random.Random(1))
    load_all(manager, NOW_MS)
    return manager


async def with_start(disk: OsDisk, tmp_path: Path) -> tuple[LogManager, PartitionLog]:
    """Return a manager and its log, which has a recovery start that no checkpoint has yet."""
    manager = opened(disk, tmp_path)
    log = manager.create("t", 0, TOPIC_ID, CONFIG, NOW_MS)
    fill(log, 0)
    await log.flush_for_recovery()
    return manager, log


def starts(tmp_path: Path) -> dict[tuple[str, int], int]:
    return checkpoint.decode_offsets((tmp_path / checkpoint.RECOVERY_STARTS).read_bytes())


async def test_manager_moves_the_recovery_start_of_long_logs_only(disk: OsDisk, tmp_path: Path) -> None:
    manager = opened(disk, tmp_path)
    logs = [manager.create("t", partition, TOPIC_ID, CONFIG, NOW_MS) for partition in range(2)]
    config = LogConfig(max_message_bytes=2 * BYTES_TO_RECOVER_MAX)
    logs[0].update_config(config)
    append(logs[0], batch(1, size=BYTES_TO_RECOVER_MAX))
    append(logs[1], batch(1, size=BIG))
    assert await manager.move_recovery_starts() == [(logs[0], None)]
    await manager.checkpoint_recovery_points()
    assert [log.flushed_offset for log in logs] == [1, 0]
    assert starts(tmp_path) == {("t", 0): 1}
    assert await manager.move_recovery_starts() == []
    manager.close(clean=False)


async def test_start_that_recovery_has_not_used_is_removed_from_the_file(disk: OsDisk, tmp_path: Path) -> None:
    """The index files that recovery has rebuilt are not durable."""
    manager, log = await with_start(disk, tmp_path)
    await manager.checkpoint_recovery_points()
    await manager.checkpoint_high_watermarks()
    start = log.log_end_offset
    assert starts(tmp_path) == {("t", 0): start}
    manager.close(clean=False)
    for damaged in (False, True):
        if damaged:
            (tmp_path / "t-0" / names.offset_file(0, names.OFFSET_INDEX_SUFFIX)).unlink()
        manager = opened(disk, tmp_path)
        assert starts(tmp_path) == ({} if damaged else {("t", 0): start})
        found = manager.get("t", 0)
        assert found is not None
        assert len(headers(found)) == start
        manager.close(clean=False)


async def test_start_is_lowered_on_disk_before_a_truncation(
    disk: OsDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if a flush raises it again during the write of the checkpoints."""
    manager, log = await with_start(disk, tmp_path)
    await manager.checkpoint_recovery_points()
    replace_file = OsDisk.replace_file
    flushes = [log.flush_for_recovery]

    async def with_flush(self: OsDisk, path: str, data: bytes) -> None:
        await replace_file(self, path, data)
        if flushes and path.endswith(checkpoint.RECOVERY_POINTS):
            await flushes.pop()()
            assert log.recovery_start == log.log_end_offset

    monkeypatch.setattr(OsDisk, "replace_file", with_flush)
    await manager.lower_recovery_point("t", 0, 4)
    assert not flushes
    assert starts(tmp_path) == {}
    points = checkpoint.decode_offsets((tmp_path / checkpoint.RECOVERY_POINTS).read_bytes())
    assert points["t", 0] <= 4
    assert log.truncate_to(4, now_ms=NOW_MS, monotonic_ms=NOW_MS)
    manager.close(clean=False)


async def test_metadata_log_has_no_start(disk: OsDisk, tmp_path: Path) -> None:
    """Raft refuses a metadata log with damaged records, so all of it is checked."""
    manager = opened(disk, tmp_path)
    log = manager.create(CLUSTER_METADATA, 0, TOPIC_ID, CONFIG, NOW_MS)
    fill(log, 0)
    manager.close(clean=True)
    manager = opened(disk, tmp_path)
    assert manager.directory.clean_start
    assert starts(tmp_path) == {}
    manager.close(clean=False)


@pytest.mark.parametrize("below", [1, 7])
async def test_start_is_lowered_if_the_recovery_point_was_not_written(disk: OsDisk, tmp_path: Path, below: int) -> None:
    """The process was killed between the writes of the two checkpoints, so the log counts fewer records as flushed."""
    manager, log = await with_start(disk, tmp_path)
    await manager._checkpoints.recovery_starts.write()
    await manager.checkpoint_high_watermarks()
    start = log.log_end_offset
    manager.close(clean=False)
    manager = opened(disk, tmp_path)
    found = manager.get("t", 0)
    assert found is not None
    assert found.recovery_start == start
    await manager.lower_recovery_point("t", 0, start - below)
    assert starts(tmp_path) == {}
    manager.close(clean=False)


async def test_flush_during_the_write_of_the_cleaner_offset_is_lowered_again(
    disk: OsDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = opened(disk, tmp_path)
    log = manager.create("t", 0, TOPIC_ID, CONFIG, NOW_MS)
    fill(log, 0)
    log.note_cleaned(6)
    await log.flush_for_recovery()
    replace_file = OsDisk.replace_file
    flushes = [log.flush_for_recovery]

    async def with_flush(self: OsDisk, path: str, data: bytes) -> None:
        await replace_file(self, path, data)
        if flushes and path.endswith(checkpoint.CLEANER_OFFSETS):
            await flushes.pop()()
            await manager.checkpoint_recovery_points()

    monkeypatch.setattr(OsDisk, "replace_file", with_flush)
    await manager.lower_recovery_point("t", 0, 4)
    assert not flushes
    assert starts(tmp_path) == {}
    points = checkpoint.decode_offsets((tmp_path / checkpoint.RECOVERY_POINTS).read_bytes())
    assert points["t", 0] <= 4
    manager.close(clean=False)


async def test_stop_during_the_load_removes_a_start_before_it_writes_the_snapshot_there(
    disk: OsDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a power failure during the stop could lose the rebuilt indexes, and keep the snapshot."""
    manager, log = await with_start(disk, tmp_path)
    await manager.checkpoint_recovery_points()
    start = log.log_end_offset
    manager.close(clean=False)
    (tmp_path / "t-0" / names.offset_file(0, names.OFFSET_INDEX_SUFFIX)).unlink()
    manager = LogManager(disk, str(tmp_path), CONFIG)
    manager.directory.claim(node_id=1, rng=random.Random(1))

    async def stopped(_ends: object) -> None:
        raise asyncio.CancelledError

    monkeypatch.setattr(manager._checkpoints, "cap", stopped)
    manager.scan(NOW_MS, NOW_MS)
    with pytest.raises(asyncio.CancelledError):
        await manager.load()
    assert starts(tmp_path) == {("t", 0): start}
    written: list[dict[tuple[str, int], int]] = []
    take = SnapshotFiles.take

    def noting(files: SnapshotFiles, entries: Iterable[ProducerEntry], offset: int) -> None:
        written.append(starts(tmp_path))
        take(files, entries, offset)

    monkeypatch.setattr(SnapshotFiles, "take", noting)
    manager.close(clean=True)
    assert written == [{}]


async def test_stop_that_cannot_write_the_recovery_starts_is_not_clean(
    disk: OsDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager, _log = await with_start(disk, tmp_path)
    replace_file_now = OsDisk.replace_file_now

    def failing(self: OsDisk, path: str, data: bytes) -> None:
        if path.endswith(checkpoint.RECOVERY_STARTS):
            raise OSError(errno.EIO, "injected")
        replace_file_now(self, path, data)

    monkeypatch.setattr(OsDisk, "replace_file_now", failing)
    manager.close(clean=True)
    manager = opened(disk, tmp_path)
    assert not manager.directory.clean_start
    manager.close(clean=False)
