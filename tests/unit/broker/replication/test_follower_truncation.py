"""Follower truncation: checkpoints and flushes that must precede the next fetch."""

import asyncio
from errno import EMFILE
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.replication.follower_truncation import FollowerTruncation
from odradek.broker.replication.log_start_check import LogStartChecks
from odradek.cluster.replication.follower import Event
from odradek.protocol.records.metadata import PartitionChangeRecord
from odradek.storage.producers.entry import Origin
from tests.support.data_rig import EIO, NODE, NOW_MS, Rig, batch

LEADER = 2


def followed_partition(rig: Rig) -> Any:
    """Make a replica with four batches that follows LEADER."""
    topic_id = rig.topic("t", replicas=(NODE, LEADER))
    partition = rig.partition()
    for _ in range(4):
        partition.log.append_as_leader(
            batch(), leader_epoch=0, origin=Origin.REPLICATION, now_ms=NOW_MS, monotonic_ms=NOW_MS
        )
    rig.play(PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=LEADER))
    fetch_state = SimpleNamespace(leader=LEADER, leader_epoch=1, step=lambda _: None)
    return SimpleNamespace(partition=partition, fetch_state=fetch_state)


def truncation_of(rig: Rig, done: list[tuple[str, int]]) -> FollowerTruncation:
    peers: Any = Leader()
    directory: Any = Directory(rig, done)
    return FollowerTruncation(
        NODE,
        directory,
        peers,
        rig.clock,
        1000,
        LogStartChecks(lambda: done.append(("vouched", 0)), lambda _: None),
    )


class Directory:
    """In-memory data directory. It records the requested checkpoints in `done`."""

    def __init__(self, rig: Rig, done: list[tuple[str, int]]) -> None:
        self.rig = rig
        self.disk = rig.disk
        self.done = done
        self.failing = False

    async def lower_recovery_point(self, topic: str, partition: int, offset: int) -> None:
        self.done.append(("recovery point", offset))

    async def checkpoint_log_starts(self) -> None:
        if self.failing:
            raise OSError(EIO, "injected")
        self.done.append(("log start", self.rig.partition().log.log_start_offset))


class Leader:
    """In-memory leader with a log from offset 0 to 9.

    ListOffsets returns its end and its start in turn.
    """

    async def request(self, *_: Any, **__: Any) -> Any:
        self.latest_sent = not getattr(self, "latest_sent", False)
        row = SimpleNamespace(error_code=0, offset=9 if self.latest_sent else 0)
        return SimpleNamespace(topics=[SimpleNamespace(partitions=[row])])


@pytest.mark.parametrize("failing", [False, True])
async def test_replica_that_restarts_below_its_log_start_lowers_the_checkpoint_first(
    tmp_path: Path, *, failing: bool
) -> None:
    """The log start offset on the disk must not survive: after a restart with trusted logs it would hide the new
    records.
    """
    rig = Rig(tmp_path)
    topic_id = rig.topic("t", replicas=(NODE, LEADER))
    partition = rig.partition()
    rig.play(PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=LEADER))
    partition.log.truncate_fully_and_start_at(5, now_ms=NOW_MS)
    partition.log.append_as_leader(
        batch(), leader_epoch=1, origin=Origin.REPLICATION, now_ms=NOW_MS, monotonic_ms=NOW_MS
    )
    done: list[tuple[str, int]] = []
    log_start_checks = LogStartChecks(lambda: done.append(("vouched", 0)), lambda _: None)
    log_start_checks.begin([partition.log], rig.metadata.image, NODE, trusted=False)
    directory: Any = Directory(rig, done)
    directory.failing = failing
    peers: Any = Leader()
    truncation = FollowerTruncation(NODE, directory, peers, rig.clock, 1000, log_start_checks)
    fetch_state = SimpleNamespace(leader=LEADER, leader_epoch=1, step=lambda _: None)
    followed: Any = SimpleNamespace(partition=partition, fetch_state=fetch_state)
    event = await truncation.locate(followed, lambda _: partition.online)
    assert event is (Event.DISK_FAILED if failing else Event.TRUNCATED)
    assert done == ([("recovery point", 0)] if failing else [("recovery point", 0), ("log start", 0), ("vouched", 0)])


@pytest.mark.parametrize("from_start", [False, True])
@pytest.mark.parametrize("failing", [False, True])
async def test_truncation_is_flushed_before_the_next_fetch(tmp_path: Path, *, from_start: bool, failing: bool) -> None:
    rig = Rig(tmp_path)
    followed = followed_partition(rig)
    log = followed.partition.log
    truncation = truncation_of(rig, [])
    rig.disk.sync_allowed = asyncio.Event()
    work = (
        truncation.start_at(followed, 2, lambda _: True)
        if from_start
        else truncation.truncate_to_epoch(followed, 0, 2, lambda _: True)
    )
    truncating = asyncio.ensure_future(work)
    while log.local.truncation.unsynced is None:
        await asyncio.sleep(0)
    assert log.log_end_offset == 2
    assert not truncating.done()
    if failing:
        rig.disk.failing["sync"] = EIO
    rig.disk.sync_allowed.set()
    assert await truncating is (Event.DISK_FAILED if failing else Event.TRUNCATED)
    assert (log.local.truncation.unsynced is None, followed.partition.online) == (not failing, not failing)


async def test_truncation_without_descriptors_is_repeated(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    followed = followed_partition(rig)
    log = followed.partition.log
    done: list[tuple[str, int]] = []
    truncation = truncation_of(rig, done)
    rig.disk.failing["resources"] = EMFILE
    assert await truncation.start_at(followed, 2, lambda _: True) is Event.RETRIABLE_ERROR
    assert await truncation.truncate_to_epoch(followed, 0, 2, lambda _: True) is Event.RETRIABLE_ERROR
    assert (done, log.log_end_offset, followed.partition.online) == ([], 4, True)
    rig.disk.failing.clear()
    assert await truncation.truncate_to_epoch(followed, 0, 2, lambda _: True) is Event.TRUNCATED
    assert log.log_end_offset == 2
