"""Model of a consumer group (KIP-848): sets of partitions and their members. It shares no code with the core.

The assignors are not modeled. When the model expects a new target assignment, it takes the core's and checks only that
it assigns each subscribed partition once, to a subscriber.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

SESSION_MS = 45_000
REBALANCE_MS = 60_000
Partition = tuple[str, int]


@dataclass
class Member:
    topics: frozenset[str]
    instance: str | None
    epoch: int = 0
    previous: int = -1
    assigned: dict[Partition, int] = field(default_factory=dict)
    """Partition -> member epoch at which it was assigned."""
    revoking: dict[Partition, int] = field(default_factory=dict)
    unreleased: bool = False
    unknown: bool = False
    """True if a newer coordinator stored a member state that this version does not know."""
    session_ms: int = 0
    rebalance: tuple[int, int] | None = None
    """(deadline, member epoch) of the rebalance timeout."""

    def owned(self) -> set[Partition]:
        return {*self.assigned, *self.revoking}


Heartbeat = tuple[int, set[Partition] | None]
"""(member epoch, assignment or None) of a heartbeat response."""


@dataclass
class Model:
    """Model of one consumer group."""

    size_max: int
    now_ms: int
    interval_ms: int = 0
    topics: dict[str, int] = field(default_factory=dict)
    """Topic -> number of partitions."""
    exists: bool = False
    epoch: int = 1
    target_epoch: int = 1
    members: dict[str, Member] = field(default_factory=dict)
    targets: dict[str, set[Partition]] = field(default_factory=dict)
    assigned_ms: int = 0
    known_topics: dict[str, int] = field(default_factory=dict)
    """Subscribed topics at the last bump of the group epoch, with their number of partitions."""

    # ---- requests ---------------------------------------------------------------------------------------------------

    def join(
        self,
        name: str,
        topics: frozenset[str],
        instance: str | None,
        new_targets: Callable[[], dict[str, set[Partition]]],
    ) -> Heartbeat | str:
        if self.is_full_for(name, instance):
            return "GROUP_MAX_SIZE_REACHED"
        old = self.holder(instance)
        if old is not None:
            static = self.members[old]
            if static.epoch != -2:
                return "UNRELEASED_INSTANCE_ID"
            del self.members[old]
            self.members[name] = replace(static, epoch=0, previous=0, rebalance=None)
            self.targets[name] = self.targets.pop(old, set())
        self.exists = True
        resubscribed = (name not in self.members and bool(topics)) or (
            name in self.members and self.members[name].topics != topics
        )
        member = self.members.setdefault(name, Member(topics, instance))
        member.instance = instance if instance is not None else member.instance
        return self.heartbeat(name, topics, set(), resubscribed, new_targets, joins=True)

    def is_full_for(self, name: str, instance: str | None) -> bool:
        """Return True if the group is full, and would grow by this member."""
        return len(self.members) >= self.size_max and name not in self.members and self.holder(instance) is None

    def holder(self, instance: str | None) -> str | None:
        return next((name for name, m in self.members.items() if instance is not None and m.instance == instance), None)

    def refusal(self, name: str, instance: str | None) -> str | None:
        """Return the error for a request of this member, or None if the request is valid."""
        if not self.exists:
            return "GROUP_ID_NOT_FOUND"
        if instance is None:
            return None if name in self.members else "UNKNOWN_MEMBER_ID"
        holder = self.holder(instance)
        if holder is None:
            return "UNKNOWN_MEMBER_ID"
        return None if holder == name else "FENCED_INSTANCE_ID"

    def checked_heartbeat(
        self,
        name: str,
        instance: str | None,
        epoch: int,
        owned: set[Partition] | None,
        topics: frozenset[str] | None,
        new_targets: Callable[[], dict[str, set[Partition]]],
    ) -> Heartbeat | str:
        if self.exists and self.is_full_for(name, instance):
            return "GROUP_MAX_SIZE_REACHED"
        error = self.refusal(name, instance)
        if error:
            return error
        member = self.members[name]
        if epoch != member.epoch and (
            epoch > member.epoch or epoch != member.previous or owned is None or not owned <= member.assigned.keys()
        ):
            return "FENCED_MEMBER_EPOCH"
        if member.unknown and (owned is None or owned):
            return "FENCED_MEMBER_EPOCH"
        resubscribed = topics is not None and topics != member.topics
        subscription = member.topics if topics is None else topics
        return self.heartbeat(name, subscription, owned, resubscribed, new_targets, joins=False)

    def heartbeat(
        self,
        name: str,
        topics: frozenset[str],
        owned: set[Partition] | None,
        resubscribed: bool,
        new_targets: Callable[[], dict[str, set[Partition]]],
        *,
        joins: bool,
    ) -> Heartbeat:
        member = self.members[name]
        member.topics = topics
        if resubscribed or self.subscribed() != self.known_topics:
            self.epoch += 1
            self.known_topics = self.subscribed()
        is_early = self.assigned_ms and self.interval_ms and self.now_ms < self.assigned_ms + self.interval_ms
        if self.target_epoch < self.epoch and not is_early:
            self.targets, self.target_epoch, self.assigned_ms = new_targets(), self.epoch, self.now_ms
        before = set(member.assigned)
        self.reconcile(name, owned, resubscribed)
        member.session_ms = self.now_ms + SESSION_MS
        return member.epoch, set(member.assigned) if joins or before != set(member.assigned) else None

    def leave(self, name: str, instance: str | None) -> str | None:
        error = self.refusal(name, instance)
        if not error:
            self.remove(name)
        return error

    def leave_static(self, name: str, instance: str | None) -> str | None:
        error = self.refusal(name, instance)
        if not error:
            member = self.members[name]
            member.epoch, member.revoking, member.assigned = -2, {}, dict.fromkeys(member.assigned, 0)
        return error

    def commit(self, name: str, epoch: int, partition: Partition) -> str | None:
        if epoch < 0 and not self.members:
            return None
        member = self.members.get(name)
        if member is None:
            return "UNKNOWN_MEMBER_ID"
        if epoch == member.epoch:
            return None
        since = member.assigned.get(partition, member.revoking.get(partition))
        return None if since is not None and since <= epoch < member.epoch else "STALE_MEMBER_EPOCH"

    # ---- reconciliation and timers ----------------------------------------------------------------------------------

    def subscribed(self) -> dict[str, int]:
        wanted = {topic for member in self.members.values() for topic in member.topics}
        return {topic: count for topic, count in self.topics.items() if topic in wanted}

    def wanted(self) -> set[Partition]:
        return {(topic, number) for topic, count in self.subscribed().items() for number in range(count)}

    def reconcile(self, name: str, owned: set[Partition] | None, resubscribed: bool) -> None:
        member = self.members[name]
        stable = not (member.revoking or member.unreleased or member.unknown)
        if stable and member.epoch == self.target_epoch and not resubscribed:
            return
        shape = (
            dict(member.assigned),
            dict(member.revoking),
            member.epoch,
            member.previous,
            member.unreleased,
            member.unknown,
        )
        kept = {
            partition for partition in member.assigned if partition[0] in member.topics and partition[0] in self.topics
        }
        if member.revoking and (owned is None or owned & member.revoking.keys()):
            if resubscribed:
                self.revoke(member, set(member.assigned) - kept, owned)
        elif stable and member.epoch == self.target_epoch:
            self.revoke(member, set(member.assigned) - kept, owned)
        else:
            self.move(name, owned)
        if shape != (
            member.assigned,
            member.revoking,
            member.epoch,
            member.previous,
            member.unreleased,
            member.unknown,
        ):
            member.rebalance = (self.now_ms + REBALANCE_MS, member.epoch) if member.revoking else None

    def revoke(self, member: Member, lost: set[Partition], owned: set[Partition] | None) -> None:
        if not lost:
            return
        revoking = member.revoking | {partition: member.assigned[partition] for partition in lost}
        member.assigned = {partition: since for partition, since in member.assigned.items() if partition not in lost}
        member.previous = member.epoch
        if owned is None or owned & revoking.keys():
            member.revoking, member.unreleased = revoking, False

    def move(self, name: str, owned: set[Partition] | None) -> None:
        member = self.members[name]
        target = {p for p in self.targets.get(name, ()) if p[0] in member.topics and p[0] in self.topics}
        lost = {partition: since for partition, since in member.assigned.items() if partition not in target}
        member.assigned = {partition: since for partition, since in member.assigned.items() if partition in target}
        member.previous, member.unknown = member.epoch, False
        if lost and (owned is None or owned & lost.keys()):
            member.revoking, member.unreleased = lost, False
            return
        others = {partition for other, m in self.members.items() if other != name for partition in m.owned()}
        member.assigned |= dict.fromkeys(target - others - member.assigned.keys(), self.target_epoch)
        member.revoking, member.unreleased, member.epoch = {}, bool(target & others), self.target_epoch

    def remove(self, name: str) -> None:
        del self.members[name]
        self.targets.pop(name, None)
        self.epoch += 1
        self.known_topics = self.subscribed()
        self.complete_if_empty()

    def complete_if_empty(self) -> None:
        """Without members, the target assignment is complete, and the next one may be computed immediately."""
        if not self.members:
            self.target_epoch, self.assigned_ms = self.epoch, 0

    def wait(self, ms: int) -> None:
        until = self.now_ms + ms
        while True:
            due = min(((when, name) for name in self.members for when in self.deadlines(name)), default=(until + 1, ""))
            if due[0] > until:
                break
            self.now_ms = due[0]
            member = self.members[due[1]]
            if member.session_ms <= self.now_ms or (member.rebalance or (0, 0))[1] == member.epoch:
                self.remove(due[1])
            else:
                member.rebalance = None
        self.now_ms = until

    def deadlines(self, name: str) -> list[int]:
        member = self.members[name]
        return [member.session_ms] + ([] if member.rebalance is None else [member.rebalance[0]])

    def crash(self) -> None:
        for member in self.members.values():
            member.session_ms = self.now_ms + SESSION_MS
            member.rebalance = (self.now_ms + REBALANCE_MS, member.epoch) if member.revoking else None
