"""Clean shutdown: it syncs only the logs that have changed, and a power failure after it loses nothing."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from odradek.simulation.environment.disk import DiskLatency, SimDisk
from odradek.simulation.environment.loop import SimLoop
from odradek.simulation.environment.medium import Medium
from odradek.storage.config import LogConfig
from odradek.storage.data_directory import clean_shutdown
from odradek.storage.data_directory.clean_shutdown import FILE_SYSTEM_SYNC_LOGS_MIN
from odradek.storage.data_directory.log_manager import LogManager
from odradek.storage.disk.os_disk import OsDisk
from odradek.storage.files import checkpoint, names
from tests.support.faulty_disk import FaultyDisk
from tests.support.logs import NOW_MS, TOPIC_ID, append, batch, load_all, marker, produced

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from odradek.storage.disk.port import Disk
    from odradek.storage.log.log import PartitionLog

CONFIG = LogConfig(segment_bytes=1_000, index_interval_bytes=100)
LOGS = 20
ROOT = "/data"


@pytest.fixture
def disk() -> Iterator[FaultyDisk]:
    disk = FaultyDisk()
    yield disk
    disk.close()


def opened(disk: Disk, root: str, logs: int = LOGS, loop: SimLoop | None = None) -> LogManager:
    manager = LogManager(disk, root, CONFIG)
    manager.directory.claim(node_id=1, rng=random.Random(1))
    load_all(manager, run=None if loop is None else loop.run_until_complete)
    for index in range(logs):
        manager.create("t", index, TOPIC_ID, CONFIG, NOW_MS)
    return manager


def log_of(manager: LogManager, index: int) -> PartitionLog:
    log = manager.get("t", index)
    assert log is not None
    return log


def synced_logs(disk: FaultyDisk) -> set[str]:
    """Return the names of the partition directories in which anything was synced."""
    return {part for path in disk.synced for part in path.split("/") if part.startswith("t-")}


def test_clean_shutdown_syncs_only_logs_that_have_changed(disk: FaultyDisk, tmp_path: Path) -> None:
    manager = opened(disk, str(tmp_path))
    for log in manager:
        append(log, produced(7, 0))
    manager.close()
    manager = opened(disk, str(tmp_path))
    disk.synced.clear()
    append(log_of(manager, 3), batch(1))
    log_of(manager, 5).roll(NOW_MS)
    manager.close()
    assert synced_logs(disk) == {"t-3", "t-5"}


@pytest.mark.parametrize("logs", [FILE_SYSTEM_SYNC_LOGS_MIN // 2, FILE_SYSTEM_SYNC_LOGS_MIN])
def test_clean_shutdown_reports_a_step_per_changed_log(disk: FaultyDisk, tmp_path: Path, logs: int) -> None:
    manager = opened(disk, str(tmp_path), logs)
    for log in manager:
        append(log, batch(1))
    steps: list[None] = []
    manager.close(on_step=lambda: steps.append(None))
    assert len(steps) >= logs


def test_leader_epoch_without_records_needs_no_sync(disk: FaultyDisk, tmp_path: Path) -> None:
    manager = opened(disk, str(tmp_path))
    append(log_of(manager, 0), batch(1))
    manager.close()
    manager = opened(disk, str(tmp_path))
    for log in manager:
        log.assign_epoch(9)
    disk.synced.clear()
    manager.close()
    assert synced_logs(disk) == set()
    log = log_of(opened(disk, str(tmp_path)), 0)
    assert log.end_offset_for_epoch(0) == (0, 1)


def test_log_without_records_is_closed_without_a_sync(disk: FaultyDisk, tmp_path: Path) -> None:
    manager = opened(disk, str(tmp_path))
    manager.close()
    assert synced_logs(disk) == set()
    manager = opened(disk, str(tmp_path))
    assert manager.directory.clean_start
    assert all(log.local.is_complete(0) for log in manager)


def test_truncated_log_is_synced(disk: FaultyDisk, tmp_path: Path) -> None:
    manager = opened(disk, str(tmp_path), 1)
    append(log_of(manager, 0), batch(1), commit=False)
    append(log_of(manager, 0), batch(1), commit=False)
    manager.close()
    manager = opened(disk, str(tmp_path), 1)
    log_of(manager, 0).truncate_to(1, now_ms=NOW_MS, monotonic_ms=NOW_MS)
    append(log_of(manager, 0), batch(1))
    disk.synced.clear()
    manager.close()
    assert synced_logs(disk) == {"t-0"}


def test_failed_sync_prevents_the_clean_shutdown_marker(disk: FaultyDisk, tmp_path: Path) -> None:
    manager = opened(disk, str(tmp_path))
    for log in manager:
        append(log, batch(1))
    disk.refuse("sync", f"t-7/{names.offset_file(0, names.LOG_SUFFIX)}")
    manager.close()
    disk.heal()
    assert not opened(disk, str(tmp_path)).directory.clean_start


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "killed"])
@pytest.mark.parametrize(
    ("operation", "suffix"),
    [("read_file", checkpoint.HIGH_WATERMARKS), ("list", "/data")],
    ids=["checkpoint", "directory"],
)
def test_start_that_could_not_read_the_directory_leaves_no_marker_and_all_checkpoints(
    disk: FaultyDisk, tmp_path: Path, operation: str, suffix: str, clean: bool
) -> None:
    """Otherwise the next start would trust the files of a killed process, without the state of its producers."""
    root = tmp_path / "data"
    manager = opened(disk, str(root), 1)
    append(log_of(manager, 0), produced(7, 0))
    asyncio.run(manager.checkpoint_high_watermarks())
    manager.close(clean=clean)
    checkpoints = {path.name: path.read_bytes() for path in root.glob("*-offset-checkpoint")}
    disk.refuse(operation, suffix)
    refused = LogManager(disk, str(root), CONFIG)
    refused.directory.claim(node_id=1, rng=random.Random(1))
    with pytest.raises(OSError, match="refused"):
        refused.scan(NOW_MS, NOW_MS)
    refused.close()
    disk.heal()
    assert {path.name: path.read_bytes() for path in root.glob("*-offset-checkpoint")} == checkpoints
    manager = opened(disk, str(root), 1)
    assert not manager.directory.clean_start
    assert [entry.producer_id for entry in log_of(manager, 0).producers.entries.values()] == [7]


def test_clean_start_lists_each_directory_once_and_opens_each_file_once(disk: FaultyDisk, tmp_path: Path) -> None:
    manager = opened(disk, str(tmp_path))
    for log in manager:
        append(log, produced(7, 0))
    manager.close()
    disk.listed_paths.clear()
    disk.opened_paths.clear()
    opened(disk, str(tmp_path))
    in_logs = [path for path in disk.opened_paths if "/t-" in path]
    assert len(disk.listed_paths) == LOGS + 1
    assert len(in_logs) == len(set(in_logs)) == 3 * LOGS  # log, snapshot, topic id


def test_clean_start_reads_each_small_log_once_and_derives_its_epoch(disk: FaultyDisk, tmp_path: Path) -> None:
    manager = opened(disk, str(tmp_path))
    for log in manager:
        append(log, batch(1, timestamp=NOW_MS), leader_epoch=3)
        append(log, batch(1, timestamp=NOW_MS + 1), leader_epoch=3)
    manager.close()
    disk.read_paths.clear()
    manager = opened(disk, str(tmp_path), 0)
    assert len(disk.read_paths) == len(set(disk.read_paths)) == LOGS
    assert {(*log.epochs.entries(), log.epochs.dirty) for log in manager} == {((3, 0), False)}
    assert {log.segments.active.first_batch_timestamp for log in manager} == {NOW_MS}


async def test_many_changed_logs_share_two_syncs_of_the_file_system(disk: FaultyDisk, tmp_path: Path) -> None:
    manager = opened(disk, str(tmp_path), FILE_SYSTEM_SYNC_LOGS_MIN)
    for log in manager:
        append(log, produced(7, 0))
    disk.synced.clear()
    manager.close(broker_epoch=5)
    assert synced_logs(disk) == set()
    assert disk.file_systems_synced == [str(tmp_path), str(tmp_path)]
    manager = opened(disk, str(tmp_path), 0)
    assert manager.directory.previous_broker_epoch == 5
    assert {state(log) for log in manager} == {(1, (7,))}
    assert {log.epochs.latest for log in manager} == {0}


async def test_failed_sync_of_the_file_system_prevents_the_clean_shutdown_marker(
    disk: FaultyDisk, tmp_path: Path
) -> None:
    manager = opened(disk, str(tmp_path), FILE_SYSTEM_SYNC_LOGS_MIN)
    for log in manager:
        append(log, batch(1))
    disk.refuse("sync_file_system")
    manager.close(broker_epoch=5)
    disk.heal()
    assert not opened(disk, str(tmp_path), 0).directory.clean_start


async def test_logs_are_synced_one_by_one_without_a_sync_of_the_file_system(tmp_path: Path) -> None:
    disk = OsDisk(hold_unsynced=True)  # it does not sync file systems
    manager = opened(disk, str(tmp_path), FILE_SYSTEM_SYNC_LOGS_MIN)
    for log in manager:
        append(log, batch(1))
    manager.close(broker_epoch=5)
    disk.close()
    manager = opened(OsDisk(), str(tmp_path), 0)
    assert manager.directory.clean_start
    assert {log.log_end_offset for log in manager} == {1}


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_power_failure_after_a_clean_shutdown_loses_nothing(
    seed: int, together: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if together:
        monkeypatch.setattr(clean_shutdown, "FILE_SYSTEM_SYNC_LOGS_MIN", 1)
    rng = random.Random(seed)
    loop, medium = SimLoop(random.Random(1)), Medium()
    expected: dict[int, tuple[int, tuple[int, ...]]] = {}
    for _ in range(3):
        disk = SimDisk(medium, loop, random.Random(1), name="n", latency=DiskLatency(cold_probability=0.0))
        manager = opened(disk, ROOT, 4, loop)
        assert {index: state(log_of(manager, index)) for index in expected} == expected
        for log in manager:
            change(log, rng, loop)
        expected = {log.partition: state(log) for log in manager}
        manager.close(broker_epoch=5)
        disk.detach()
        loop.run_until_complete(disk_synced(medium))
        medium.lose_power(rng)
    disk = SimDisk(medium, loop, random.Random(1), name="n", latency=DiskLatency())
    manager = opened(disk, ROOT, 4, loop)
    assert manager.directory.previous_broker_epoch == 5
    assert {index: state(log_of(manager, index)) for index in expected} == expected
    loop.close()


async def disk_synced(medium: Medium) -> None:
    """Make the name of the data directory durable, as `Node` does."""
    medium.directory("/").make_durable()


def state(log: PartitionLog) -> tuple[int, tuple[int, ...]]:
    return log.log_end_offset, tuple(sorted(log.producers.entries))


def change(log: PartitionLog, rng: random.Random, loop: SimLoop) -> None:
    """Apply some random changes to the log, or none."""
    for _ in range(rng.choice((0, 0, 1, 4))):
        choice = rng.randrange(6)
        producer_id = rng.randrange(1_000, 2_000)
        if choice == 0:
            log.assign_epoch(log.epochs.latest + 1)
        elif choice == 1:
            log.roll(NOW_MS)
        elif choice == 2:
            loop.run_until_complete(log.flush())
        elif choice == 3:
            append(log, produced(producer_id, 0, transactional=True))
            append(log, marker(producer_id, commit=rng.random() < 0.5))
        else:
            append(log, produced(producer_id, 0, size=300), leader_epoch=max(log.epochs.latest, 0))
