"""Loading of logs: the metadata log is opened first, all others in threads, and checkpoints keep their entries."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from odradek.protocol.internal_topics import CLUSTER_METADATA
from odradek.storage.config import LogConfig
from odradek.storage.data_directory.log_manager import LogManager
from odradek.storage.files import checkpoint, names
from tests.support.blocked_disk import BlockedDisk
from tests.support.logs import NOW_MS, TOPIC_ID, append, batch, load_all

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.faulty_disk import FaultyDisk

CONFIG = LogConfig(segment_bytes=1_000)
LOGS = 20
ENTRIES = {("t", index): 2 for index in range(LOGS)}


@pytest.fixture
def disk() -> Iterator[BlockedDisk]:
    disk = BlockedDisk()
    yield disk
    disk.allowed.set()
    disk.close()


def claimed(disk: FaultyDisk, root: Path) -> LogManager:
    manager = LogManager(disk, str(root), CONFIG)
    manager.directory.claim(node_id=1, rng=random.Random(1))
    return manager


def written(disk: FaultyDisk, root: Path, *, clean: bool) -> None:
    """Write the metadata log and LOGS logs of two records, and end the run."""
    manager = claimed(disk, root)
    load_all(manager)
    for topic, index in [(CLUSTER_METADATA, 0), *ENTRIES]:
        log = manager.create(topic, index, TOPIC_ID, CONFIG, NOW_MS)
        append(log, batch(1))
        append(log, batch(1))
    manager.close(clean=clean, broker_epoch=7)
    (root / checkpoint.HIGH_WATERMARKS).write_bytes(checkpoint.encode_offsets(ENTRIES))


async def blocked_load(disk: BlockedDisk, manager: LogManager) -> asyncio.Task[None]:
    """Start to load the logs, and return when a thread waits in the first of them."""
    disk.waiting.clear()
    disk.allowed.clear()
    manager.scan(NOW_MS, NOW_MS)
    load = asyncio.ensure_future(manager.load())
    await asyncio.to_thread(disk.waiting.wait, 60)
    return load


async def test_event_loop_runs_while_logs_are_recovered(disk: BlockedDisk, tmp_path: Path) -> None:
    written(disk, tmp_path, clean=False)
    manager = claimed(disk, tmp_path)
    load = await blocked_load(disk, manager)
    assert manager.get(CLUSTER_METADATA, 0) is not None
    assert manager.get("t", 0) is None
    assert (manager.loading.remaining, manager.loading.total) == (LOGS, LOGS + 1)
    disk.allowed.set()
    await load
    assert (manager.loading.remaining, len(list(manager))) == (0, LOGS + 1)


async def test_checkpoint_written_during_the_load_keeps_the_entries_of_all_logs(
    disk: BlockedDisk, tmp_path: Path
) -> None:
    written(disk, tmp_path, clean=False)
    manager = claimed(disk, tmp_path)
    load = await blocked_load(disk, manager)
    await manager.checkpoint_high_watermarks()
    entries = checkpoint.decode_offsets((tmp_path / checkpoint.HIGH_WATERMARKS).read_bytes())
    assert {key: entries.get(key) for key in ENTRIES} == ENTRIES
    disk.allowed.set()
    await load


async def test_cancelled_load_ends_after_its_threads(disk: BlockedDisk, tmp_path: Path) -> None:
    """Otherwise a thread could change files after the lock of the directory was released."""
    written(disk, tmp_path, clean=False)
    manager = claimed(disk, tmp_path)
    load = await blocked_load(disk, manager)
    load.cancel()
    await asyncio.sleep(0)
    assert not load.done()
    disk.allowed.set()
    with pytest.raises(asyncio.CancelledError):
        await load
    assert 0 < manager.loading.remaining < LOGS
    manager.close()
    assert disk.open_files == 0


@pytest.mark.parametrize("clean", [False, True])
async def test_stop_during_the_load_is_clean_only_after_a_clean_shutdown(
    disk: BlockedDisk, tmp_path: Path, clean: bool
) -> None:
    written(disk, tmp_path, clean=clean)
    manager = claimed(disk, tmp_path)
    load = await blocked_load(disk, manager)
    load.cancel()
    disk.allowed.set()
    with pytest.raises(asyncio.CancelledError):
        await load
    manager.close()
    reopened = claimed(disk, tmp_path)
    assert reopened.directory.clean_start == clean
    load_all(reopened)
    assert {log.log_end_offset for log in reopened} == {2}
    assert {log.high_watermark for log in reopened if log.topic == "t"} == {2}


async def test_log_that_cannot_be_opened_does_not_stop_the_load(disk: BlockedDisk, tmp_path: Path) -> None:
    written(disk, tmp_path, clean=False)
    disk.refuse("open", f"t-3/{names.offset_file(0, names.LOG_SUFFIX)}")
    manager = claimed(disk, tmp_path)
    with capture_logs() as events:
        load_all(manager)
    assert len(list(manager)) == LOGS
    assert [event["path"] for event in events if event["event"] == "log not opened"] == [f"{tmp_path}/t-3"]
    assert next(event["logs"] for event in events if event["event"] == "logs loaded") == LOGS + 1
    with pytest.raises(OSError, match="could not be opened"):
        manager.create("t", 3, TOPIC_ID, CONFIG, NOW_MS)
