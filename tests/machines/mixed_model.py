"""Model of a group with clients of both protocols, and of its conversions (KIP-848, "Supporting online consumer group
upgrade").

The model shares no code with the core. A classic group is the model of classic_model.py. A consumer group is the model
of modern_model.py, extended with members of the classic protocol. A partition is (topic, number). Subscriptions and
assignments of classic members are looked up by their encoded bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tests.machines.classic_model import Model as ClassicModel
from tests.machines.modern_model import Member as PlainMember
from tests.machines.modern_model import Model as ConsumerModel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.machines.modern_model import Heartbeat, Partition

REBALANCE_MS = 60_000
CONSUMER_SESSION_MS = 45_000
UPGRADES, DOWNGRADES = ("upgrade", "bidirectional"), ("downgrade", "bidirectional")


@dataclass
class Member(PlainMember):
    """A member of a consumer group. If `classic`, it uses the classic protocol, with its own session timeout."""

    classic: bool = False
    protocols: tuple[tuple[str, bytes], ...] = ()
    session: int = CONSUMER_SESSION_MS
    join_ms: int | None = None
    """Deadline for its next JoinGroup request."""
    sync_ms: int | None = None
    """Deadline for its next SyncGroup request."""


class Model(ConsumerModel):
    """One group of either type. `exists` is True if it is a consumer group."""

    members: dict[str, Member]  # type: ignore[assignment]

    def __init__(self, policy: str, now_ms: int) -> None:
        super().__init__(size_max=1_000, now_ms=now_ms)
        self.policy = policy
        self.classic = ClassicModel(0, 1_000, now_ms)
        self.subscriptions: dict[bytes, tuple[frozenset[str], frozenset[Partition]]] = {}
        """Metadata of a classic member -> its topics and owned partitions."""

    @property
    def kind(self) -> str:
        if self.exists:
            return "consumer"
        return "none" if self.classic.state == "Dead" else "classic"

    def new_id(self) -> str:
        self.classic.generated_ids += 1
        return str(self.classic.generated_ids)

    # ---- conversion -------------------------------------------------------------------------------------------------

    def upgrade(self) -> str | None:
        """Convert the classic group to a consumer group. Return the error if the migration policy does not allow it."""
        group = self.classic
        if group.state == "Empty":  # without members, but with a member id that has not joined yet, it is not Empty
            group.forget()
            group.log = None
            self.start(1)
            return None
        if self.policy not in UPGRADES:
            return "GROUP_ID_NOT_FOUND"
        self.start(group.generation)
        holders: dict[Partition, str] = {}
        for member in group.members:
            self.targets[member["id"]] = {
                partition for partition in member["assignment"] or () if partition[0] in self.topics
            }
            holders |= dict.fromkeys(self.targets[member["id"]], member["id"])
        for member in group.members:
            for partition in sorted(self.metadata_of(member)[1]):
                holders.setdefault(partition, member["id"])
        for member in group.members:
            assigned = {partition: self.epoch for partition, member_id in holders.items() if member_id == member["id"]}
            self.members[member["id"]] = Member(
                self.metadata_of(member)[0],
                member["instance"],
                epoch=self.epoch,
                previous=self.epoch,
                assigned=assigned,
                session_ms=self.now_ms + member["session"],
                classic=True,
                protocols=tuple(member["protocols"]),
                session=member["session"],
            )
            group.respond(member["joining"], ("REBALANCE_IN_PROGRESS", member["id"]))
            group.respond(member["syncing"], ("REBALANCE_IN_PROGRESS", b""))
        everything = {partition for target in self.targets.values() for partition in target}
        self.known_topics = self.subscribed() if group.state == "Stable" and everything == self.wanted() else {}
        group.forget()
        group.log = None
        return None

    def start(self, epoch: int) -> None:
        self.exists, self.epoch, self.target_epoch, self.assigned_ms = True, epoch, epoch, 0
        self.members, self.targets, self.known_topics = {}, {}, {}

    def metadata_of(self, member: dict[str, Any]) -> tuple[frozenset[str], frozenset[Partition]]:
        return self.subscriptions[dict(member["protocols"])["range"]]

    def downgrade(self, staying: Iterable[str], *, rebalance: bool) -> None:
        """Convert the consumer group to a classic group. Each member keeps its partitions until the next rebalance."""
        group = self.classic
        group.forget()
        group.state, group.before = "Stable", "Dead"
        group.generation, group.type, group.protocol = self.epoch, "consumer", "range"
        for name in staying:
            member = self.members[name]
            entry: dict[str, Any] = {"id": name, "instance": member.instance, "protocols": list(member.protocols)}
            entry |= {
                "session": member.session,
                "rebalance": REBALANCE_MS,
                "joining": None,
                "syncing": None,
                "new": False,
            }
            group.members.append(entry | {"assignment": frozenset(member.owned())})
            group.restart_session_timer(group.members[-1])
        group.leader = group.members[0]["id"]
        if rebalance:
            group.enter("PreparingRebalance")
            group.timers["join"] = (self.now_ms + REBALANCE_MS, ("join_timeout",))
        group.log = group.group_record() | ({"leader": None} if rebalance else {})
        self.exists, self.members, self.targets = False, {}, {}

    def can_downgrade(self, staying: Iterable[str]) -> bool:
        """Return True if the group can become a classic group with the members `staying`."""
        remaining = [self.members[name] for name in staying]
        return bool(remaining) and all(member.classic for member in remaining) and self.policy in DOWNGRADES

    # ---- the consumer protocol --------------------------------------------------------------------------------------

    def join(
        self,
        name: str,
        topics: frozenset[str],
        instance: str | None,
        new_targets: Callable[[], dict[str, set[Partition]]],
    ) -> Heartbeat | str:
        if self.kind == "classic":
            error = self.upgrade()
            if error:
                return error
        if not self.exists:
            self.start(1)
        old = self.holder(instance)
        if old is not None:
            if not self.members[old].classic and self.members[old].epoch != -2:
                return "UNRELEASED_INSTANCE_ID"
            self.replace_static_member(old, name)
        before = self.members.get(name)
        self.members[name] = replace(before, classic=False) if before else Member(topics, instance)
        self.members[name].instance = instance
        resubscribed = before is None or before.topics != topics
        response = self.heartbeat(name, topics, set(), resubscribed, new_targets, joins=True)
        self.members[name].session = CONSUMER_SESSION_MS
        return response

    def replace_static_member(self, old: str, name: str) -> None:
        """Replace a static member by the same instance with a new member id."""
        static = self.members.pop(old)
        self.members[name] = replace(static, epoch=0, previous=0, rebalance=None, join_ms=None, sync_ms=None)
        self.targets[name] = self.targets.pop(old, set())

    def reconcile(self, name: str, owned: set[Partition] | None, resubscribed: bool) -> None:
        """Advance the member's reconciliation.

        A member of the classic protocol has a JoinGroup deadline instead of a rebalance timeout.
        """
        member = self.members[name]
        before = member.rebalance
        super().reconcile(name, owned, resubscribed)
        if member.classic:
            member.rebalance = before

    def remove(self, *names: str) -> None:
        staying = [name for name in self.members if name not in names]
        if self.can_downgrade(staying):
            self.downgrade(staying, rebalance=True)
            return
        for name in names:
            del self.members[name]
            self.targets.pop(name, None)
        self.epoch += 1
        self.known_topics = self.subscribed()
        self.complete_if_empty()

    # ---- the classic protocol ---------------------------------------------------------------------------------------

    def classic_join(
        self, waiter: int, request: dict[str, Any], new_targets: Callable[[], dict[str, set[Partition]]]
    ) -> tuple[Any, ...] | None:
        """Join a member of the classic protocol.

        Return (error, id) or (error, id, generation), or None if the response comes later.
        """
        if not (self.exists and self.members):
            if not request["id"]:
                self.exists = False
            response = self.classic.step("join", waiter, request)
            return None if response is None else tuple(response[:3])
        member_id, instance = request["id"], request["instance"]
        has_no_id = not member_id
        member_id = member_id or self.new_id()
        if has_no_id and instance is None:
            return ("MEMBER_ID_REQUIRED", member_id)
        old = self.holder(instance)
        if instance is not None and not has_no_id and old != member_id:
            return ("UNKNOWN_MEMBER_ID" if old is None else "FENCED_INSTANCE_ID", request["id"])
        converts = False
        if old is not None and has_no_id:
            others = [name for name in self.members if name != old]
            was_classic = self.members[old].classic
            converts = (
                not was_classic and all(self.members[other].classic for other in others) and self.policy in DOWNGRADES
            )
            self.replace_static_member(old, member_id)
        elif old is not None:
            others = [name for name in self.members if name != old]
            converts = (
                not self.members[old].classic
                and all(self.members[other].classic for other in others)
                and self.policy in DOWNGRADES
            )
        topics, owned = self.subscriptions[dict(request["protocols"])["range"]]
        before = self.members.get(member_id)
        resubscribed = before is None or before.topics != topics
        member = replace(before) if before else Member(topics, instance)
        self.members[member_id] = member
        member.classic, member.protocols, member.session = True, tuple(request["protocols"]), request["session"]
        member.instance = instance if instance is not None else member.instance
        if converts:
            return self.downgrade_by(member_id, topics, set(owned), resubscribed)
        self.heartbeat(member_id, topics, set(owned), resubscribed, new_targets, joins=True)
        member.session_ms = self.now_ms + member.session
        member.join_ms, member.sync_ms = None, self.now_ms + REBALANCE_MS
        return ("NONE", member_id, member.epoch)

    def downgrade_by(
        self, name: str, topics: frozenset[str], owned: set[Partition], resubscribed: bool
    ) -> tuple[Any, ...]:
        """Downgrade the group: its last member of the consumer protocol joined with the classic protocol."""
        member = self.members[name]
        member.topics = topics
        others = [self.members[other] for other in self.members if other != name]
        settled = (
            not resubscribed
            and self.subscribed() == self.known_topics
            and self.target_epoch == self.epoch
            and all(other.epoch == self.epoch and not (other.revoking or other.unreleased) for other in others)
        )
        if settled:
            self.reconcile(name, owned, resubscribed=False)
        epoch = self.epoch
        self.downgrade([*(other for other in self.members if other != name), name], rebalance=not settled)
        return ("NONE", name, epoch)

    def classic_error(self, name: str, instance: str | None, generation: int) -> str:
        """Return the error for a request of this member of the classic protocol, or "" if the request is valid."""
        error = self.refusal(name, instance)
        if error:
            return error
        member = self.members[name]
        if not member.classic:
            return "UNKNOWN_MEMBER_ID"
        return "" if member.epoch == generation else "ILLEGAL_GENERATION"

    def classic_sync(
        self, waiter: int, name: str, instance: str | None, generation: int, given: dict[str, Any]
    ) -> tuple[Any, ...] | None:
        """Return (error, assignment), or None if the response comes later."""
        if not (self.exists and self.members):
            response: tuple[Any, ...] | None = self.classic.step(
                "sync", waiter, name, instance, generation, given, None
            )
            return response
        error = self.classic_error(name, instance, generation)
        if error:
            return (error, b"")
        member = self.members[name]
        if self.target_epoch > member.epoch and not member.revoking:
            self.request_rejoin(member)
            return ("REBALANCE_IN_PROGRESS", b"")
        member.sync_ms, member.session_ms = None, self.now_ms + member.session
        return ("NONE", frozenset(member.assigned))

    def classic_heartbeat(self, name: str, instance: str | None, generation: int) -> str:
        if not (self.exists and self.members):
            return str(self.classic.step("heartbeat", name, instance, generation))
        error = self.classic_error(name, instance, generation)
        if error:
            return error
        member = self.members[name]
        member.session_ms = self.now_ms + member.session
        missing = self.targets.get(name, set()) - member.assigned.keys()
        held = {partition for other in self.members.values() for partition in other.owned()}
        gets = member.unreleased and not missing & held
        if self.target_epoch < self.epoch or member.epoch < self.target_epoch or member.revoking or gets:
            self.request_rejoin(member)
            return "REBALANCE_IN_PROGRESS"
        return "NONE"

    def request_rejoin(self, member: Member) -> None:
        member.join_ms = self.now_ms + REBALANCE_MS if member.join_ms is None else member.join_ms

    def classic_leave(self, name: str, instance: str | None) -> str:
        if not (self.exists and self.members):
            return str(self.classic.step("leave", (name, instance))[0])
        owner = self.holder(instance)
        name = name or owner or ""
        error = self.refusal(name, instance)
        if not error:
            self.remove(name)
        return error or "NONE"

    # ---- time -------------------------------------------------------------------------------------------------------

    def wait(self, ms: int) -> None:
        until = self.now_ms + ms
        while True:
            due = self.next_timer()
            if due is None or due[0] > until:
                break
            self.now_ms = self.classic.now_ms = max(self.now_ms, due[0])
            due[2]()
        self.now_ms = self.classic.now_ms = until

    def next_timer(self) -> tuple[int, str, Callable[[], None]] | None:
        due: list[tuple[int, str, Callable[[], None]]] = []
        for key, (when, _) in self.classic.timers.items():
            due.append((when, f"classic {key}", lambda key=key: self.fire(key)))  # type: ignore[misc]
        for name, member in self.members.items() if self.exists else ():
            deadlines = {"join": member.join_ms, "session": member.session_ms, "sync": member.sync_ms}
            for timer, due_ms in deadlines.items():
                if due_ms is not None:
                    due.append((due_ms, f"consumer {timer} {name}", lambda name=name: self.remove(name)))  # type: ignore[misc]
            if member.rebalance is not None:
                key = f"consumer rebalance {name}"
                due.append((member.rebalance[0], key, lambda name=name: self.rebalance_timeout(name)))  # type: ignore[misc]
        return min(due, key=lambda entry: entry[:2], default=None)

    def fire(self, key: str) -> None:
        _, operation = self.classic.timers.pop(key)
        self.classic.step(*operation)

    def rebalance_timeout(self, name: str) -> None:
        member = self.members[name]
        assert member.rebalance is not None
        if member.rebalance[1] == member.epoch and member.revoking:
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
                self.classic.timers["join"] = (self.now_ms + REBALANCE_MS, ("join_timeout",))
            return
        for member in self.members.values():
            member.session_ms = self.now_ms + CONSUMER_SESSION_MS
            member.join_ms = member.sync_ms = None
            member.rebalance = (self.now_ms + REBALANCE_MS, member.epoch) if member.revoking else None
