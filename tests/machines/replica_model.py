"""What the replicas of a cluster hold, as plainly as can be: the measure of what the controller decides.

Every replica's log is a list of values. A leader appends, replicas that follow it copy it, and a value is acknowledged when every
member of the ISR holds it and there are enough of them. A broker that stops uncleanly loses any number of values from the end of
its logs; one that loses its disk loses all.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.cluster.metadata.image import PartitionImage

NO_LEADER = -1


@dataclass
class Replicas:
    """One partition. `excused`: brokers that stopped uncleanly as the only ones in sync, where nothing can be promised."""

    min_isr: int
    logs: dict[int, list[int]] = field(default_factory=dict)
    acknowledged: list[int] = field(default_factory=list)
    leaders: dict[int, int] = field(default_factory=dict)
    excused: set[int] = field(default_factory=set)
    last: PartitionImage | None = None

    def log(self, broker_id: int) -> list[int]:
        return self.logs.setdefault(broker_id, [])

    # ---- what brokers do ----------------------------------------------------------------------------------------------

    def append(self, partition: PartitionImage, value: int) -> None:
        self.log(partition.leader).append(value)
        self.acknowledge(partition)

    def copy(self, partition: PartitionImage, follower: int, length: int) -> None:
        """The follower takes the leader's log, at least as far as they agree, at most `length` values more."""
        leading = self.log(partition.leader)
        self.logs[follower] = leading[: self.agreed(partition, follower) + length]
        self.acknowledge(partition)

    def agreed(self, partition: PartitionImage, follower: int) -> int:
        """How far the follower's log is the leader's: what it has beyond that will be truncated."""
        leading, own = self.log(partition.leader), self.log(follower)
        length = 0
        while length < min(len(leading), len(own)) and leading[length] == own[length]:
            length += 1
        return length

    def caught_up(self, partition: PartitionImage, follower: int) -> bool:
        leading = self.log(partition.leader)
        return self.log(follower) == leading

    def acknowledge(self, partition: PartitionImage) -> None:
        """The high watermark moves while enough replicas are in sync."""
        if len(partition.isr) < min(self.min_isr, len(partition.replicas)):
            return
        held = min(self.agreed(partition, broker_id) for broker_id in partition.isr)
        if held > len(self.acknowledged):
            self.acknowledged = self.log(partition.leader)[:held]

    def lose(self, broker_id: int, kept: int) -> None:
        """A stop that is not clean."""
        self.logs[broker_id] = self.log(broker_id)[:kept]

    # ---- what the controller decides ----------------------------------------------------------------------------------

    def follow(self, partition: PartitionImage) -> None:
        """Judge a new state. The rules are written here once more, from what they are for."""
        before = self.last
        self.last = partition
        if before is not None:
            self._epochs(before, partition)
        leader = partition.leader
        if leader == NO_LEADER:
            return
        led_before = self.leaders.setdefault(partition.leader_epoch, leader)
        assert led_before == leader, f"two leaders in epoch {partition.leader_epoch}: {led_before}, {leader}"
        if before is not None and before.leader == leader and before.leader_epoch == partition.leader_epoch:
            self.acknowledge(partition)
            return
        uncleanly = partition.leader_recovery_state == 1 and (before is None or partition.isr == (leader,))
        held = self.log(leader)[: len(self.acknowledged)]
        if not uncleanly and leader not in self.excused:
            assert held == self.acknowledged, f"{leader} leads with {held}, but {self.acknowledged} is acknowledged"
        self.acknowledged = held
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
    """What holds for a state by itself."""
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
