"""Checkpoint entries of deleted logs: they never apply to a new log of the same name."""

from __future__ import annotations

import asyncio
import random
import shutil
import uuid
from typing import TYPE_CHECKING

import pytest

from odradek.storage.config import LogConfig
from odradek.storage.data_directory.loading import FLUSHED_TOPICS
from odradek.storage.data_directory.log_manager import LogManager, StaleCheckpoint
from odradek.storage.files import checkpoint, offset_checkpoint
from odradek.storage.files.offset_checkpoint import OffsetCheckpoint
from tests.support.faulty_disk import FaultyDisk
from tests.support.logs import NOW_MS, TOPIC_ID, append, batch, load_all

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from odradek.storage.log.log import PartitionLog

OTHER_ID = uuid.UUID(int=99)
CONFIG = LogConfig(segment_bytes=1000)
FILES = (checkpoint.RECOVERY_POINTS, checkpoint.LOG_START_OFFSETS, checkpoint.HIGH_WATERMARKS)


class CountingDisk(FaultyDisk):
    """Disk that records replaced files. A replacement waits for the event `replacement_allowed`."""

    def __init__(self) -> None:
        super().__init__()
        self.replaced: list[str] = []
        self.replacement_allowed = asyncio.Event()
        self.replacement_allowed.set()

    async def replace_file(self, path: str, data: bytes) -> None:
        name = path.rpartition("/")[2]
        await self.replacement_allowed.wait()
        self.check("replace_file", path)
        self.replaced.append(name)
        await super().replace_file(path, data)


@pytest.fixture
def disk() -> Iterator[CountingDisk]:
    disk = CountingDisk()
    yield disk
    disk.close()


def opened(disk: FaultyDisk, root: Path) -> LogManager:
    manager = LogManager(disk, str(root), CONFIG)
    manager.directory.claim(node_id=1, rng=random.Random(1))
    load_all(manager, NOW_MS)
    return manager


async def create_checkpointed_logs(manager: LogManager, partitions: int = 1) -> None:
    """Create logs of `t` with an entry in each checkpoint."""
    for index in range(partitions):
        log = manager.create("t", index, TOPIC_ID, CONFIG, NOW_MS)
        for _ in range(8):
            append(log, batch(1, size=200))
        await log.flush()
        log.advance_log_start(5)
    await manager.checkpoint_recovery_points()
    await manager.checkpoint_log_starts()
    await manager.checkpoint_high_watermarks()


def recreate(manager: LogManager) -> PartitionLog:
    return manager.create("t", 0, OTHER_ID, CONFIG, NOW_MS)


def entries(root: Path) -> list[dict[tuple[str, int], int]]:
    return [checkpoint.decode_offsets((root / name).read_bytes()) for name in FILES]


async def check_new_log_is_empty(manager: LogManager, disk: FaultyDisk, root: Path) -> None:
    """Check that a new log is created after the stale entries are removed, and that its only record survives a kill."""
    with pytest.raises(StaleCheckpoint):
        recreate(manager)
    await manager.remove_stale_entries()
    append(recreate(manager), batch(1))
    manager.close(clean=False)
    loaded = opened(disk, root).get("t", 0)
    assert loaded is not None
    assert (loaded.topic_id, loaded.log_start_offset, loaded.log_end_offset) == (OTHER_ID, 0, 1)
    assert (loaded.high_watermark, loaded.recovery_point) == (0, 0)


async def test_recreated_topic_starts_empty_after_a_deletion(disk: CountingDisk, tmp_path: Path) -> None:
    manager = opened(disk, tmp_path)
    await create_checkpointed_logs(manager)
    deletion = manager.delete("t", 0)
    await check_new_log_is_empty(manager, disk, tmp_path)
    await deletion


async def test_deletions_at_the_same_time_share_their_syncs(disk: CountingDisk, tmp_path: Path) -> None:
    manager = opened(disk, tmp_path)
    await create_checkpointed_logs(manager, partitions=20)
    disk.replaced.clear()
    disk.synced.clear()
    await asyncio.gather(*(manager.delete("t", index) for index in range(20)))
    assert entries(tmp_path) == [{}, {}, {}]
    assert disk.synced.count(str(tmp_path)) == 2
    assert max(disk.replaced.count(name) for name in FILES) <= 2


async def test_recreated_topic_starts_empty_after_a_deletion_before_a_kill(disk: CountingDisk, tmp_path: Path) -> None:
    manager = opened(disk, tmp_path)
    await create_checkpointed_logs(manager)
    manager.delete("t", 0).close()
    manager.close(clean=False)
    await check_new_log_is_empty(opened(disk, tmp_path), disk, tmp_path)


async def test_recreated_topic_starts_empty_after_an_offline_replacement(disk: CountingDisk, tmp_path: Path) -> None:
    manager = opened(disk, tmp_path)
    await create_checkpointed_logs(manager)
    manager.close(clean=False)
    reopened = opened(disk, tmp_path)
    await check_new_log_is_empty(reopened, disk, tmp_path)
    assert list(tmp_path.glob("t-0.*-stray"))


async def test_recreated_topic_starts_empty_after_the_removal_of_its_directory(
    disk: CountingDisk, tmp_path: Path
) -> None:
    manager = opened(disk, tmp_path)
    await create_checkpointed_logs(manager)
    manager.close(clean=True)
    shutil.rmtree(tmp_path / "t-0")
    await check_new_log_is_empty(opened(disk, tmp_path), disk, tmp_path)


async def test_awaited_deletion_removes_all_entries(disk: CountingDisk, tmp_path: Path) -> None:
    manager = opened(disk, tmp_path)
    await create_checkpointed_logs(manager)
    await manager.delete("t", 0)
    assert entries(tmp_path) == [{}, {}, {}]
    recreate(manager)


async def test_deletion_without_checkpointed_entries_writes_no_checkpoint(disk: CountingDisk, tmp_path: Path) -> None:
    manager = opened(disk, tmp_path)
    manager.create("t", 0, TOPIC_ID, CONFIG, NOW_MS)
    await manager.delete("t", 0)
    recreate(manager)
    assert disk.replaced == []


async def test_entry_in_a_checkpoint_being_written_is_stale_after_a_deletion(
    disk: CountingDisk, tmp_path: Path
) -> None:
    manager = opened(disk, tmp_path)
    manager.create("t", 0, TOPIC_ID, CONFIG, NOW_MS)
    disk.replaced.clear()
    disk.replacement_allowed.clear()
    job = asyncio.ensure_future(manager.checkpoint_high_watermarks())
    await asyncio.sleep(0)
    deletion = asyncio.ensure_future(manager.delete("t", 0))
    with pytest.raises(StaleCheckpoint):
        recreate(manager)
    disk.replacement_allowed.set()
    await job
    await deletion
    assert disk.replaced == [checkpoint.HIGH_WATERMARKS] * 2
    recreate(manager)


async def test_failed_removal_of_entries_refuses_a_new_log_of_that_name(disk: CountingDisk, tmp_path: Path) -> None:
    manager = opened(disk, tmp_path)
    await create_checkpointed_logs(manager)
    disk.refuse("replace_file", checkpoint.LOG_START_OFFSETS)
    with pytest.raises(OSError, match="refused"):
        await manager.delete("t", 0)
    with pytest.raises(StaleCheckpoint):
        recreate(manager)
    disk.heal()
    await check_new_log_is_empty(manager, disk, tmp_path)


async def test_entry_in_a_failed_checkpoint_write_is_stale_after_a_deletion(disk: CountingDisk, tmp_path: Path) -> None:
    """The failed write may have reached the disk."""
    manager = opened(disk, tmp_path)
    manager.create("t", 0, TOPIC_ID, CONFIG, NOW_MS)
    disk.refuse("replace_file", checkpoint.HIGH_WATERMARKS)
    with pytest.raises(OSError, match="refused"):
        await manager.checkpoint_high_watermarks()
    disk.heal()
    deletion = manager.delete("t", 0)
    with pytest.raises(StaleCheckpoint):
        recreate(manager)
    await deletion
    recreate(manager)


async def test_concurrent_deletions_share_checkpoint_writes(disk: CountingDisk, tmp_path: Path) -> None:
    manager = opened(disk, tmp_path)
    await create_checkpointed_logs(manager, partitions=20)
    disk.replaced.clear()
    for deletion in [asyncio.ensure_future(manager.delete("t", index)) for index in range(20)]:
        await deletion
    assert entries(tmp_path) == [{}, {}, {}]
    assert len(disk.replaced) <= 2 * len(FILES)


async def test_log_that_cannot_be_opened_keeps_its_entries(disk: CountingDisk, tmp_path: Path) -> None:
    manager = opened(disk, tmp_path)
    await create_checkpointed_logs(manager, partitions=2)
    manager.close(clean=False)
    disk.refuse("open", f"t-0/{0:020d}.log")
    reopened = opened(disk, tmp_path)
    await reopened.checkpoint_recovery_points()
    await reopened.checkpoint_log_starts()
    await reopened.delete("t", 1)
    reopened.close(clean=False)
    disk.heal()
    loaded = opened(disk, tmp_path).get("t", 0)
    assert loaded is not None
    assert (loaded.log_start_offset, loaded.high_watermark) == (5, 8)


async def test_checkpoints_are_capped_at_the_recovered_log_end(disk: CountingDisk, tmp_path: Path) -> None:
    """Otherwise the former high watermark and recovery point would apply to new records after another crash."""
    manager = opened(disk, tmp_path)
    log = manager.create("t", 0, TOPIC_ID, CONFIG, NOW_MS)
    append(log, batch(8))
    await log.flush()
    await manager.checkpoint_recovery_points()
    await manager.checkpoint_high_watermarks()
    manager.close(clean=False)
    (tmp_path / "t-0" / f"{0:020d}.log").write_bytes(b"")
    reopened = opened(disk, tmp_path)
    assert [(log.log_end_offset, log.high_watermark) for log in reopened] == [(0, 0)]
    for log in reopened:
        append(log, batch(8), commit=False)
    reopened.close(clean=False)
    (loaded,) = opened(disk, tmp_path)
    assert (loaded.log_end_offset, loaded.high_watermark, loaded.flushed_offset) == (8, 0, 0)


async def test_durable_end_of_a_raft_log_is_kept_until_it_is_reached_again(disk: CountingDisk, tmp_path: Path) -> None:
    """A voter must detect lost records at each start until it has reported the loss."""
    topic = FLUSHED_TOPICS[0]
    manager = opened(disk, tmp_path)
    append(manager.create(topic, 0, TOPIC_ID, CONFIG, NOW_MS), batch(8))
    await manager.checkpoint_high_watermarks()
    manager.close(clean=False)
    (tmp_path / f"{topic}-0" / f"{0:020d}.log").write_bytes(b"")
    for _ in range(2):
        reopened = LogManager(disk, str(tmp_path), CONFIG)
        reopened.directory.claim(node_id=1, rng=random.Random(1))
        load_all(reopened, NOW_MS, refuse_loss=())
        assert reopened.durable_at_stop(topic, 0) == 8
        reopened.close(clean=False)
    shutil.rmtree(tmp_path / f"{topic}-0")
    gone = opened(disk, tmp_path)
    assert gone.durable_at_stop(topic, 0) == 8
    gone.create(topic, 0, TOPIC_ID, CONFIG, NOW_MS)


async def test_large_checkpoint_is_encoded_in_slices(
    disk: CountingDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 10,000 logs, one piece would take 15 ms every five seconds. Each slice may have an entry of the file."""
    offsets = {("t", index): index for index in range(25)}
    file = OffsetCheckpoint(disk, str(tmp_path / checkpoint.HIGH_WATERMARKS), offsets, offsets.get)
    encode, encoded, turns = checkpoint.encode_rows, list[int](), list[int]()

    def recorded(rows: list[tuple[tuple[str, int], int]]) -> bytes:
        encoded.append(len(rows))
        return encode(rows)

    async def other_task() -> None:
        while len(encoded) < 3:
            turns.append(len(encoded))
            if turns[-1]:
                assert file.may_have_entry(("t", 24))
            await asyncio.sleep(0)

    monkeypatch.setattr(checkpoint, "encode_rows", recorded)
    monkeypatch.setattr(offset_checkpoint, "ENTRIES_PER_SLICE", 10)
    await asyncio.gather(file.write(), other_task())
    assert encoded == [10, 10, 5]
    assert set(turns) >= {1, 2}
    assert file.read() == offsets


async def test_offsets_of_many_logs_are_collected_in_slices(
    disk: CountingDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 10,000 logs, one piece would take 20 ms. An entry of a slice counts as one of the file from then on."""
    offsets = {("t", index): index for index in range(25)}
    visited, turns = list[int](), list[int]()

    def present(key: tuple[str, int]) -> int | None:
        visited.append(key[1])
        return offsets.get(key)

    file = OffsetCheckpoint(disk, str(tmp_path / checkpoint.HIGH_WATERMARKS), offsets.keys(), present)

    async def other_task() -> None:
        while len(visited) < 25:
            turns.append(len(visited))
            if turns[-1] == 10:
                assert file.may_have_entry(("t", 9))
                assert not file.may_have_entry(("t", 10))
                del offsets["t", 0]  # its entry is in the file until the next write
                del offsets["t", 20]
                offsets["t", 30] = 30
            await asyncio.sleep(0)

    monkeypatch.setattr(offset_checkpoint, "LOGS_PER_SLICE", 10)
    await asyncio.gather(file.write(), other_task())
    assert turns in ([0, 10, 20], [10, 20])
    assert file.read() == {("t", index): index for index in range(25) if index != 20}
    assert file.may_have_entry(("t", 0))
    assert await file.is_behind_in_slices()
    await file.write()
    assert file.read() == offsets
    assert not await file.is_behind_in_slices()
    assert not file.is_behind
