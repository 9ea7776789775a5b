"""What a consumer group should do, written apart from the core: sets of partitions, and who has which.

The assignors are not modeled: a target is taken from the core when the model says that there must be a new one, and only
judged (everything that is subscribed to, once, by a subscriber).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

SESSION_MS = 45_000
REBALANCE_MS = 60_000
Part = tuple[str, int]


@dataclass
class Member:
    topics: frozenset[str]
    instance: str | None
    epoch: int = 0
    previous: int = -1
    has: dict[Part, int] = field(default_factory=dict)
    """Partition -> since which epoch."""
    giving: dict[Part, int] = field(default_factory=dict)
    waiting: bool = False
    unknown: bool = False
    """A newer coordinator has left it in a state of its own."""
    session_ms: int = 0
    rebalance: tuple[int, int] | None = None
    """(deadline, epoch)"""

    def all(self) -> set[Part]:
        return {*self.has, *self.giving}


Told = tuple[int, set[Part] | None]
"""(epoch, assignment where the answer has one)"""


@dataclass
class Model:
    size_max: int
    now_ms: int
    interval_ms: int = 0
    topics: dict[str, int] = field(default_factory=dict)
    """What there is."""
    exists: bool = False
    epoch: int = 1
    target_epoch: int = 1
    members: dict[str, Member] = field(default_factory=dict)
    targets: dict[str, set[Part]] = field(default_factory=dict)
    assigned_ms: int = 0
    known: dict[str, int] = field(default_factory=dict)
    """The subscribed topics that there were when the epoch was made."""

    # ---- requests ---------------------------------------------------------------------------------------------------

    def join(
        self, name: str, topics: frozenset[str], instance: str | None, new_targets: Callable[[], dict[str, set[Part]]]
    ) -> Told | str:
        if len(self.members) >= self.size_max and name not in self.members:
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
        return self.heard(name, topics, set(), resubscribed, new_targets, joins=True)

    def holder(self, instance: str | None) -> str | None:
        return next((name for name, m in self.members.items() if instance is not None and m.instance == instance), None)

    def refusal(self, name: str, instance: str | None) -> str | None:
        """Why this member may not speak."""
        if not self.exists:
            return "GROUP_ID_NOT_FOUND"
        if instance is None:
            return None if name in self.members else "UNKNOWN_MEMBER_ID"
        holder = self.holder(instance)
        if holder is None:
            return "UNKNOWN_MEMBER_ID"
        return None if holder == name else "FENCED_INSTANCE_ID"

    def beat(
        self,
        name: str,
        instance: str | None,
        epoch: int,
        owned: set[Part] | None,
        topics: frozenset[str] | None,
        new_targets: Callable[[], dict[str, set[Part]]],
    ) -> Told | str:
        if self.exists and len(self.members) >= self.size_max and name not in self.members:
            return "GROUP_MAX_SIZE_REACHED"
        refused = self.refusal(name, instance)
        if refused:
            return refused
        member = self.members[name]
        if epoch != member.epoch and (
            epoch > member.epoch or epoch != member.previous or owned is None or not owned <= member.has.keys()
        ):
            return "FENCED_MEMBER_EPOCH"
        if member.unknown and (owned is None or owned):
            return "FENCED_MEMBER_EPOCH"
        resubscribed = topics is not None and topics != member.topics
        subscription = member.topics if topics is None else topics
        return self.heard(name, subscription, owned, resubscribed, new_targets, joins=False)

    def heard(
        self,
        name: str,
        topics: frozenset[str],
        owned: set[Part] | None,
        resubscribed: bool,
        new_targets: Callable[[], dict[str, set[Part]]],
        *,
        joins: bool,
    ) -> Told:
        member = self.members[name]
        member.topics = topics
        if resubscribed or self.seen() != self.known:
            self.epoch += 1
            self.known = self.seen()
        early = self.assigned_ms and self.interval_ms and self.now_ms < self.assigned_ms + self.interval_ms
        if self.target_epoch < self.epoch and not early:
            self.targets, self.target_epoch, self.assigned_ms = new_targets(), self.epoch, self.now_ms
        before = set(member.has)
        self.step(name, owned, resubscribed)
        member.session_ms = self.now_ms + SESSION_MS
        return member.epoch, set(member.has) if joins or before != set(member.has) else None

    def leave(self, name: str, instance: str | None) -> str | None:
        refused = self.refusal(name, instance)
        if not refused:
            self.remove(name)
        return refused

    def away(self, name: str, instance: str | None) -> str | None:
        refused = self.refusal(name, instance)
        if not refused:
            member = self.members[name]
            member.epoch, member.giving, member.has = -2, {}, dict.fromkeys(member.has, 0)
        return refused

    def commit(self, name: str, epoch: int, part: Part) -> str | None:
        if epoch < 0 and not self.members:
            return None
        member = self.members.get(name)
        if member is None:
            return "UNKNOWN_MEMBER_ID"
        if epoch == member.epoch:
            return None
        since = member.has.get(part, member.giving.get(part))
        return None if since is not None and since <= epoch < member.epoch else "STALE_MEMBER_EPOCH"

    # ---- what follows -----------------------------------------------------------------------------------------------

    def seen(self) -> dict[str, int]:
        wanted = {topic for member in self.members.values() for topic in member.topics}
        return {topic: count for topic, count in self.topics.items() if topic in wanted}

    def wanted(self) -> set[Part]:
        return {(topic, number) for topic, count in self.seen().items() for number in range(count)}

    def step(self, name: str, owned: set[Part] | None, resubscribed: bool) -> None:
        member = self.members[name]
        stable = not (member.giving or member.waiting or member.unknown)
        if stable and member.epoch == self.target_epoch and not resubscribed:
            return
        shape = (dict(member.has), dict(member.giving), member.epoch, member.previous, member.waiting, member.unknown)
        mine = {part for part in member.has if part[0] in member.topics and part[0] in self.topics}
        if member.giving and (owned is None or owned & member.giving.keys()):
            if resubscribed:
                self.part_with(member, set(member.has) - mine, owned)
        elif stable and member.epoch == self.target_epoch:
            self.part_with(member, set(member.has) - mine, owned)
        else:
            self.move(name, owned)
        if shape != (member.has, member.giving, member.epoch, member.previous, member.waiting, member.unknown):
            member.rebalance = (self.now_ms + REBALANCE_MS, member.epoch) if member.giving else None

    def part_with(self, member: Member, lost: set[Part], owned: set[Part] | None) -> None:
        if not lost:
            return
        giving = member.giving | {part: member.has[part] for part in lost}
        member.has = {part: since for part, since in member.has.items() if part not in lost}
        member.previous = member.epoch
        if owned is None or owned & giving.keys():
            member.giving, member.waiting = giving, False

    def move(self, name: str, owned: set[Part] | None) -> None:
        member = self.members[name]
        goal = {p for p in self.targets.get(name, ()) if p[0] in member.topics and p[0] in self.topics}
        lost = {part: since for part, since in member.has.items() if part not in goal}
        member.has = {part: since for part, since in member.has.items() if part in goal}
        member.previous, member.unknown = member.epoch, False
        if lost and (owned is None or owned & lost.keys()):
            member.giving, member.waiting = lost, False
            return
        others = {part for other, m in self.members.items() if other != name for part in m.all()}
        member.has |= dict.fromkeys(goal - others - member.has.keys(), self.target_epoch)
        member.giving, member.waiting, member.epoch = {}, bool(goal & others), self.target_epoch

    def remove(self, name: str) -> None:
        del self.members[name]
        self.targets.pop(name, None)
        self.epoch += 1
        self.known = self.seen()

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
            member.rebalance = (self.now_ms + REBALANCE_MS, member.epoch) if member.giving else None
