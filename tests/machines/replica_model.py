"""Model of the replica logs of a cluster, used to check the decisions of the controller.

A log is a list of values. The leader appends, followers copy, and a value is acknowledged when all ISR members hold it
and the ISR has at least `min.insync.replicas` members. A broker that stops uncleanly loses a suffix of its logs; one
that loses its disk loses all values.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.cluster.metadata.image import PartitionImage

NO_LEADER = -1


@dataclass
class Replicas:
    """Model of one partition.

    `excused`: brokers that stopped uncleanly as the only ISR member. They may lose acknowledged values.
    """

    min_isr: int
    logs: dict[int, list[int]] = field(default_factory=dict)
    acknowledged: list[int] = field(default_factory=list)
    leaders: dict[int, int] = field(default_factory=dict)
    excused: set[int] = field(default_factory=set)
    previous: PartitionImage | None = None

    def log(self, broker_id: int) -> list[int]:
        return self.logs.setdefault(broker_id, [])

    # ---- replication ------------------------------------------------------------------------------------------------

    def append(self, partition: PartitionImage, value: int) -> None:
        self.log(partition.leader).append(value)
        self.acknowledge(partition)

    def copy(self, partition: PartitionImage, follower: int, length: int) -> None:
        """Copy the leader's log to the follower: the common prefix, and at most `length` further values."""
        leader_log = self.log(partition.leader)
        self.logs[follower] = leader_log[: self.agreed(partition, follower) + length]
        self.acknowledge(partition)

    def agreed(self, partition: PartitionImage, follower: int) -> int:
        """Return the length of the common prefix. The follower truncates the rest of its log."""
        leader_log, own = self.log(partition.leader), self.log(follower)
        length = 0
        while length < min(len(leader_log), len(own)) and leader_log[length] == own[length]:
            length += 1
        return length

    def caught_up(self, partition: PartitionImage, follower: int) -> bool:
        leader_log = self.log(partition.leader)
        return self.log(follower) == leader_log

    def acknowledge(self, partition: PartitionImage) -> None:
        """Advance the high watermark if the ISR has enough members."""
        if len(partition.isr) < min(self.min_isr, len(partition.replicas)):
            return
        leader_prefix = min(self.agreed(partition, broker_id) for broker_id in partition.isr)
        if leader_prefix > len(self.acknowledged):
            self.acknowledged = self.log(partition.leader)[:leader_prefix]

    def lose(self, broker_id: int, kept: int) -> None:
        """Truncate the log to `kept` values, as an unclean stop does."""
        self.logs[broker_id] = self.log(broker_id)[:kept]

    # ---- checks of decisions ----------------------------------------------------------------------------------------

    def check_change(self, partition: PartitionImage) -> None:
        """Check a new partition state: epochs increase, each epoch has one leader, and a new leader has all
        acknowledged values.
        """
        before = self.previous
        self.previous = partition
        if before is not None:
            self._epochs(before, partition)
        leader = partition.leader
        if leader == NO_LEADER:
            return
        known_leader = self.leaders.setdefault(partition.leader_epoch, leader)
        assert known_leader == leader, f"two leaders in epoch {partition.leader_epoch}: {known_leader}, {leader}"
        if before is not None and before.leader == leader and before.leader_epoch == partition.leader_epoch:
            self.acknowledge(partition)
            return
        is_unclean = partition.leader_recovery_state == 1 and (before is None or partition.isr == (leader,))
        leader_prefix = self.log(leader)[: len(self.acknowledged)]
        if not is_unclean and leader not in self.excused:
            assert leader_prefix == self.acknowledged, (
                f"leader {leader} has {leader_prefix}, but {self.acknowledged} is acknowledged"
            )
        self.acknowledged = leader_prefix
        self.excused.discard(leader)

    def _epochs(self, before: PartitionImage, after: PartitionImage) -> None:
        if before == after:
            return
        assert after.partition_epoch > before.partition_epoch
        assert after.leader_epoch >= before.leader_epoch
        if before.leader != after.leader or set(before.replicas) - set(after.replicas):
            assert after.leader_epoch > before.leader_epoch
        assert after.leader_epoch - before.leader_epoch <= after.partition_epoch - before.partition_epoch


def check_shape(partition: PartitionImage, min_isr: int, *, elr: bool) -> None:
    """Check the invariants of a single partition state."""
    members, replicas = partition.isr, partition.replicas
    assert replicas
    assert len(set(replicas)) == len(replicas) == len(partition.directories)
    assert len(set(members)) == len(members)
    assert set(members) <= set(replicas)
    assert set(partition.elr) <= set(replicas) - set(members)
    assert set(partition.adding_replicas) | set(partition.removing_replicas) <= set(replicas)
    assert not set(partition.adding_replicas) >= set(replicas)
    assert partition.leader == NO_LEADER or partition.leader in members
    if not elr:
        assert members
        assert not partition.elr
    elif not members:
        assert partition.leader == NO_LEADER
        assert partition.elr or partition.last_known_elr
    if partition.elr:
        assert len(members) < min(min_isr, len(replicas))
    if partition.leader != NO_LEADER:
        assert not partition.last_known_elr
    if partition.leader_recovery_state == 1:
        assert len(members) <= 1
