"""What has to be on the disk when a replica is made to agree with its leader."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.lost_heads import LostHeads
from broker.replica_truncation import Mender
from cluster.replication.follower import Event
from protocol.records.metadata import PartitionChangeRecord
from storage.producer_entry import Origin
from tests.support.data_rig import EIO, NODE, NOW_MS, Rig, batch

LEADER = 2


class Directory:
    """The data directory, as far as it is asked; what happens is noted in `done`."""

    def __init__(self, rig: Rig, done: list[tuple[str, int]]) -> None:
        self.rig = rig
        self.done = done
        self.failing = False

    async def lower_recovery_point(self, topic: str, partition: int, offset: int) -> None:
        self.done.append(("recovery point", offset))

    async def checkpoint_log_starts(self) -> None:
        if self.failing:
            raise OSError(EIO, "injected")
        self.done.append(("log start", self.rig.partition().log.log_start_offset))


class Leader:
    """Its log has the offsets from 0 to 9."""

    async def request(self, *_: Any, **__: Any) -> Any:
        self.asked = not getattr(self, "asked", False)
        row = SimpleNamespace(error_code=0, offset=9 if self.asked else 0)
        return SimpleNamespace(topics=[SimpleNamespace(partitions=[row])])


@pytest.mark.parametrize("failing", [False, True])
async def test_a_replica_that_begins_anew_before_its_beginning_forgets_that_one_first(
    tmp_path: Path, *, failing: bool
) -> None:
    """A log start that was written down would hide what is replicated anew from the next life, which doubts nothing."""
    rig = Rig(tmp_path)
    topic_id = rig.topic("t", replicas=(NODE, LEADER))
    partition = rig.partition()
    rig.play(PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=LEADER))
    partition.log.truncate_fully_and_start_at(5, now_ms=NOW_MS)
    partition.log.append_as_leader(batch(), leader_epoch=1, origin=Origin.REPLICATION, now_ms=NOW_MS)
    done: list[tuple[str, int]] = []
    lost_heads = LostHeads(lambda: done.append(("vouched", 0)), lambda _: None)
    lost_heads.begin([partition.log], rig.metadata.image, NODE, trusted=False)
    directory = Directory(rig, done)
    directory.failing = failing
    peers: Any = Leader()
    mender = Mender(NODE, directory, peers, rig.clock, 1000, lost_heads)
    following = SimpleNamespace(leader=LEADER, leader_epoch=1, step=lambda _: None)
    followed: Any = SimpleNamespace(partition=partition, following=following)
    event = await mender.locate(followed, lambda _: partition.online)
    assert event is (Event.DISK_FAILED if failing else Event.TRUNCATED)
    assert done == ([("recovery point", 0)] if failing else [("recovery point", 0), ("log start", 0), ("vouched", 0)])
