"""A classic group: what the log says of it, and beside that who waits for what.

In the log stands the last generation that was assigned, or that the group is empty. A rebalance lives in memory alone, as
in Kafka: who is lost with the coordinator joins again.
"""

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field, fields, replace
from typing import Final

from odradek.coordinator.group.classic.commands import session_timer
from odradek.coordinator.group.classic.member import Member, Protocols
from odradek.coordinator.group.classic.subscriptions import subscribed_topics
from odradek.coordinator.group.classic.transitions import MAY_FOLLOW, ClassicState, Event, look_up
from odradek.coordinator.group.memory_accounting import MEMBER_BYTES, text_bytes
from odradek.coordinator.group.records import to_record
from odradek.coordinator.group.state import CONSUMER_PROTOCOL, GroupKind
from odradek.coordinator.overlay import Overlay
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.join_group import JoinGroupResponseMember
from odradek.protocol.records.group_metadata import GroupMetadataKey
from odradek.runtime.machine import Refuse
from odradek.runtime.shard import ShardRecord, Timer


@dataclass(slots=True)
class ClassicGroup:
    """Implements coordinator.group.state.Group. `protocol_type` "" is none: a group that only has offsets."""

    group_id: str
    state: ClassicState = ClassicState.EMPTY
    protocol_type: str = ""
    protocol_name: str | None = None
    generation: int = 0
    leader: str | None = None
    state_ms: int | None = None
    """When it came into its state (wall clock); None when the log does not say."""
    members: MutableMapping[str, Member] = field(default_factory=dict)
    instances: MutableMapping[str, str] = field(default_factory=dict)
    """Instance id -> member id (KIP-345)."""
    topics: frozenset[str] | None = None
    """What its consumers subscribe to; None when that is not known."""
    previous: ClassicState = ClassicState.DEAD
    pending: MutableMapping[str, None] = field(default_factory=dict)
    """Ids that were given out and not yet joined with (KIP-394)."""
    unsynced: MutableMapping[str, None] = field(default_factory=dict)
    """Members of this generation that have not sent their SyncGroup."""
    joined: int = 0
    """Members whose JoinGroup waits."""
    joined_since_check: bool = False
    """Somebody has joined since the initial delay was last looked at."""
    support: MutableMapping[str, int] = field(default_factory=dict)
    """Protocol -> how many members support it."""
    kind: GroupKind = GroupKind.CLASSIC

    # ---- as a Group -------------------------------------------------------------------------------------------------

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_empty(self) -> bool:
        return self.state is ClassicState.EMPTY

    @property
    def members_bytes(self) -> int:
        return (
            sum(member.size for member in self.members.values())
            + MEMBER_BYTES * len(self.pending)
            + text_bytes(*self.pending)
        )

    @property
    def is_simple(self) -> bool:
        """It only has offsets: records of a consumer group may take its place."""
        return not self.protocol_type and self.is_empty and not self.pending

    def check_offset_commit(
        self, member_id: str, instance_id: str | None, generation: int, *, in_transaction: bool, api_version: int
    ) -> None:
        """kafka-facts 5.12. Raises Refusal."""
        named = generation >= 0 or bool(member_id) or instance_id is not None
        if generation < 0 and self.is_empty:
            named = False  # an admin client, or a consumer that assigns its partitions itself
        if named:
            self.check_member(member_id, instance_id)
            if generation != self.generation:
                raise Refusal(ErrorCode.ILLEGAL_GENERATION)
            event = Event.TXN_COMMIT_MEMBER if in_transaction else Event.COMMIT_MEMBER
        else:
            event = Event.TXN_COMMIT_ALONE if in_transaction else Event.COMMIT_ALONE
        self._refuse(event)

    def check_offset_commit_of(
        self, member_id: str, generation: int, topic_id: bytes, topic: str, partition: int
    ) -> None:
        """All partitions of a member are its own business."""

    def commit_timers(self, member_id: str) -> tuple[Timer, ...]:
        """A commit is as good as a heartbeat."""
        member = self.members.get(member_id)
        if member is None or self.state is ClassicState.COMPLETING:
            return ()
        return (session_timer(self.group_id, member_id, member.session_timeout_ms),)

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Everybody may."""

    def check_offset_delete(self) -> None:
        """Offsets of topics that consumers subscribe to are refused one by one (`is_subscribed_to`); of members with
        another protocol nothing is known. Raises Refusal.
        """
        if self.protocol_type != CONSUMER_PROTOCOL or self.is_empty:
            self._refuse(Event.DELETE_OFFSETS)

    def check_delete(self) -> None:
        self._refuse(Event.DELETE)

    def is_subscribed_to(self, topic: str) -> bool:
        """When its consumers' subscriptions are not known, it is taken to be subscribed."""
        return topic in self.topics if self.topics is not None else self.protocol_type == CONSUMER_PROTOCOL

    def offsets_expire_from_ms(self, commit_ms: int) -> int | None:
        if not self.protocol_type:
            return commit_ms
        if self.is_empty:
            return commit_ms if self.state_ms is None else self.state_ms
        known = self.protocol_type == CONSUMER_PROTOCOL and self.topics is not None
        return commit_ms if known and self.state is ClassicState.STABLE else None

    def tombstones(self) -> tuple[ShardRecord, ...]:
        return (to_record(GroupMetadataKey(group=self.group_id), None),)

    def _refuse(self, event: Event) -> None:
        action = look_up(self.state, event)
        if isinstance(action, Refuse):
            raise Refusal(action.error)

    # ---- who is who -------------------------------------------------------------------------------------------------

    def check_member(self, member_id: str, instance_id: str | None) -> Member:
        """The member that a request speaks for. Raises Refusal (UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID)."""
        if instance_id is not None:
            owner = self.instances.get(instance_id)
            if owner is not None and owner != member_id:
                raise Refusal(ErrorCode.FENCED_INSTANCE_ID)
            if owner is None:
                self._refuse(Event.UNKNOWN_MEMBER)
        if member_id not in self.members:
            self._refuse(Event.UNKNOWN_MEMBER)
        return self.members[member_id]

    def has_capacity(self, member_id: str, size_max: int) -> bool:
        """`group.max.size`. In the join phase those count that have joined: when the limit was lowered, the last of the
        old members to come back find no room.
        """
        if self.is_empty:
            return True
        member = self.members.get(member_id)
        if self.state is ClassicState.PREPARING:
            return (member is not None and member.joining is not None) or self.joined < size_max
        return member is not None or len(self.members) < size_max

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Could somebody with these protocols be a member? One of them must be supported by everybody."""
        if self.is_empty:
            return bool(protocol_type) and bool(protocols)
        member_count = len(self.members)
        return protocol_type == self.protocol_type and any(
            self.support.get(name, 0) == member_count for name, _ in protocols
        )

    @property
    def all_joined(self) -> bool:
        return self.joined == len(self.members) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest that a member asks for."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def as_members(self) -> list[JoinGroupResponseMember]:
        """What the leader is told, to assign by."""
        return [
            JoinGroupResponseMember(member.member_id, member.instance_id, member.metadata(self.protocol_name))
            for member in self.members.values()
        ]

    # ---- drafts -----------------------------------------------------------------------------------------------------

    def draft(self) -> "ClassicGroup":
        """Return a group that starts like this one and changes without it, until `commit`."""
        draft = ClassicGroup(self.group_id)
        for name in _VALUES:
            setattr(draft, name, getattr(self, name))
        draft.members = Overlay(self.members)
        draft.instances = Overlay(self.instances)
        draft.pending = Overlay(self.pending)
        draft.unsynced = Overlay(self.unsynced)
        draft.support = Overlay(self.support)
        return draft

    def commit(self, draft: "ClassicGroup") -> None:
        """Become what `draft` is. Nothing may have changed this group since the draft was made."""
        for name in _VALUES:
            setattr(self, name, getattr(draft, name))
        for name in _CONTAINERS:
            getattr(draft, name).commit()

    # ---- changes ----------------------------------------------------------------------------------------------------

    def enter(self, state: ClassicState, now_ms: int) -> None:
        assert self.state in MAY_FOLLOW[state], f"{self.group_id}: {state.value} cannot follow {self.state.value}"
        self.previous, self.state, self.state_ms = self.state, state, now_ms

    def add(self, member: Member, protocol_type: str) -> None:
        """A member that nobody has met before; the first says what kind of group this is, and leads it."""
        assert member.member_id not in self.members, member.member_id
        if member.instance_id is not None:
            assert member.instance_id not in self.instances, member.instance_id
            self.instances[member.instance_id] = member.member_id
        if not self.members:
            self.protocol_type = protocol_type
        assert self.protocol_type == protocol_type, protocol_type
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self._count(member.protocols, 1)
        self.joined += member.joining is not None
        self.pending.pop(member.member_id, None)

    def remove(self, member_id: str) -> Member | None:
        """Forget a member, or an id that was given out. Who is led by nobody now is led by the eldest member."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count(member.protocols, -1)
            self.joined -= member.joining is not None
            if member.instance_id is not None:
                del self.instances[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending.pop(member_id, None)
        self.unsynced.pop(member_id, None)
        return member

    def update(
        self, member: Member, protocols: Protocols, *, rebalance_timeout_ms: int, session_timeout_ms: int
    ) -> Member:
        """What a member says of itself when it joins again."""
        self._count(member.protocols, -1)
        self._count(protocols, 1)
        return self.put(
            replace(
                member,
                protocols=protocols,
                rebalance_timeout_ms=rebalance_timeout_ms,
                session_timeout_ms=session_timeout_ms,
            )
        )

    def put(self, member: Member) -> Member:
        """Take in a new value of a member, with the same protocols and the same waiter of its JoinGroup."""
        assert member.member_id in self.members, member.member_id
        self.members[member.member_id] = member
        return member

    def copied(self) -> "ClassicGroup":
        """Return a group that starts like this one and changes without it."""
        return replace(
            self,
            members=dict(self.members),
            instances=dict(self.instances),
            pending=dict(self.pending),
            unsynced=dict(self.unsynced),
            support=dict(self.support),
        )

    def replace(self, old_id: str, new_id: str) -> Member:
        """Give a static member a new id. No request waits in its name then, and its place among the members is the last."""
        old = self.members.pop(old_id)
        assert old.instance_id is not None, old_id
        self.joined -= old.joining is not None
        member = replace(old, member_id=new_id, joining=None, syncing=None, is_new=False)
        self.members[new_id] = member
        self.instances[old.instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id
        if old_id in self.unsynced:  # Kafka leaves the old id there, and rebalances when the phase's time is up
            del self.unsynced[old_id]
            self.unsynced[new_id] = None
        return member

    def await_join(self, member: Member, waiter: int | None) -> int | None:
        """`waiter` waits for the end of the phase in this member's name; the one that did before, if any, is returned."""
        self.joined += (waiter is not None) - (member.joining is not None)
        self.put(replace(member, joining=waiter))
        return member.joining

    def end_join(self, member: Member) -> None:
        """The join phase is over for this member, with or without a request of its own."""
        self.joined -= member.joining is not None
        self.put(replace(member, joining=None, is_new=False))

    def elect(self) -> bool:
        """Does a member that has joined lead? Otherwise the first that has joined does; False when there is none."""
        if self.leader is None:
            return False
        if self.members[self.leader].joining is not None:
            return True
        elected = next((member.member_id for member in self.members.values() if member.joining is not None), None)
        if elected is not None:
            self.leader = elected
        return elected is not None

    def next_generation(self, now_ms: int) -> None:
        """Whoever is a member now makes up the next generation; with nobody the group is empty."""
        self.generation += 1
        self.protocol_name = self.vote() if self.members else None
        self.topics = self._subscribed()
        self.enter(ClassicState.COMPLETING if self.members else ClassicState.EMPTY, now_ms)
        self.unsynced.clear()

    def assign(self, assignments: Mapping[str, bytes], now_ms: int) -> None:
        """The leader's word: nobody waits for it any more."""
        for member in tuple(self.members.values()):
            self.put(replace(member, assignment=assignments.get(member.member_id, b""), syncing=None))
        if self.leader is not None:
            self.unsynced.pop(self.leader, None)
        self.enter(ClassicState.STABLE, now_ms)

    def vote(self, of: Mapping[str, Protocols] | None = None) -> str:
        """Of the protocols that all support, the one that most prefer. `of`: what members would say instead."""
        said = [member.protocols for member in self.members.values()]
        if of:
            said = [of.get(member.member_id, member.protocols) for member in self.members.values()]
        counts: dict[str, int] = {}
        for protocols in said:
            for name, _ in protocols:
                counts[name] = counts.get(name, 0) + 1
        votes: dict[str, int] = {}
        for protocols in said:
            choice = next(name for name, _ in protocols if counts[name] == len(said))
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=votes.__getitem__)

    def restore_topics(self) -> None:
        """After members were read from the log."""
        self.topics = self._subscribed()

    def _subscribed(self) -> frozenset[str] | None:
        if self.protocol_type != CONSUMER_PROTOCOL:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        return subscribed_topics(member.metadata(self.protocol_name) for member in self.members.values())

    def _count(self, protocols: Protocols, change: int) -> None:
        for name, _ in protocols:
            count = self.support.get(name, 0) + change
            if count:
                self.support[name] = count
            else:
                self.support.pop(name, None)


_CONTAINERS: Final = ("members", "instances", "pending", "unsynced", "support")
_VALUES: Final = tuple(each.name for each in fields(ClassicGroup) if each.name not in _CONTAINERS)


def simple_group(group_id: str) -> ClassicGroup:
    """A group that only has offsets: made when they are committed by nobody that is a member of anything. No record says
    that it exists.
    """
    return ClassicGroup(group_id)
