"""What a group of clients of both protocols should do, written apart from the core: a classic group, or a consumer group, and what makes the
one of the other (KIP-848, "Supporting online consumer group upgrade").

A classic group is the model of `classic_model.py`, a consumer group that of `modern_model.py` with members of the classic protocol in it.
Partitions are (topic, number); what members say of themselves and what a leader assigns are looked up by the bytes that the core sees.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tests.machines.classic_model import Model as ClassicModel
from tests.machines.modern_model import Member as PlainMember
from tests.machines.modern_model import Model as ConsumerModel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.machines.modern_model import Part, Told

REBALANCE_MS = 60_000
CONSUMER_SESSION_MS = 45_000
UPGRADES, DOWNGRADES = ("upgrade", "bidirectional"), ("downgrade", "bidirectional")


@dataclass
class Member(PlainMember):
    """`classic`: speaks the classic protocol, with the session that it has chosen."""

    classic: bool = False
    protocols: tuple[tuple[str, bytes], ...] = ()
    session: int = CONSUMER_SESSION_MS
    join_ms: int | None = None
    """Until then it has to join again."""
    sync_ms: int | None = None
    """Until then it has to ask for its assignment."""


class Model(ConsumerModel):
    """One group of either kind. `exists`: it is a consumer group."""

    members: dict[str, Member]  # type: ignore[assignment]

    def __init__(self, policy: str, now_ms: int) -> None:
        super().__init__(size_max=1_000, now_ms=now_ms)
        self.policy = policy
        self.classic = ClassicModel(0, 1_000, now_ms)
        self.said: dict[bytes, tuple[frozenset[str], frozenset[Part]]] = {}
        """Metadata of a classic member -> its topics, and what it owns."""

    @property
    def kind(self) -> str:
        if self.exists:
            return "consumer"
        return "none" if self.classic.state == "Dead" else "classic"

    def fresh(self) -> str:
        self.classic.drawn += 1
        return str(self.classic.drawn)

    # ---- from one kind to the other ---------------------------------------------------------------------------------

    def upgrade(self) -> str | None:
        """The classic group becomes a consumer group; why it may not."""
        group = self.classic
        if not group.members:
            group.forget()
            group.log = None
            self.begin(1)
            return None
        if self.policy not in UPGRADES:
            return "GROUP_ID_NOT_FOUND"
        self.begin(group.generation)
        holders: dict[Part, str] = {}
        for one in group.members:
            self.targets[one["id"]] = {part for part in one["assignment"] or () if part[0] in self.topics}
            holders |= dict.fromkeys(self.targets[one["id"]], one["id"])
        for one in group.members:
            for part in sorted(self.metadata_of(one)[1]):
                holders.setdefault(part, one["id"])
        for one in group.members:
            has = {part: self.epoch for part, who in holders.items() if who == one["id"]}
            self.members[one["id"]] = Member(
                self.metadata_of(one)[0],
                one["instance"],
                epoch=self.epoch,
                previous=self.epoch,
                has=has,
                session_ms=self.now_ms + one["session"],
                classic=True,
                protocols=tuple(one["protocols"]),
                session=one["session"],
            )
            group.tell(one["joining"], ("REBALANCE_IN_PROGRESS", one["id"]))
            group.tell(one["syncing"], ("REBALANCE_IN_PROGRESS", b""))
        everything = {part for target in self.targets.values() for part in target}
        self.known = self.seen() if group.state == "Stable" and everything == self.wanted() else {}
        group.forget()
        group.log = None
        return None

    def begin(self, epoch: int) -> None:
        self.exists, self.epoch, self.target_epoch, self.assigned_ms = True, epoch, epoch, 0
        self.members, self.targets, self.known = {}, {}, {}

    def metadata_of(self, one: dict[str, Any]) -> tuple[frozenset[str], frozenset[Part]]:
        return self.said[dict(one["protocols"])["range"]]

    def downgrade(self, staying: Iterable[str], *, rebalance: bool) -> None:
        """Everybody keeps what he holds; who holds what others wait for hears of it when he is asked to join again."""
        group = self.classic
        group.forget()
        group.state, group.before = "Stable", "Dead"
        group.generation, group.type, group.protocol = self.epoch, "consumer", "range"
        for name in staying:
            member = self.members[name]
            one: dict[str, Any] = {"id": name, "instance": member.instance, "protocols": list(member.protocols)}
            one |= {
                "session": member.session,
                "rebalance": REBALANCE_MS,
                "joining": None,
                "syncing": None,
                "new": False,
            }
            group.members.append(one | {"assignment": frozenset(member.all())})
            group.hear(group.members[-1])
        group.leader = group.members[0]["id"]
        if rebalance:
            group.enter("PreparingRebalance")
            group.clocks["join"] = (self.now_ms + REBALANCE_MS, ("time_up",))
        group.log = group.written() | ({"leader": None} if rebalance else {})
        self.exists, self.members, self.targets = False, {}, {}

    def only_classic(self, staying: Iterable[str]) -> bool:
        """May the group become a classic one when these are left?"""
        left = [self.members[name] for name in staying]
        return bool(left) and all(member.classic for member in left) and self.policy in DOWNGRADES

    # ---- the consumer protocol --------------------------------------------------------------------------------------

    def join(
        self, name: str, topics: frozenset[str], instance: str | None, new_targets: Callable[[], dict[str, set[Part]]]
    ) -> Told | str:
        if self.kind == "classic":
            refused = self.upgrade()
            if refused:
                return refused
        if not self.exists:
            self.begin(1)
        old = self.holder(instance)
        if old is not None:
            if not self.members[old].classic and self.members[old].epoch != -2:
                return "UNRELEASED_INSTANCE_ID"
            self.take_place(old, name)
        before = self.members.get(name)
        self.members[name] = replace(before, classic=False) if before else Member(topics, instance)
        self.members[name].instance = instance
        resubscribed = before is None or before.topics != topics
        told = self.heard(name, topics, set(), resubscribed, new_targets, joins=True)
        self.members[name].session = CONSUMER_SESSION_MS
        return told

    def take_place(self, old: str, name: str) -> None:
        """A static member is back under another id."""
        static = self.members.pop(old)
        self.members[name] = replace(static, epoch=0, previous=0, rebalance=None, join_ms=None, sync_ms=None)
        self.targets[name] = self.targets.pop(old, set())

    def step(self, name: str, owned: set[Part] | None, resubscribed: bool) -> None:
        """Who speaks the classic protocol has the clock of its next JoinGroup instead."""
        member = self.members[name]
        before = member.rebalance
        super().step(name, owned, resubscribed)
        if member.classic:
            member.rebalance = before

    def remove(self, *names: str) -> None:
        staying = [name for name in self.members if name not in names]
        if self.only_classic(staying):
            self.downgrade(staying, rebalance=True)
            return
        for name in names:
            del self.members[name]
            self.targets.pop(name, None)
        self.epoch += 1
        self.known = self.seen()

    # ---- the classic protocol ---------------------------------------------------------------------------------------

    def classic_join(
        self, waiter: int, ask: dict[str, Any], new_targets: Callable[[], dict[str, set[Part]]]
    ) -> tuple[Any, ...] | None:
        """(error, id) or (error, id, generation); None: it waits."""
        if not (self.exists and self.members):
            if not ask["id"]:
                self.exists = False
            answer = self.classic.step("join", waiter, ask)
            return None if answer is None else tuple(answer[:3])
        member_id, instance = ask["id"], ask["instance"]
        is_unknown = not member_id
        member_id = member_id or self.fresh()
        if is_unknown and instance is None:
            return ("MEMBER_ID_REQUIRED", member_id)
        old = self.holder(instance)
        if instance is not None and not is_unknown and old != member_id:
            return ("UNKNOWN_MEMBER_ID" if old is None else "FENCED_INSTANCE_ID", ask["id"])
        converts = False
        if old is not None and is_unknown:
            others = [name for name in self.members if name != old]
            speaks = self.members[old].classic
            converts = not speaks and all(self.members[each].classic for each in others) and self.policy in DOWNGRADES
            self.take_place(old, member_id)
        elif old is not None:
            others = [name for name in self.members if name != old]
            converts = (
                not self.members[old].classic
                and all(self.members[each].classic for each in others)
                and self.policy in DOWNGRADES
            )
        topics, owned = self.said[dict(ask["protocols"])["range"]]
        before = self.members.get(member_id)
        resubscribed = before is None or before.topics != topics
        member = replace(before) if before else Member(topics, instance)
        self.members[member_id] = member
        member.classic, member.protocols, member.session = True, tuple(ask["protocols"]), ask["session"]
        member.instance = instance if instance is not None else member.instance
        if converts:
            return self.convert_by(member_id, topics, set(owned), resubscribed)
        self.heard(member_id, topics, set(owned), resubscribed, new_targets, joins=True)
        member.session_ms = self.now_ms + member.session
        member.join_ms, member.sync_ms = None, self.now_ms + REBALANCE_MS
        return ("NONE", member_id, member.epoch)

    def convert_by(self, name: str, topics: frozenset[str], owned: set[Part], resubscribed: bool) -> tuple[Any, ...]:
        """The last of the consumer protocol speaks the classic one from here on."""
        member = self.members[name]
        member.topics = topics
        others = [self.members[each] for each in self.members if each != name]
        settled = (
            not resubscribed
            and self.seen() == self.known
            and self.target_epoch == self.epoch
            and all(each.epoch == self.epoch and not (each.giving or each.waiting) for each in others)
        )
        if settled:
            self.step(name, owned, resubscribed=False)
        epoch = self.epoch
        self.downgrade([*(each for each in self.members if each != name), name], rebalance=not settled)
        return ("NONE", name, epoch)

    def speaking(self, name: str, instance: str | None, generation: int) -> str:
        """Why this member of the classic protocol may not speak; "" when it may."""
        refused = self.refusal(name, instance)
        if refused:
            return refused
        member = self.members[name]
        if not member.classic:
            return "UNKNOWN_MEMBER_ID"
        return "" if member.epoch == generation else "ILLEGAL_GENERATION"

    def classic_sync(
        self, waiter: int, name: str, instance: str | None, generation: int, given: dict[str, Any]
    ) -> tuple[Any, ...] | None:
        """(error, what is assigned); None: it waits."""
        if not (self.exists and self.members):
            answer: tuple[Any, ...] | None = self.classic.step("sync", waiter, name, instance, generation, given, None)
            return answer
        refused = self.speaking(name, instance, generation)
        if refused:
            return (refused, b"")
        member = self.members[name]
        if self.target_epoch > member.epoch and not member.giving:
            self.call_back(member)
            return ("REBALANCE_IN_PROGRESS", b"")
        member.sync_ms, member.session_ms = None, self.now_ms + member.session
        return ("NONE", frozenset(member.has))

    def classic_heartbeat(self, name: str, instance: str | None, generation: int) -> str:
        if not (self.exists and self.members):
            return str(self.classic.step("heartbeat", name, instance, generation))
        refused = self.speaking(name, instance, generation)
        if refused:
            return refused
        member = self.members[name]
        member.session_ms = self.now_ms + member.session
        missing = self.targets.get(name, set()) - member.has.keys()
        held = {part for each in self.members.values() for part in each.all()}
        gets = member.waiting and not missing & held
        if self.target_epoch < self.epoch or member.epoch < self.target_epoch or member.giving or gets:
            self.call_back(member)
            return "REBALANCE_IN_PROGRESS"
        return "NONE"

    def call_back(self, member: Member) -> None:
        member.join_ms = self.now_ms + REBALANCE_MS if member.join_ms is None else member.join_ms

    def classic_leave(self, name: str, instance: str | None) -> str:
        if not (self.exists and self.members):
            return str(self.classic.step("leave", (name, instance))[0])
        owner = self.holder(instance)
        name = name or owner or ""
        refused = self.refusal(name, instance)
        if not refused:
            self.remove(name)
        return refused or "NONE"

    # ---- time -------------------------------------------------------------------------------------------------------

    def wait(self, ms: int) -> None:
        until = self.now_ms + ms
        while True:
            due = self.next_due()
            if due is None or due[0] > until:
                break
            self.now_ms = self.classic.now_ms = max(self.now_ms, due[0])
            due[2]()
        self.now_ms = self.classic.now_ms = until

    def next_due(self) -> tuple[int, str, Callable[[], None]] | None:
        found: list[tuple[int, str, Callable[[], None]]] = []
        for key, (when, _) in self.classic.clocks.items():
            found.append((when, f"classic {key}", lambda key=key: self.strike(key)))  # type: ignore[misc]
        for name, member in self.members.items() if self.exists else ():
            clocks = {"join": member.join_ms, "session": member.session_ms, "sync": member.sync_ms}
            for clock, at in clocks.items():
                if at is not None:
                    found.append((at, f"consumer {clock} {name}", lambda name=name: self.remove(name)))  # type: ignore[misc]
            if member.rebalance is not None:
                key = f"consumer rebalance {name}"
                found.append((member.rebalance[0], key, lambda name=name: self.too_slow(name)))  # type: ignore[misc]
        return min(found, key=lambda each: each[:2], default=None)

    def strike(self, key: str) -> None:
        _, what = self.classic.clocks.pop(key)
        self.classic.step(*what)

    def too_slow(self, name: str) -> None:
        member = self.members[name]
        assert member.rebalance is not None
        if member.rebalance[1] == member.epoch and member.giving:
            self.remove(name)
        else:
            member.rebalance = None

    def crash(self) -> None:
        if not self.exists:
            log = self.classic.log
            self.classic.crash()
            if log is not None and log["members"] and log["leader"] is None:
                self.classic.leader = self.classic.members[0]["id"]
                self.classic.enter("PreparingRebalance")
                self.classic.clocks["join"] = (self.now_ms + REBALANCE_MS, ("time_up",))
            return
        for member in self.members.values():
            member.session_ms = self.now_ms + CONSUMER_SESSION_MS
            member.join_ms = member.sync_ms = None
            member.rebalance = (self.now_ms + REBALANCE_MS, member.epoch) if member.giving else None
