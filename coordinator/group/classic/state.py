"""A group of the classic protocol: its hard state from the log, and the soft state of a rebalance.

The log contains the last assigned generation, or that the group is empty. A rebalance is in memory only, as in Kafka.
After a fail-over, members that were joining must join again.
"""

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field, fields, replace
from typing import Final

from odradek.coordinator.group.classic.commands import session_timer
from odradek.coordinator.group.classic.member import Member, Protocols
from odradek.coordinator.group.classic.subscriptions import subscribed_topics
from odradek.coordinator.group.classic.transitions import MAY_FOLLOW, ClassicState, Event, look_up
from odradek.coordinator.group.memory_accounting import MEMBER_BYTES, described_bytes, text_bytes
from odradek.coordinator.group.records import to_record
from odradek.coordinator.group.state import GroupKind
from odradek.coordinator.overlay import Overlay
from odradek.invariants.coordinator import CLASSIC_GROUP_COUNTS, CLASSIC_GROUP_MEMBERS, CLASSIC_GROUP_STATE
from odradek.invariants.invariant import CHECKS
from odradek.protocol.consumer_protocol import CONSUMER_PROTOCOL
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.join_group import JoinGroupResponseMember
from odradek.protocol.records.group_metadata import GroupMetadataKey
from odradek.runtime.machine import Refuse
from odradek.runtime.shard import ShardRecord, Timer


@dataclass(slots=True)
class ClassicGroup:
    """A group of the classic protocol. It implements coordinator.group.state.Group.

    `protocol_type` is "" for a simple group, which has only offsets.
    """

    group_id: str
    state: ClassicState = ClassicState.EMPTY
    protocol_type: str = ""
    protocol_name: str | None = None
    generation: int = 0
    leader: str | None = None
    state_ms: int | None = None
    """Time of the last state change (wall clock), or None if the log does not contain it."""
    members: MutableMapping[str, Member] = field(default_factory=dict)
    instances: MutableMapping[str, str] = field(default_factory=dict)
    """Instance id -> member id (KIP-345)."""
    topics: frozenset[str] | None = None
    """Topics that the consumers subscribe to, or None if unknown."""
    previous_state: ClassicState = ClassicState.DEAD
    pending_ids: MutableMapping[str, None] = field(default_factory=dict)
    """Member ids that JoinGroup responses contained, but no JoinGroup request has used yet (KIP-394)."""
    pending_sync: MutableMapping[str, None] = field(default_factory=dict)
    """Members of this generation that have not sent SyncGroup."""
    joined_count: int = 0
    """Number of members whose JoinGroup request waits."""
    joined_since_check: bool = False
    """True if a member has joined since the last check of the initial rebalance delay."""
    protocol_counts: MutableMapping[str, int] = field(default_factory=dict)
    """Protocol name -> number of members that support it."""
    kind: GroupKind = GroupKind.CLASSIC

    # ---- implementation of Group ------------------------------------------------------------------------------------

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
            + MEMBER_BYTES * len(self.pending_ids)
            + text_bytes(*self.pending_ids)
        )

    @property
    def described_bytes_max(self) -> int:
        return sum(described_bytes(member.size) for member in self.members.values())

    @property
    def is_simple(self) -> bool:
        """Return True if the group has only offsets. Records of a consumer group may replace it."""
        return not self.protocol_type and self.is_empty and not self.pending_ids

    def check_offset_commit(
        self, member_id: str, instance_id: str | None, generation: int, *, in_transaction: bool, api_version: int
    ) -> None:
        """Raise Refusal if the member may not commit, as in Kafka's ClassicGroup.validateOffsetCommit."""
        named = generation >= 0 or bool(member_id) or instance_id is not None
        if generation < 0 and self.is_empty:
            named = False  # an admin client, or a consumer without group management
        if named:
            self.check_member(member_id, instance_id)
            if generation != self.generation:
                raise Refusal(ErrorCode.ILLEGAL_GENERATION)
            event = Event.TXN_COMMIT_MEMBER if in_transaction else Event.COMMIT_MEMBER
        else:
            event = Event.TXN_COMMIT_NON_MEMBER if in_transaction else Event.COMMIT_NON_MEMBER
        self._refuse(event)

    def check_partition_commit(
        self, member_id: str, generation: int, topic_id: bytes, topic: str, partition: int
    ) -> None:
        """Allow all partitions: the classic protocol does not record their owners."""

    def commit_timers(self, member_id: str) -> tuple[Timer, ...]:
        """Restart the session of the member, as a heartbeat does. During the sync phase, commits do not extend it."""
        member = self.members.get(member_id)
        if member is None or self.state is ClassicState.COMPLETING:
            return ()
        return (session_timer(self.group_id, member_id, member.session_timeout_ms),)

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Allow all requests: in the classic protocol, OffsetFetch has no member checks."""

    def check_offset_delete(self) -> None:
        """Raise Refusal unless the group is empty or consists of consumers.

        For consumers, `is_subscribed_to` refuses subscribed topics one by one. Subscriptions of other clients are
        unknown.
        """
        if self.protocol_type != CONSUMER_PROTOCOL or self.is_empty:
            self._refuse(Event.DELETE_OFFSETS)

    def check_delete(self) -> None:
        self._refuse(Event.DELETE)

    def is_subscribed_to(self, topic: str) -> bool:
        """Return True if a consumer subscribes to the topic, or if subscriptions of the consumers are unknown."""
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

    # ---- members ----------------------------------------------------------------------------------------------------

    def check_member(self, member_id: str, instance_id: str | None) -> Member:
        """Return the member that a request names. Raise Refusal (UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID) if invalid."""
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
        """Return True if `group.max.size` allows this member.

        In the join phase, only members that have joined count. If the limit was lowered, the last members to rejoin are
        refused.
        """
        if self.is_empty:
            return True
        member = self.members.get(member_id)
        if self.state is ClassicState.PREPARING:
            return (member is not None and member.join_waiter is not None) or self.joined_count < size_max
        return member is not None or len(self.members) < size_max

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Return True if all members support one of these protocols. An empty group supports any protocol."""
        if self.is_empty:
            return bool(protocol_type) and bool(protocols)
        member_count = len(self.members)
        return protocol_type == self.protocol_type and any(
            self.protocol_counts.get(name, 0) == member_count for name, _ in protocols
        )

    @property
    def all_joined(self) -> bool:
        return self.joined_count == len(self.members) and not self.pending_ids

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance time-out of a member."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def join_response_members(self) -> list[JoinGroupResponseMember]:
        """Return the members for the JoinGroup response of the leader, with their metadata."""
        return [
            JoinGroupResponseMember(member.member_id, member.instance_id, member.metadata(self.protocol_name))
            for member in self.members.values()
        ]

    # ---- drafts -----------------------------------------------------------------------------------------------------

    def draft(self) -> "ClassicGroup":
        """Return a copy-on-write view of this group. Its changes reach this group by `commit`."""
        draft = ClassicGroup(self.group_id)
        for name in _VALUES:
            setattr(draft, name, getattr(self, name))
        draft.members = Overlay(self.members)
        draft.instances = Overlay(self.instances)
        draft.pending_ids = Overlay(self.pending_ids)
        draft.pending_sync = Overlay(self.pending_sync)
        draft.protocol_counts = Overlay(self.protocol_counts)
        return draft

    def commit(self, draft: "ClassicGroup") -> None:
        """Take over the changes of `draft`. This group must not have changed since the draft was made."""
        for name in _VALUES:
            setattr(self, name, getattr(draft, name))
        for name in _CONTAINERS:
            getattr(draft, name).commit()
        if CHECKS.expensive:
            waiting = sum(member.join_waiter is not None for member in self.members.values())
            if waiting != self.joined_count:
                raise CLASSIC_GROUP_COUNTS.violated(
                    group_id=self.group_id, joined_count=self.joined_count, waiting=waiting
                )

    # ---- changes ----------------------------------------------------------------------------------------------------

    def enter(self, state: ClassicState, now_ms: int) -> None:
        if self.state not in MAY_FOLLOW[state]:
            raise CLASSIC_GROUP_STATE.violated(group_id=self.group_id, state=self.state, next_state=state)
        self.previous_state, self.state, self.state_ms = self.state, state, now_ms

    def add(self, member: Member, protocol_type: str) -> None:
        """Add a new member. The first one determines the protocol type and becomes the leader."""
        if (
            member.member_id in self.members
            or member.instance_id in self.instances
            or (self.members and self.protocol_type != protocol_type)
        ):
            raise CLASSIC_GROUP_MEMBERS.violated(
                group_id=self.group_id, group_type=self.protocol_type, member=member, protocol_type=protocol_type
            )
        if member.instance_id is not None:
            self.instances[member.instance_id] = member.member_id
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self._count_protocols(member.protocols, 1)
        self.joined_count += member.join_waiter is not None
        self.pending_ids.pop(member.member_id, None)

    def remove(self, member_id: str) -> Member | None:
        """Remove a member or a pending member id. If the leader is removed, the oldest member becomes leader."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count_protocols(member.protocols, -1)
            self.joined_count -= member.join_waiter is not None
            if member.instance_id is not None:
                del self.instances[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending_ids.pop(member_id, None)
        self.pending_sync.pop(member_id, None)
        return member

    def update(
        self, member: Member, protocols: Protocols, *, rebalance_timeout_ms: int, session_timeout_ms: int
    ) -> Member:
        """Update the protocols and time-outs of a member that joins again."""
        self._count_protocols(member.protocols, -1)
        self._count_protocols(protocols, 1)
        return self.put(
            replace(
                member,
                protocols=protocols,
                rebalance_timeout_ms=rebalance_timeout_ms,
                session_timeout_ms=session_timeout_ms,
            )
        )

    def put(self, member: Member) -> Member:
        """Replace the value of a member. Its protocols and its waiting JoinGroup request must be the same as before."""
        assert member.member_id in self.members, member.member_id
        self.members[member.member_id] = member
        return member

    def copy(self) -> "ClassicGroup":
        """Return an independent copy of this group."""
        return replace(
            self,
            members=dict(self.members),
            instances=dict(self.instances),
            pending_ids=dict(self.pending_ids),
            pending_sync=dict(self.pending_sync),
            protocol_counts=dict(self.protocol_counts),
        )

    def replace_static_member(self, old_id: str, new_id: str) -> Member:
        """Give a static member a new member id. It becomes the last of the members, without waiting requests."""
        old = self.members.pop(old_id)
        assert old.instance_id is not None, old_id
        self.joined_count -= old.join_waiter is not None
        member = replace(old, member_id=new_id, join_waiter=None, sync_waiter=None, is_new=False)
        self.members[new_id] = member
        self.instances[old.instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id
        if old_id in self.pending_sync:  # Kafka keeps the old id there, and rebalances after the sync time-out
            del self.pending_sync[old_id]
            self.pending_sync[new_id] = None
        return member

    def set_join_waiter(self, member: Member, waiter: int | None) -> int | None:
        """Set the request that waits for the join phase. Return the waiter of the member's earlier request, if any."""
        self.joined_count += (waiter is not None) - (member.join_waiter is not None)
        self.put(replace(member, join_waiter=waiter))
        return member.join_waiter

    def end_join(self, member: Member) -> None:
        """End the join phase for this member, with or without a waiting request."""
        self.joined_count -= member.join_waiter is not None
        self.put(replace(member, join_waiter=None, is_new=False))

    def elect_leader(self) -> bool:
        """Make the first joined member leader, unless the leader has joined. Return False if no member has joined."""
        if self.leader is None:
            return False
        if self.members[self.leader].join_waiter is not None:
            return True
        elected = next((member.member_id for member in self.members.values() if member.join_waiter is not None), None)
        if elected is not None:
            self.leader = elected
        return elected is not None

    def next_generation(self, now_ms: int) -> None:
        """Start the next generation with the current members. Without members, the group becomes empty."""
        self.generation += 1
        self.protocol_name = self.select_protocol() if self.members else None
        self.topics = self._subscribed_topics()
        self.enter(ClassicState.COMPLETING if self.members else ClassicState.EMPTY, now_ms)
        self.pending_sync.clear()

    def assign(self, assignments: Mapping[str, bytes], now_ms: int) -> None:
        """Store the assignments that the leader sent. The group becomes stable."""
        for member in tuple(self.members.values()):
            self.put(replace(member, assignment=assignments.get(member.member_id, b""), sync_waiter=None))
        if self.leader is not None:
            self.pending_sync.pop(self.leader, None)
        self.enter(ClassicState.STABLE, now_ms)

    def select_protocol(self, changes: Mapping[str, Protocols] | None = None) -> str:
        """Return the protocol that most members prefer among those that all members support.

        `changes` replaces the protocols of single members: member id -> protocols.
        """
        ballots = [member.protocols for member in self.members.values()]
        if changes:
            ballots = [changes.get(member.member_id, member.protocols) for member in self.members.values()]
        counts: dict[str, int] = {}
        for protocols in ballots:
            for name, _ in protocols:
                counts[name] = counts.get(name, 0) + 1
        votes: dict[str, int] = {}
        for protocols in ballots:
            choice = next(name for name, _ in protocols if counts[name] == len(ballots))
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=votes.__getitem__)

    def update_topics(self) -> None:
        """Compute `topics` after members were read from the log."""
        self.topics = self._subscribed_topics()

    def _subscribed_topics(self) -> frozenset[str] | None:
        if self.protocol_type != CONSUMER_PROTOCOL:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        return subscribed_topics(member.metadata(self.protocol_name) for member in self.members.values())

    def _count_protocols(self, protocols: Protocols, change: int) -> None:
        for name, _ in protocols:
            count = self.protocol_counts.get(name, 0) + change
            if count:
                self.protocol_counts[name] = count
            else:
                self.protocol_counts.pop(name, None)


_CONTAINERS: Final = ("members", "instances", "pending_ids", "pending_sync", "protocol_counts")
_VALUES: Final = tuple(attribute.name for attribute in fields(ClassicGroup) if attribute.name not in _CONTAINERS)


def simple_group(group_id: str) -> ClassicGroup:
    """Return a group that has only offsets. No record in the log contains the group itself.

    It is created when a client that is not a member commits an offset.
    """
    return ClassicGroup(group_id)
