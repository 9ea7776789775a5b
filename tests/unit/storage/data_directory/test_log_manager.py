from __future__ import annotations

import asyncio
import random
import re
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from odradek.storage.config import LogConfig
from odradek.storage.data_directory.directory import UnusableDirectory
from odradek.storage.data_directory.log_manager import LogManager
from odradek.storage.disk.port import DirectoryLocked
from odradek.storage.files import checkpoint
from odradek.storage.files.checkpoint import ZERO_UUID
from tests.support.cleaning import clean
from tests.support.faulty_disk import FaultyDisk
from tests.support.logs import NOW_MS, TOPIC_ID, append, batch, headers, marker, produced

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
    manager.load_all(NOW_MS)
    return manager


def test_a_clean_stop_is_remembered_once(disk: FaultyDisk, tmp_path: Path) -> None:
    manager = opened(disk, tmp_path)
    assert not manager.directory.clean_start
    log = manager.create("t", 0, TOPIC_ID, CONFIG, NOW_MS)
    for sequence in range(8):
        append(log, produced(7, sequence, size=200))
    identity = (manager.directory.cluster_id, manager.directory.directory_id)
    manager.close(broker_epoch=42)
    assert (tmp_path / checkpoint.CLEAN_SHUTDOWN).exists()

    again = opened(disk, tmp_path)
    assert (again.directory.clean_start, again.directory.previous_broker_epoch) == (True, 42)
    assert (again.directory.cluster_id, again.directory.directory_id) == identity
    assert not (tmp_path / checkpoint.CLEAN_SHUTDOWN).exists()
    loaded = again.get("t", 0)
    assert loaded is not None
    assert (loaded.log_end_offset, loaded.high_watermark, loaded.recovery_point, loaded.topic_id) == (8, 8, 8, TOPIC_ID)
    again.close(clean=False)
    assert not opened(disk, tmp_path).directory.clean_start


async def test_a_kill_is_recovered_from_the_checkpoints(disk: FaultyDisk, tmp_path: Path) -> None:
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


def test_a_directory_has_one_owner_of_one_identity(disk: FaultyDisk, tmp_path: Path) -> None:
    manager = opened(disk, tmp_path)
    with pytest.raises(DirectoryLocked):
        opened(disk, tmp_path)
    manager.close()
    with pytest.raises(UnusableDirectory, match="belongs to node 1"):
        opened(disk, tmp_path, node_id=2)
    # A refused one keeps its lock until it is closed, as a node does when its start fails.


def test_a_damaged_identity_is_refused_with_its_name(disk: FaultyDisk, tmp_path: Path) -> None:
    (tmp_path / checkpoint.META_PROPERTIES).write_bytes(b"version=1\nnode.id=1\n")
    with pytest.raises(UnusableDirectory, match="damaged"):
        opened(disk, tmp_path)


def test_damaged_checkpoints_cost_nothing_but_time(disk: FaultyDisk, tmp_path: Path) -> None:
    manager = opened(disk, tmp_path)
    append(manager.create("t", 0, TOPIC_ID, CONFIG, NOW_MS), batch(3))
    manager.close(clean=False)
    for name in (checkpoint.RECOVERY_POINTS, checkpoint.HIGH_WATERMARKS, checkpoint.LOG_START_OFFSETS):
        (tmp_path / name).write_bytes(b"garbage")
    (tmp_path / "t-0" / checkpoint.PARTITION_METADATA).write_bytes(b"")
    again = opened(disk, tmp_path)
    loaded = again.get("t", 0)
    assert loaded is not None
    assert (loaded.log_end_offset, loaded.high_watermark, loaded.topic_id) == (3, 0, ZERO_UUID)
    assert again.create("t", 0, TOPIC_ID, CONFIG, NOW_MS) is loaded, "the metadata log knows its id"
    assert (
        checkpoint.decode_partition_metadata((tmp_path / "t-0" / checkpoint.PARTITION_METADATA).read_bytes())
        == TOPIC_ID
    )


async def test_a_transaction_whose_marker_was_compacted_away_is_not_open_again_after_a_crash(
    disk: FaultyDisk, tmp_path: Path
) -> None:
    """The high watermark that was written down is older than the cleaning, and so is the snapshot that goes with it."""
    manager = opened(disk, tmp_path)
    log = manager.create("t", 0, TOPIC_ID, replace(CONFIG, delete_retention_ms=0), NOW_MS)
    append(log, produced(7, 0, transactional=True))
    log.roll(NOW_MS)
    await manager.checkpoint_high_watermarks()
    old = (tmp_path / checkpoint.HIGH_WATERMARKS).read_bytes()
    append(log, marker(7, commit=False))
    append(log, produced(7, 1))
    log.roll(NOW_MS)
    for passes in range(3):
        log.cleaned_to = None
        await clean(log, now_ms=NOW_MS + passes)
    assert [header.base_offset for header in headers(log)] == [2]
    await manager.checkpoint_cleaned()
    await manager.checkpoint_recovery_points()
    manager.close(clean=False)
    (tmp_path / checkpoint.HIGH_WATERMARKS).write_bytes(old)
    again = opened(disk, tmp_path).get("t", 0)
    assert again is not None
    assert (again.high_watermark, again.last_stable_offset) == (3, 3)
    assert again.producers.ongoing_transactions() == []


async def test_deletion(disk: FaultyDisk, tmp_path: Path) -> None:
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


async def test_a_replica_that_goes_comes_back_and_goes_again_leaves_nothing(disk: FaultyDisk, tmp_path: Path) -> None:
    """All within file.delete.delay.ms, under one topic id: a reassignment that is cancelled, repeated and cancelled."""
    manager = opened(disk, tmp_path)
    for end in (3, 4, 5):
        append(manager.create("t", 0, TOPIC_ID, CONFIG, NOW_MS), batch(end))
        await manager.delete("t", 0)
        assert not (tmp_path / "t-0").exists()
    deleted = [path.name for path in tmp_path.glob("t-*")]
    assert len(deleted) == 3
    for name in deleted:
        assert re.fullmatch(r"t-0\.[0-9a-f]{32}-delete", name), "Kafka's tools and our start know it by its name"
    await manager.remove_deleted(NOW_MS)
    await manager.remove_deleted(NOW_MS + 100)
    assert list(tmp_path.glob("t-*")) == []


def test_a_log_is_set_aside_as_a_stray_beside_an_earlier_one_of_its_topic(disk: FaultyDisk, tmp_path: Path) -> None:
    manager = opened(disk, tmp_path)
    for topic_id in (TOPIC_ID, OTHER_ID, TOPIC_ID, OTHER_ID):
        append(manager.create("t", 0, topic_id, CONFIG, NOW_MS), batch(3))
    kept = [path / f"{0:020d}.log" for path in tmp_path.glob("t-0.*-stray")]
    assert [path.stat().st_size for path in kept] == [len(batch(3))] * 3


async def test_a_deletion_that_a_stop_interrupted_goes_on(disk: FaultyDisk, tmp_path: Path) -> None:
    (tmp_path / f"t-0.{TOPIC_ID.hex}-delete").mkdir()
    manager = opened(disk, tmp_path)
    assert list(manager) == []
    await manager.remove_deleted(NOW_MS)
    await manager.remove_deleted(NOW_MS + 100)
    assert list(tmp_path.glob("*-delete")) == []


def test_a_topic_that_was_made_anew_starts_empty(disk: FaultyDisk, tmp_path: Path) -> None:
    manager = opened(disk, tmp_path)
    append(manager.create("t", 0, TOPIC_ID, CONFIG, NOW_MS), batch(3))
    assert manager.create("t", 0, OTHER_ID, CONFIG, NOW_MS).log_end_offset == 0


async def test_records_of_a_topic_that_the_metadata_does_not_know_are_never_removed(
    disk: FaultyDisk, tmp_path: Path
) -> None:
    manager = opened(disk, tmp_path)
    append(manager.create("t", 0, TOPIC_ID, CONFIG, NOW_MS), batch(3))
    manager.close(clean=False)
    again = opened(disk, tmp_path)
    again.create("t", 0, OTHER_ID, CONFIG, NOW_MS)
    await again.remove_deleted(NOW_MS)
    await again.remove_deleted(NOW_MS + 1_000_000)
    again.close(clean=True)
    assert (tmp_path / f"t-0.{TOPIC_ID.hex}-stray" / f"{0:020d}.log").stat().st_size == len(batch(3))
    assert [(log.topic, log.topic_id) for log in opened(disk, tmp_path)] == [("t", OTHER_ID)]


async def test_a_deletion_that_fails_leaves_nothing_to_the_next_topic(disk: FaultyDisk, tmp_path: Path) -> None:
    manager = opened(disk, tmp_path)
    append(manager.create("t", 0, TOPIC_ID, CONFIG, NOW_MS), batch(3))
    disk.refuse("rename", "t-0")
    with pytest.raises(OSError, match="refused"):
        await manager.delete("t", 0)
    disk.heal()
    assert manager.get("t", 0) is None
    assert manager.create("t", 0, OTHER_ID, CONFIG, NOW_MS).log_end_offset == 0


def test_a_log_that_cannot_be_opened_leaves_the_others_alone(disk: FaultyDisk, tmp_path: Path) -> None:
    manager = opened(disk, tmp_path)
    for partition in (0, 1):
        append(manager.create("t", partition, TOPIC_ID, CONFIG, NOW_MS), batch(3))
    manager.close(clean=True)
    disk.refuse("open", f"t-0/{0:020d}.log")
    again = opened(disk, tmp_path)
    disk.heal()
    assert [log.partition for log in again] == [1]
    with pytest.raises(OSError, match="could not be opened"):
        again.create("t", 0, TOPIC_ID, CONFIG, NOW_MS)
    again.close(clean=True)
    assert not (tmp_path / checkpoint.CLEAN_SHUTDOWN).exists(), "what was not seen cannot have been closed cleanly"


def test_no_marker_without_a_clean_close_of_every_log(disk: FaultyDisk, tmp_path: Path) -> None:
    manager = opened(disk, tmp_path)
    append(manager.create("t", 0, TOPIC_ID, CONFIG, NOW_MS), batch(3))
    disk.refuse("sync", ".log")
    manager.close(clean=True)
    disk.heal()
    assert not (tmp_path / checkpoint.CLEAN_SHUTDOWN).exists()
    assert not opened(disk, tmp_path).directory.clean_start


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "../x", "a" * 250, "ü", "a\x00b", "a\n"])
def test_names_never_become_paths_unchecked(disk: FaultyDisk, tmp_path: Path, topic: str) -> None:
    manager = opened(disk, tmp_path / "data")
    with pytest.raises(ValueError, match="topic name"):
        manager.create(topic, 0, TOPIC_ID, CONFIG, NOW_MS)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]


async def test_the_longest_topic_name_can_be_deleted(disk: FaultyDisk, tmp_path: Path) -> None:
    manager = opened(disk, tmp_path)
    manager.create("a" * 249, 12345, TOPIC_ID, CONFIG, NOW_MS)
    await manager.delete("a" * 249, 12345)
    (deleted,) = tmp_path.glob("*-delete")
    assert len(deleted.name) == 255


def test_directories_that_are_nobodys_are_left_alone(disk: FaultyDisk, tmp_path: Path) -> None:
    for name in ("lost+found", "t", "t-x", "t-01", "t-99999999999"):
        (tmp_path / name).mkdir()
    assert list(opened(disk, tmp_path)) == []
    assert (tmp_path / "t-01").exists()


def test_compacted_topics_may_have_gaps(disk: FaultyDisk, tmp_path: Path) -> None:
    """After a kill: the cleaner has been there for internal topics, and where its checkpoint says so."""
    for name in ("__transaction_state-0", "cleaned-0", "plain-0"):
        directory = tmp_path / name
        directory.mkdir()
        (directory / f"{0:020d}.log").write_bytes(batch(1, base_offset=3) + batch(1, base_offset=9))
    (tmp_path / checkpoint.CLEANER_OFFSETS).write_bytes(checkpoint.encode_offsets({("cleaned", 0): 5}))
    manager = opened(disk, tmp_path)
    ends = {log.topic: log.log_end_offset for log in manager}
    assert ends == {"__transaction_state": 10, "cleaned": 10, "plain": 0}


@pytest.mark.parametrize(("flushed", "end"), [(0, 0), (6, 6)])
def test_a_gap_is_the_cleaners_only_in_what_was_flushed(
    disk: FaultyDisk, tmp_path: Path, flushed: int, end: int
) -> None:
    """A power cut has emptied the first segment and left the second."""
    directory = tmp_path / "__transaction_state-0"
    directory.mkdir()
    (directory / f"{0:020d}.log").write_bytes(b"")
    (directory / f"{5:020d}.log").write_bytes(batch(1, base_offset=5))
    points = checkpoint.encode_offsets({("__transaction_state", 0): flushed})
    (tmp_path / checkpoint.RECOVERY_POINTS).write_bytes(points)
    (log,) = opened(disk, tmp_path)
    assert log.log_end_offset == end


async def test_checkpoints_that_overlap_leave_the_latest_state(
    disk: FaultyDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job has looked at the recovery points, then one is lowered for a cut: the job's file must not come last."""
    manager = opened(disk, tmp_path)
    log = manager.create("t", 0, TOPIC_ID, CONFIG, NOW_MS)
    for sequence in range(8):
        append(log, produced(7, sequence, size=200))
    await log.flush()
    release = asyncio.Event()
    replace_file = disk.replace_file

    async def slow(path: str, data: bytes) -> None:
        if not release.is_set():
            await release.wait()
        await replace_file(path, data)

    monkeypatch.setattr(disk, "replace_file", slow)
    job = asyncio.ensure_future(manager.checkpoint_recovery_points())
    await asyncio.sleep(0)
    lowering = asyncio.ensure_future(manager.lower_recovery_point("t", 0, 4))
    await asyncio.sleep(0)
    release.set()
    await job
    await lowering
    points = checkpoint.decode_offsets((tmp_path / checkpoint.RECOVERY_POINTS).read_bytes())
    assert points["t", 0] <= 4


async def test_a_cut_lowers_the_recovery_point_on_the_disk_first(disk: FaultyDisk, tmp_path: Path) -> None:
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
    assert log.truncate_to(4, now_ms=NOW_MS)
    assert (log.log_end_offset, log.high_watermark, log.last_stable_offset, log.recovery_point) == (4, 4, 0, 4)


class SlowDisk(FaultyDisk):
    """Replacing the checkpoint of recovery points waits for the test."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[asyncio.Future[None]] = []

    async def replace_file(self, path: str, data: bytes) -> None:
        if path.endswith(checkpoint.RECOVERY_POINTS):
            turn = asyncio.get_running_loop().create_future()
            self.waiting.append(turn)
            await turn
        await super().replace_file(path, data)


async def test_a_checkpoint_is_written_by_one_at_a_time_and_an_older_state_never_overtakes_a_newer_one(
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
    assert len(disk.waiting) == 1  # the second waits for the first, not beside it
    disk.waiting.pop().set_result(None)
    await first
    await asyncio.sleep(0)
    disk.waiting.pop().set_result(None)
    await second
    points = checkpoint.decode_offsets((tmp_path / checkpoint.RECOVERY_POINTS).read_bytes())
    assert max(points.values()) <= 4
    disk.close()
