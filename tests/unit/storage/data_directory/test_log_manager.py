from __future__ import annotations

import asyncio
import random
import re
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from odradek.broker_interface import META_PROPERTIES
from odradek.protocol.primitives import ZERO_UUID
from odradek.storage.config import LogConfig
from odradek.storage.data_directory import log_manager
from odradek.storage.data_directory.directory import UnusableDirectory
from odradek.storage.data_directory.log_manager import LogManager
from odradek.storage.disk.os_disk import OsDisk
from odradek.storage.disk.port import DirectoryLocked
from odradek.storage.files import checkpoint
from tests.support.cleaning import clean
from tests.support.faulty_disk import FaultyDisk
from tests.support.logs import NOW_MS, TOPIC_ID, append, batch, headers, load_all, marker, produced

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OTHER_ID = uuid.UUID(int=99)
CONFIG = LogConfig(file_delete_delay_ms=100, segment_bytes=1000)


@pytest.fixture
def disk() -> Iterator[FaultyDisk]:
    disk = FaultyDisk()
    yield disk
    disk.close()


def opened(disk: FaultyDisk, root: Path, *, node_id: int = 1) -> LogManager:
    manager = LogManager(disk, str(root), CONFIG)
    manager.directory.claim(node_id=node_id, rng=random.Random(1))
    load_all(manager, NOW_MS)
    return manager


def test_clean_shutdown_marker_is_used_once(disk: FaultyDisk, tmp_path: Path) -> None:
    manager = opened(disk, tmp_path)
    assert not manager.directory.clean_start
    log = manager.create("t", 0, TOPIC_ID, CONFIG, NOW_MS)
    for sequence in range(8):
        append(log, produced(7, sequence, size=200))
    identity = (manager.directory.cluster_id, manager.directory.directory_id)
    manager.close(broker_epoch=42)
    assert (tmp_path / checkpoint.CLEAN_SHUTDOWN).exists()

    reopened = opened(disk, tmp_path)
    assert (reopened.directory.clean_start, reopened.directory.previous_broker_epoch) == (True, 42)
    assert (reopened.directory.cluster_id, reopened.directory.directory_id) == identity
    assert not (tmp_path / checkpoint.CLEAN_SHUTDOWN).exists()
    loaded = reopened.get("t", 0)
    assert loaded is not None
    assert (loaded.log_end_offset, loaded.high_watermark, loaded.flushed_offset, loaded.topic_id) == (8, 8, 8, TOPIC_ID)
    reopened.close(clean=False)
    assert not opened(disk, tmp_path).directory.clean_start


async def test_log_is_recovered_from_the_checkpoints_after_a_kill(disk: FaultyDisk, tmp_path: Path) -> None:
    manager = opened(disk, tmp_path)
    log = manager.create("t", 0, TOPIC_ID, CONFIG, NOW_MS)
    for _ in range(8):
        append(log, batch(1, size=200))
    assert await manager.flush_sealed() == []
    assert log.recovery_point == log.segments.active.base_offset
    log.advance_log_start(2)
    await manager.checkpoint_recovery_points()
    await manager.checkpoint_log_starts()
    await manager.checkpoint_high_watermarks()
    manager.close(clean=False)
    loaded = opened(disk, tmp_path).get("t", 0)
    assert loaded is not None
    assert (loaded.log_start_offset, loaded.high_watermark, loaded.log_end_offset) == (2, 8, 8)
    assert len(headers(loaded)) == 6


def test_data_directory_with_another_owner_or_node_id_is_refused(disk: FaultyDisk, tmp_path: Path) -> None:
    manager = opened(disk, tmp_path)
    with pytest.raises(DirectoryLocked):
        opened(disk, tmp_path)
    manager.close()
    with pytest.raises(UnusableDirectory, match="belongs to node 1"):
        opened(disk, tmp_path, node_id=2)
    # A refused manager keeps its lock until it is closed, as a broker does when its start fails.


def test_damaged_meta_properties_are_refused_with_the_path(disk: FaultyDisk, tmp_path: Path) -> None:
    (tmp_path / META_PROPERTIES).write_bytes(b"version=1\nnode.id=1\n")
    with pytest.raises(UnusableDirectory, match="damaged"):
        opened(disk, tmp_path)


def test_damaged_checkpoints_lose_no_records(disk: FaultyDisk, tmp_path: Path) -> None:
    manager = opened(disk, tmp_path)
    append(manager.create("t", 0, TOPIC_ID, CONFIG, NOW_MS), batch(3))
    manager.close(clean=False)
    for name in (checkpoint.RECOVERY_POINTS, checkpoint.HIGH_WATERMARKS, checkpoint.LOG_START_OFFSETS):
        (tmp_path / name).write_bytes(b"garbage")
    (tmp_path / "t-0" / checkpoint.PARTITION_METADATA).write_bytes(b"")
    reopened = opened(disk, tmp_path)
    loaded = reopened.get("t", 0)
    assert loaded is not None
    assert (loaded.log_end_offset, loaded.high_watermark, loaded.topic_id) == (3, 0, ZERO_UUID)
    assert reopened.create("t", 0, TOPIC_ID, CONFIG, NOW_MS) is loaded, "the topic id comes from the metadata log"
    assert (
        checkpoint.decode_partition_metadata((tmp_path / "t-0" / checkpoint.PARTITION_METADATA).read_bytes())
        == TOPIC_ID
    )


async def test_transaction_with_a_compacted_marker_is_not_reopened_by_a_crash(disk: FaultyDisk, tmp_path: Path) -> None:
    """The checkpointed high watermark and its producer snapshot are older than the compaction."""
    manager = opened(disk, tmp_path)
    log = manager.create("t", 0, TOPIC_ID, replace(CONFIG, delete_retention_ms=0), NOW_MS)
    append(log, produced(7, 0, transactional=True))
    log.roll(NOW_MS)
    await manager.checkpoint_high_watermarks()
    old = (tmp_path / checkpoint.HIGH_WATERMARKS).read_bytes()
    append(log, marker(7, commit=False))
    append(log, produced(7, 1, transactional=True))
    append(log, marker(7, commit=True))
    log.roll(NOW_MS)
    for passes in range(3):
        log.cleaned_to = None
        await clean(log, now_ms=NOW_MS + passes)
    assert [header.base_offset for header in headers(log)] == [2, 3]
    await manager.checkpoint_cleaned()
    await manager.checkpoint_recovery_points()
    manager.close(clean=False)
    (tmp_path / checkpoint.HIGH_WATERMARKS).write_bytes(old)
    reopened = opened(disk, tmp_path).get("t", 0)
    assert reopened is not None
    assert (reopened.high_watermark, reopened.last_stable_offset) == (4, 4)
    assert reopened.producers.ongoing_transactions() == []


async def test_deleted_log_is_renamed_and_its_files_are_removed_later(disk: FaultyDisk, tmp_path: Path) -> None:
    manager = opened(disk, tmp_path)
    append(manager.create("t", 0, TOPIC_ID, CONFIG, NOW_MS), batch(3))
    durable = manager.delete("t", 0)
    assert manager.get("t", 0) is None
    await durable
    deleted = tmp_path / f"t-0.{TOPIC_ID.hex}-delete"
    assert deleted.exists()
    fresh = manager.create("t", 0, OTHER_ID, CONFIG, NOW_MS)
    assert fresh.log_end_offset == 0
    await manager.remove_deleted(NOW_MS)
    await manager.remove_deleted(NOW_MS + 99)
    assert deleted.exists()
    await manager.remove_deleted(NOW_MS + 100)
    assert not deleted.exists()
    assert (tmp_path / "t-0").exists()


async def test_replica_deleted_twice_within_the_delay_leaves_no_files(disk: FaultyDisk, tmp_path: Path) -> None:
    """A reassignment is cancelled, repeated and cancelled within file.delete.delay.ms, with one topic id."""
    manager = opened(disk, tmp_path)
    for end in (3, 4, 5):
        append(manager.create("t", 0, TOPIC_ID, CONFIG, NOW_MS), batch(end))
        await manager.delete("t", 0)
        assert not (tmp_path / "t-0").exists()
    deleted = [path.name for path in tmp_path.glob("t-*")]
    assert len(deleted) == 3
    for name in deleted:
        assert re.fullmatch(r"t-0\.[0-9a-f]{32}-delete", name), "Kafka's tools and the next start recognize the name"
    await manager.remove_deleted(NOW_MS)
    await manager.remove_deleted(NOW_MS + 100)
    assert list(tmp_path.glob("t-*")) == []


def test_second_stray_log_of_a_partition_gets_another_name(disk: FaultyDisk, tmp_path: Path) -> None:
    manager = opened(disk, tmp_path)
    for topic_id in (TOPIC_ID, OTHER_ID, TOPIC_ID, OTHER_ID):
        append(manager.create("t", 0, topic_id, CONFIG, NOW_MS), batch(3))
    kept = [path / f"{0:020d}.log" for path in tmp_path.glob("t-0.*-stray")]
    assert [path.stat().st_size for path in kept] == [len(batch(3))] * 3


async def test_deletion_interrupted_by_a_stop_continues(disk: FaultyDisk, tmp_path: Path) -> None:
    (tmp_path / f"t-0.{TOPIC_ID.hex}-delete").mkdir()
    manager = opened(disk, tmp_path)
    assert list(manager) == []
    await manager.remove_deleted(NOW_MS)
    await manager.remove_deleted(NOW_MS + 100)
    assert list(tmp_path.glob("*-delete")) == []


def test_recreated_topic_starts_empty(disk: FaultyDisk, tmp_path: Path) -> None:
    manager = opened(disk, tmp_path)
    append(manager.create("t", 0, TOPIC_ID, CONFIG, NOW_MS), batch(3))
    assert manager.create("t", 0, OTHER_ID, CONFIG, NOW_MS).log_end_offset == 0


async def test_log_of_an_unknown_topic_is_never_removed(disk: FaultyDisk, tmp_path: Path) -> None:
    manager = opened(disk, tmp_path)
    append(manager.create("t", 0, TOPIC_ID, CONFIG, NOW_MS), batch(3))
    manager.close(clean=False)
    reopened = opened(disk, tmp_path)
    reopened.create("t", 0, OTHER_ID, CONFIG, NOW_MS)
    await reopened.remove_deleted(NOW_MS)
    await reopened.remove_deleted(NOW_MS + 1_000_000)
    reopened.close(clean=True)
    assert (tmp_path / f"t-0.{TOPIC_ID.hex}-stray" / f"{0:020d}.log").stat().st_size == len(batch(3))
    assert [(log.topic, log.topic_id) for log in opened(disk, tmp_path)] == [("t", OTHER_ID)]


async def test_recreated_topic_starts_empty_after_a_failed_deletion(disk: FaultyDisk, tmp_path: Path) -> None:
    manager = opened(disk, tmp_path)
    append(manager.create("t", 0, TOPIC_ID, CONFIG, NOW_MS), batch(3))
    disk.refuse("rename", "t-0")
    with pytest.raises(OSError, match="refused"):
        await manager.delete("t", 0)
    disk.heal()
    assert manager.get("t", 0) is None
    assert manager.create("t", 0, OTHER_ID, CONFIG, NOW_MS).log_end_offset == 0


def test_log_that_cannot_be_opened_does_not_affect_others(disk: FaultyDisk, tmp_path: Path) -> None:
    manager = opened(disk, tmp_path)
    for partition in (0, 1):
        append(manager.create("t", partition, TOPIC_ID, CONFIG, NOW_MS), batch(3))
    manager.close(clean=True)
    disk.refuse("open", f"t-0/{0:020d}.log")
    reopened = opened(disk, tmp_path)
    disk.heal()
    assert [log.partition for log in reopened] == [1]
    with pytest.raises(OSError, match="could not be opened"):
        reopened.create("t", 0, TOPIC_ID, CONFIG, NOW_MS)
    reopened.close(clean=True)
    assert not (tmp_path / checkpoint.CLEAN_SHUTDOWN).exists(), "a log that was not opened was not closed cleanly"


def test_clean_shutdown_marker_requires_a_clean_close_of_all_logs(disk: FaultyDisk, tmp_path: Path) -> None:
    manager = opened(disk, tmp_path)
    append(manager.create("t", 0, TOPIC_ID, CONFIG, NOW_MS), batch(3))
    disk.refuse("sync", ".log")
    manager.close(clean=True)
    disk.heal()
    assert not (tmp_path / checkpoint.CLEAN_SHUTDOWN).exists()
    assert not opened(disk, tmp_path).directory.clean_start


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "../x", "a" * 250, "ü", "a\x00b", "a\n"])
def test_invalid_topic_name_is_refused_before_it_becomes_a_path(disk: FaultyDisk, tmp_path: Path, topic: str) -> None:
    manager = opened(disk, tmp_path / "data")
    with pytest.raises(ValueError, match="topic name"):
        manager.create(topic, 0, TOPIC_ID, CONFIG, NOW_MS)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]


async def test_partition_with_the_longest_topic_name_can_be_deleted(disk: FaultyDisk, tmp_path: Path) -> None:
    manager = opened(disk, tmp_path)
    manager.create("a" * 249, 12345, TOPIC_ID, CONFIG, NOW_MS)
    await manager.delete("a" * 249, 12345)
    (deleted,) = tmp_path.glob("*-delete")
    assert len(deleted.name) == 255


def test_unknown_directories_are_ignored(disk: FaultyDisk, tmp_path: Path) -> None:
    for name in ("lost+found", "t", "t-x", "t-01", "t-99999999999"):
        (tmp_path / name).mkdir()
    assert list(opened(disk, tmp_path)) == []
    assert (tmp_path / "t-01").exists()


def test_logs_of_compacted_topics_can_have_gaps(disk: FaultyDisk, tmp_path: Path) -> None:
    """After a kill, gaps are accepted in internal topics, and in logs with an entry in the cleaner checkpoint."""
    for name in ("__transaction_state-0", "cleaned-0", "plain-0"):
        directory = tmp_path / name
        directory.mkdir()
        (directory / f"{0:020d}.log").write_bytes(batch(1, base_offset=3) + batch(1, base_offset=9))
    (tmp_path / checkpoint.CLEANER_OFFSETS).write_bytes(checkpoint.encode_offsets({("cleaned", 0): 5}))
    manager = opened(disk, tmp_path)
    ends = {log.topic: log.log_end_offset for log in manager}
    assert ends == {"__transaction_state": 10, "cleaned": 10, "plain": 0}


@pytest.mark.parametrize(("flushed", "end"), [(0, 0), (6, 6)])
def test_gap_is_accepted_only_in_the_flushed_part(disk: FaultyDisk, tmp_path: Path, flushed: int, end: int) -> None:
    """A power failure has emptied the first segment but not the second."""
    directory = tmp_path / "__transaction_state-0"
    directory.mkdir()
    (directory / f"{0:020d}.log").write_bytes(b"")
    (directory / f"{5:020d}.log").write_bytes(batch(1, base_offset=5))
    points = checkpoint.encode_offsets({("__transaction_state", 0): flushed})
    (tmp_path / checkpoint.RECOVERY_POINTS).write_bytes(points)
    (log,) = opened(disk, tmp_path)
    assert log.log_end_offset == end


async def test_overlapping_checkpoint_writes_leave_the_latest_state(
    disk: FaultyDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older checkpoint write does not replace a newer one.

    1. The periodic job reads the recovery points and begins to write them.
    2. A recovery point is lowered before a truncation, and written.
    3. The write of the job ends after it.
    """
    manager = opened(disk, tmp_path)
    log = manager.create("t", 0, TOPIC_ID, CONFIG, NOW_MS)
    for sequence in range(8):
        append(log, produced(7, sequence, size=200))
    await log.flush()
    begun, release = asyncio.Event(), asyncio.Event()
    replace_file = OsDisk.replace_file

    async def slow(self: OsDisk, path: str, data: bytes) -> None:
        begun.set()
        await release.wait()
        await replace_file(self, path, data)

    monkeypatch.setattr(OsDisk, "replace_file", slow)
    job = asyncio.ensure_future(manager.checkpoint_recovery_points())
    await begun.wait()
    lowering = asyncio.ensure_future(manager.lower_recovery_point("t", 0, 4))
    await asyncio.sleep(0)
    release.set()
    await job
    await lowering
    points = checkpoint.decode_offsets((tmp_path / checkpoint.RECOVERY_POINTS).read_bytes())
    assert points["t", 0] <= 4


async def test_recovery_point_is_lowered_on_disk_before_a_truncation(disk: FaultyDisk, tmp_path: Path) -> None:
    manager = opened(disk, tmp_path)
    log = manager.create("t", 0, TOPIC_ID, CONFIG, NOW_MS)
    for sequence in range(8):
        append(log, produced(7, sequence, size=200, transactional=True))
    append(log, marker(7, commit=False))
    await log.flush()
    await manager.lower_recovery_point("t", 0, 4)
    assert log.log_end_offset == 9
    points = checkpoint.decode_offsets((tmp_path / checkpoint.RECOVERY_POINTS).read_bytes())
    assert points["t", 0] <= 4
    assert log.truncate_to(4, now_ms=NOW_MS, monotonic_ms=NOW_MS)
    assert (log.log_end_offset, log.high_watermark, log.last_stable_offset, log.flushed_offset) == (4, 4, 0, 4)


async def test_recovery_point_is_lowered_before_the_last_flushed_record_is_truncated(
    disk: FaultyDisk, tmp_path: Path
) -> None:
    """Otherwise the next segment could start at the recovery point, and recovery would skip the one before it."""
    manager = opened(disk, tmp_path)
    log = manager.create("t", 0, TOPIC_ID, LogConfig(), NOW_MS)
    for _ in range(4):
        append(log, batch(1))
    await log.flush()
    await manager.checkpoint_recovery_points()
    await manager.lower_recovery_point("t", 0, 3)
    assert log.truncate_to(3, now_ms=NOW_MS, monotonic_ms=NOW_MS)
    assert log.roll(NOW_MS).base_offset == 3
    points = checkpoint.decode_offsets((tmp_path / checkpoint.RECOVERY_POINTS).read_bytes())
    assert points["t", 0] == 2


async def test_flush_of_sealed_segments_visits_many_logs_in_slices(
    disk: FaultyDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_manager, "LOGS_PER_SLICE", 2)
    manager = opened(disk, tmp_path)
    for index in range(10):
        manager.create("t", index, TOPIC_ID, CONFIG, NOW_MS)
    job, turns = asyncio.ensure_future(manager.flush_sealed()), 0
    while not job.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 5
    manager.close(clean=False)


class SlowDisk(FaultyDisk):
    """Disk on which a write of the recovery point checkpoint waits for the test."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[asyncio.Future[None]] = []

    async def replace_file(self, path: str, data: bytes) -> None:
        if path.endswith(checkpoint.RECOVERY_POINTS):
            turn = asyncio.get_running_loop().create_future()
            self.waiting.append(turn)
            await turn
        await super().replace_file(path, data)


async def test_checkpoint_writes_are_serial_and_never_replace_a_newer_state(
    tmp_path: Path,
) -> None:
    disk = SlowDisk()
    manager = opened(disk, tmp_path)
    logs = [manager.create("t", index, TOPIC_ID, CONFIG, NOW_MS) for index in range(2)]
    for log in logs:
        for sequence in range(8):
            append(log, produced(7, sequence, size=200))
        await log.flush()
    first, second = (asyncio.ensure_future(manager.lower_recovery_point("t", index, 4)) for index in range(2))
    await asyncio.sleep(0)
    assert len(disk.waiting) == 1  # the second write waits for the end of the first
    disk.waiting.pop().set_result(None)
    await first
    await asyncio.sleep(0)
    disk.waiting.pop().set_result(None)
    await second
    points = checkpoint.decode_offsets((tmp_path / checkpoint.RECOVERY_POINTS).read_bytes())
    assert max(points.values()) <= 4
    disk.close()
