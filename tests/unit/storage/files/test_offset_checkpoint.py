"""Names that are used again: what the checkpoints on the disk say of a log that is gone must never speak for its successor."""

from __future__ import annotations

import asyncio
import random
import shutil
import uuid
from typing import TYPE_CHECKING

import pytest

from odradek.storage.config import LogConfig
from odradek.storage.data_directory.log_manager import FLUSHED_TOPICS, LogManager, StaleCheckpoint
from odradek.storage.files import checkpoint
from tests.support.faulty_disk import FaultyDisk
from tests.support.logs import NOW_MS, TOPIC_ID, append, batch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from odradek.storage.log.log import PartitionLog

OTHER_ID = uuid.UUID(int=99)
CONFIG = LogConfig(segment_bytes=1000)
FILES = (checkpoint.RECOVERY_POINTS, checkpoint.LOG_START_OFFSETS, checkpoint.HIGH_WATERMARKS)


class CountingDisk(FaultyDisk):
    """Counts how often each file is replaced; with `gate`, a replacement waits for it and is noted in `held`."""

    def __init__(self) -> None:
        super().__init__()
        self.replaced: list[str] = []
        self.gate: asyncio.Event | None = None
        self.held: list[str] = []

    async def replace_file(self, path: str, data: bytes) -> None:
        name = path.rpartition("/")[2]
        if self.gate is not None:
            self.held.append(name)
            await self.gate.wait()
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
    manager.load_all(NOW_MS)
    return manager


async def remembered(manager: LogManager, partitions: int = 1) -> None:
    """Logs of `t` of which every checkpoint says something."""
    for index in range(partitions):
        log = manager.create("t", index, TOPIC_ID, CONFIG, NOW_MS)
        for _ in range(8):
            append(log, batch(1, size=200))
        await log.flush()
        log.advance_log_start(5)
    await manager.checkpoint_recovery_points()
    await manager.checkpoint_log_starts()
    await manager.checkpoint_high_watermarks()


def create_anew(manager: LogManager) -> PartitionLog:
    return manager.create("t", 0, OTHER_ID, CONFIG, NOW_MS)


def entries(root: Path) -> list[dict[tuple[str, int], int]]:
    return [checkpoint.decode_offsets((root / name).read_bytes()) for name in FILES]


async def starts_from_nothing(manager: LogManager, disk: FaultyDisk, root: Path) -> None:
    """The log can be made once the old one is forgotten, and a kill right after its first record leaves just that."""
    with pytest.raises(StaleCheckpoint):
        create_anew(manager)
    await manager.remove_stale_entries()
    append(create_anew(manager), batch(1))
    manager.close(clean=False)
    loaded = opened(disk, root).get("t", 0)
    assert loaded is not None
    assert (loaded.topic_id, loaded.log_start_offset, loaded.log_end_offset) == (OTHER_ID, 0, 1)
    assert (loaded.high_watermark, loaded.recovery_point) == (0, 0)


async def test_of_a_deleted_topic(disk: CountingDisk, tmp_path: Path) -> None:
    manager = opened(disk, tmp_path)
    await remembered(manager)
    deletion = manager.delete("t", 0)
    await starts_from_nothing(manager, disk, tmp_path)
    await deletion


async def test_of_a_topic_that_was_deleted_before_a_kill(disk: CountingDisk, tmp_path: Path) -> None:
    manager = opened(disk, tmp_path)
    await remembered(manager)
    manager.delete("t", 0).close()
    manager.close(clean=False)
    await starts_from_nothing(opened(disk, tmp_path), disk, tmp_path)


async def test_of_a_topic_that_was_replaced_while_the_node_was_away(disk: CountingDisk, tmp_path: Path) -> None:
    manager = opened(disk, tmp_path)
    await remembered(manager)
    manager.close(clean=False)
    again = opened(disk, tmp_path)
    await starts_from_nothing(again, disk, tmp_path)
    assert list(tmp_path.glob("t-0.*-stray"))


async def test_of_a_directory_that_somebody_has_removed(disk: CountingDisk, tmp_path: Path) -> None:
    manager = opened(disk, tmp_path)
    await remembered(manager)
    manager.close(clean=True)
    shutil.rmtree(tmp_path / "t-0")
    await starts_from_nothing(opened(disk, tmp_path), disk, tmp_path)


async def test_a_deletion_that_is_durable_is_forgotten(disk: CountingDisk, tmp_path: Path) -> None:
    manager = opened(disk, tmp_path)
    await remembered(manager)
    await manager.delete("t", 0)
    assert entries(tmp_path) == [{}, {}, {}]
    create_anew(manager)


async def test_what_no_checkpoint_has_ever_named_needs_none_to_be_written(disk: CountingDisk, tmp_path: Path) -> None:
    manager = opened(disk, tmp_path)
    manager.create("t", 0, TOPIC_ID, CONFIG, NOW_MS)
    await manager.delete("t", 0)
    create_anew(manager)
    assert disk.replaced == []


async def test_an_older_state_on_its_way_to_the_disk_counts(disk: CountingDisk, tmp_path: Path) -> None:
    manager = opened(disk, tmp_path)
    manager.create("t", 0, TOPIC_ID, CONFIG, NOW_MS)
    disk.gate = asyncio.Event()
    job = asyncio.ensure_future(manager.checkpoint_high_watermarks())
    await asyncio.sleep(0)
    deletion = asyncio.ensure_future(manager.delete("t", 0))
    with pytest.raises(StaleCheckpoint):
        create_anew(manager)
    disk.gate.set()
    await job
    await deletion
    assert disk.held == [checkpoint.HIGH_WATERMARKS] * 2
    create_anew(manager)


async def test_a_disk_that_refuses_to_forget_keeps_the_name_taken(disk: CountingDisk, tmp_path: Path) -> None:
    manager = opened(disk, tmp_path)
    await remembered(manager)
    disk.refuse("replace_file", checkpoint.LOG_START_OFFSETS)
    with pytest.raises(OSError, match="refused"):
        await manager.delete("t", 0)
    with pytest.raises(StaleCheckpoint):
        create_anew(manager)
    disk.heal()
    await starts_from_nothing(manager, disk, tmp_path)


async def test_what_a_refused_replacement_would_have_said_counts(disk: CountingDisk, tmp_path: Path) -> None:
    """How far it got is not known."""
    manager = opened(disk, tmp_path)
    manager.create("t", 0, TOPIC_ID, CONFIG, NOW_MS)
    disk.refuse("replace_file", checkpoint.HIGH_WATERMARKS)
    with pytest.raises(OSError, match="refused"):
        await manager.checkpoint_high_watermarks()
    disk.heal()
    deletion = manager.delete("t", 0)
    with pytest.raises(StaleCheckpoint):
        create_anew(manager)
    await deletion
    create_anew(manager)


async def test_many_deletions_share_what_is_written(disk: CountingDisk, tmp_path: Path) -> None:
    manager = opened(disk, tmp_path)
    await remembered(manager, partitions=20)
    disk.replaced.clear()
    for deletion in [asyncio.ensure_future(manager.delete("t", index)) for index in range(20)]:
        await deletion
    assert entries(tmp_path) == [{}, {}, {}]
    assert len(disk.replaced) <= 2 * len(FILES)


async def test_logs_that_cannot_be_opened_keep_their_entries(disk: CountingDisk, tmp_path: Path) -> None:
    manager = opened(disk, tmp_path)
    await remembered(manager, partitions=2)
    manager.close(clean=False)
    disk.refuse("open", f"t-0/{0:020d}.log")
    again = opened(disk, tmp_path)
    await again.checkpoint_recovery_points()
    await again.checkpoint_log_starts()
    await again.delete("t", 1)
    again.close(clean=False)
    disk.heal()
    loaded = opened(disk, tmp_path).get("t", 0)
    assert loaded is not None
    assert (loaded.log_start_offset, loaded.high_watermark) == (5, 8)


async def test_what_a_power_cut_has_taken_is_not_spoken_of_any_more(disk: CountingDisk, tmp_path: Path) -> None:
    """Else another crash would find a high watermark and a recovery point for what has been appended there since."""
    manager = opened(disk, tmp_path)
    log = manager.create("t", 0, TOPIC_ID, CONFIG, NOW_MS)
    append(log, batch(8))
    await log.flush()
    await manager.checkpoint_recovery_points()
    await manager.checkpoint_high_watermarks()
    manager.close(clean=False)
    (tmp_path / "t-0" / f"{0:020d}.log").write_bytes(b"")
    again = opened(disk, tmp_path)
    assert [(each.log_end_offset, each.high_watermark) for each in again] == [(0, 0)]
    for each in again:
        append(each, batch(8), commit=False)
    again.close(clean=False)
    (loaded,) = opened(disk, tmp_path)
    assert (loaded.log_end_offset, loaded.high_watermark, loaded.flushed_offset) == (8, 0, 0)


async def test_what_consensus_had_on_the_disk_is_spoken_of_until_it_has_it_again(
    disk: CountingDisk, tmp_path: Path
) -> None:
    """The voter must find out what it has lost, however often it is started before it has said so."""
    topic = FLUSHED_TOPICS[0]
    manager = opened(disk, tmp_path)
    append(manager.create(topic, 0, TOPIC_ID, CONFIG, NOW_MS), batch(8))
    await manager.checkpoint_high_watermarks()
    manager.close(clean=False)
    (tmp_path / f"{topic}-0" / f"{0:020d}.log").write_bytes(b"")
    for _ in range(2):
        again = LogManager(disk, str(tmp_path), CONFIG)
        again.directory.claim(node_id=1, rng=random.Random(1))
        again.load_all(NOW_MS, refuse_loss=())
        assert again.durable_at_stop(topic, 0) == 8
        again.close(clean=False)
    shutil.rmtree(tmp_path / f"{topic}-0")
    gone = opened(disk, tmp_path)
    assert gone.durable_at_stop(topic, 0) == 8
    gone.create(topic, 0, TOPIC_ID, CONFIG, NOW_MS)
