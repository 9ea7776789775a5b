"""A group of the consumer protocol (KIP-848): hard state, changed only by `apply`, and counts derived from it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from odradek.coordinator.group.commands import DescribableTopics
from odradek.coordinator.group.memory_accounting import (
    ASSIGNED_BYTES,
    DESCRIBED_PARTITION_BYTES,
    DESCRIBED_TOPIC_BYTES,
    described_bytes,
)
from odradek.coordinator.group.modern import records as r
from odradek.coordinator.group.modern.member import NO_MEMBER_EPOCH, Member, Partitions
from odradek.coordinator.group.state import GroupKind
from odradek.frozen import frozen_dataclass
from odradek.protocol.consumer_protocol import CONSUMER_PROTOCOL
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.runtime.shard import ShardRecord, Timer

FIRST_EPOCH: Final = 1
"""Epoch of a new group, and of its target assignment, before any record."""
OFFSET_COMMIT_WITH_EPOCHS: Final = 9
"""First version of OffsetCommit that members of this protocol may use."""

Assignment = Mapping[bytes, Iterable[int]]
"""Topic id -> partitions."""


class GroupState(Enum):
    """State of a consumer group. The values are the names in describe responses."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    """The target assignment of the group epoch is not computed yet."""
    RECONCILING = "Reconciling"
    """A member has not reached the target assignment yet."""
    STABLE = "Stable"


@frozen_dataclass(frozen=True, slots=True)
class ResolvedRegex:
    """Topics that match a regular expression, in metadata version `version`, evaluated at `timestamp_ms`."""

    topics: tuple[str, ...]
    version: int
    timestamp_ms: int


@frozen_dataclass(frozen=True, slots=True)
class Resolution:
    """Progress of the evaluation of regular expressions.

    The expressions are compiled one after the other first. `matches` has an entry for each slice of the names before
    `position`: the matches of each expression. A slice thus does not copy the matches of the slices before it. When all
    names are matched, the records of the first `written` expressions are written.
    """

    version: int
    regexes: tuple[str, ...]
    names: Sequence[str]
    matches: tuple[tuple[tuple[str, ...], ...], ...] = ()
    position: int = 0
    written: int = 0
    matchers: tuple[Callable[[str], bool], ...] = field(default=(), compare=False)


class Counts(dict[str, int]):
    """Number of members or expressions per key. A key with the count 0 is not in the dictionary."""

    def add(self, key: str, change: int) -> None:
        count = self.get(key, 0) + change
        if count:
            self[key] = count
        else:
            self.pop(key, None)

    def add_all(self, keys: Iterable[str], change: int) -> None:
        for key in keys:
            self.add(key, change)


@dataclass(slots=True)
class Subscriptions:
    """Counts of subscriptions: by topic name, by topics of regular expressions, and by regular expression."""

    by_name: Counts = field(default_factory=Counts)
    """Topic -> number of members that subscribe to it by name."""
    by_regex: Counts = field(default_factory=Counts)
    """Topic -> number of evaluated regular expressions that match it."""
    regexes: Counts = field(default_factory=Counts)
    """Regular expression -> number of members that use it."""

    def copy(self) -> "Subscriptions":
        return Subscriptions(Counts(self.by_name), Counts(self.by_regex), Counts(self.regexes))

    def count(self, member: Member | None, change: int) -> None:
        """Add (1) or remove (-1) the subscription of a member."""
        if member is not None:
            self.by_name.add_all(member.topics, change)
            if member.regex:
                self.regexes.add(member.regex, change)

    def topics(self) -> dict[str, None]:
        """Return all subscribed topics."""
        return dict.fromkeys(self.by_name) | dict.fromkeys(self.by_regex)


@dataclass(slots=True)
class ConsumerGroup:
    """A group of the consumer protocol. It implements coordinator.group.state.Group."""

    group_id: str
    epoch: int = FIRST_EPOCH
    metadata_hash: int = 0
    assignment_epoch: int = FIRST_EPOCH
    assignment_ms: int = 0
    """Time of the computation of the target assignment, or 0 if there was none."""
    members: dict[str, Member] = field(default_factory=dict)
    targets: dict[str, dict[bytes, frozenset[int]]] = field(default_factory=dict)
    """Member id -> target assignment."""
    partition_epochs: dict[bytes, dict[int, int]] = field(default_factory=dict)
    """Topic id -> partition -> epoch of the member that holds it, even if that member must revoke it."""
    static_ids: dict[str, str] = field(default_factory=dict)
    """Instance id -> member id."""
    resolved: dict[str, ResolvedRegex] = field(default_factory=dict)
    subscriptions: Subscriptions = field(default_factory=Subscriptions)
    assignors: Counts = field(default_factory=Counts)
    classic_members: int = 0
    classic_protocols: Counts = field(default_factory=Counts)
    """Protocol name -> number of members of the classic protocol that support it."""
    has_partition_metadata: bool = False
    """True if an older broker has written a record of type 4, which must be deleted."""

    checked: tuple[int, int] = field(default=(-1, 0), compare=False)
    """Soft state: metadata version and group epoch at the last comparison of the metadata hash."""
    rejoining: dict[str, None] = field(default_factory=dict, compare=False)
    """Soft state: members of the classic protocol that must rejoin before their join timer ends."""
    resolution: Resolution | None = field(default=None, compare=False)
    """Soft state: progress of the evaluation of regular expressions."""
    describable: dict[str, DescribableTopics] = field(default_factory=dict, compare=False)
    """Soft state: regular expression -> topics that a member with it may describe, if there is an authorizer."""

    kind = GroupKind.CONSUMER

    @property
    def members_bytes(self) -> int:
        partitions = sum(map(len, self.partition_epochs.values()))
        return sum(member.size for member in self.members.values()) + ASSIGNED_BYTES * partitions

    @property
    def described_bytes_max(self) -> int:
        members = self.members.values()
        assignments = [*self.targets.values(), *(member.assigned for member in members)]
        assignments += [member.revoking for member in members]
        topics = sum(map(len, assignments))
        partitions = sum(len(partitions) for assignment in assignments for partitions in assignment.values())
        assigned_bytes = DESCRIBED_TOPIC_BYTES * topics + DESCRIBED_PARTITION_BYTES * partitions
        return assigned_bytes + sum(described_bytes(member.size) for member in members)

    @property
    def state(self) -> GroupState:
        if not self.members:
            return GroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return GroupState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return GroupState.STABLE
        return GroupState.RECONCILING

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def protocol_type(self) -> str:
        return CONSUMER_PROTOCOL

    @property
    def is_empty(self) -> bool:
        return not self.members

    # ---- queries ----------------------------------------------------------------------------------------------------

    def member(self, member_id: str) -> Member:
        """Return the member. Raise Refusal(UNKNOWN_MEMBER_ID) if it does not exist."""
        member = self.members.get(member_id)
        if member is None:
            raise Refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}.")
        return member

    def static_member(self, instance_id: str | None) -> Member | None:
        member_id = None if instance_id is None else self.static_ids.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def target_of(self, member: Member) -> Assignment:
        """Return the target of this member, or of the static member that it replaces."""
        if member.instance_id is None:
            return self.targets.get(member.member_id, {})
        return self.targets.get(self.static_ids.get(member.instance_id, ""), {})

    def partition_epoch(self, topic_id: bytes, partition: int) -> int:
        """Return the epoch of the member that holds the partition, or NO_MEMBER_EPOCH."""
        return self.partition_epochs.get(topic_id, {}).get(partition, NO_MEMBER_EPOCH)

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscriptions.by_name or topic in self.subscriptions.by_regex

    # ---- offsets and administration ---------------------------------------------------------------------------------

    def check_offset_commit(
        self, member_id: str, instance_id: str | None, generation: int, *, in_transaction: bool, api_version: int
    ) -> None:
        """Raise Refusal for an epoch above the member's. `check_partition_commit` checks older ones (KIP-1251)."""
        if generation < 0 and self.is_empty:
            return
        if in_transaction and generation == -1 and not member_id and instance_id is None:
            return
        member = self.member(member_id)
        if not in_transaction and not member.uses_classic and api_version < OFFSET_COMMIT_WITH_EPOCHS:
            raise Refusal(
                ErrorCode.UNSUPPORTED_VERSION,
                "OffsetCommit version 9 or above must be used by members using the consumer group protocol",
            )
        if generation > member.epoch:
            raise _stale(member, f"epoch {generation} is newer than the member's epoch {member.epoch}")

    def check_partition_commit(
        self, member_id: str, generation: int, topic_id: bytes, topic: str, partition: int
    ) -> None:
        """Raise Refusal unless the member has held this partition since the epoch `generation` or earlier."""
        member = self.members.get(member_id)
        if member is None or generation == member.epoch:
            return
        epoch = member.epoch_of(topic_id, partition)
        if epoch is None:
            raise _stale(member, f"{topic}-{partition} is not assigned to the member")
        if generation < epoch:
            raise _stale(
                member, f"epoch {generation} is older than epoch {epoch}, when it received {topic}-{partition}"
            )

    def commit_timers(self, member_id: str) -> tuple[Timer, ...]:
        """Return no timers: in this protocol, only heartbeats extend a session."""
        return ()

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if member_id is None and member_epoch < 0:
            return
        member = self.member(member_id or "")
        if member_epoch != member.epoch:
            raise _stale(member, f"epoch {member_epoch} is not the member's epoch {member.epoch}")

    def check_offset_delete(self) -> None:
        """Allow all requests: `is_subscribed_to` protects the offsets of subscribed topics."""

    def check_delete(self) -> None:
        if not self.is_empty:
            raise Refusal(ErrorCode.NON_EMPTY_GROUP)

    def offsets_expire_from_ms(self, commit_ms: int) -> int | None:
        return commit_ms

    def tombstones(self, ids: Mapping[str, str] | None = None) -> tuple[ShardRecord, ...]:
        """Return the tombstones of all records of the group. `ids` maps member ids that this decision has replaced."""
        group_id = self.group_id
        members = [(ids or {}).get(member_id, member_id) for member_id in self.members]
        return (
            *(r.current_assignment_tombstone(group_id, member_id) for member_id in members),
            *(r.target_assignment_tombstone(group_id, member_id) for member_id in members),
            r.target_metadata_tombstone(group_id),
            *(r.member_tombstone(group_id, member_id) for member_id in members),
            *(r.regex_tombstone(group_id, regex) for regex in self.resolved),
            r.partition_metadata_tombstone(group_id),
            r.group_tombstone(group_id),
        )

    # ---- changes by `apply` -----------------------------------------------------------------------------------------

    def put_member(self, member: Member) -> None:
        """Add or replace a member, and update the counts and indexes derived from it."""
        before = self.members.get(member.member_id)
        self._count(before, -1)
        self.members[member.member_id] = member
        self._count(member, 1)
        if before is not None:
            self._for_partitions(before, self._remove_epochs)
            if before.instance_id != member.instance_id:
                self._forget_instance(before)
        self._for_partitions(member, self._add_epochs)
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = member.member_id

    def drop_member(self, member_id: str) -> None:
        member = self.members.pop(member_id)
        self._count(member, -1)
        self._for_partitions(member, self._remove_epochs)
        self._forget_instance(member)

    def put_regex(self, regex: str, resolved: ResolvedRegex | None) -> None:
        """Store the topics of a regular expression. None removes the expression."""
        before = self.resolved.pop(regex, None)
        if before is not None:
            self.subscriptions.by_regex.add_all(before.topics, -1)
        if resolved is None:
            self.describable.pop(regex, None)
        else:
            self.resolved[regex] = resolved
            self.subscriptions.by_regex.add_all(resolved.topics, 1)

    def _forget_instance(self, member: Member) -> None:
        if member.instance_id is not None and self.static_ids.get(member.instance_id) == member.member_id:
            del self.static_ids[member.instance_id]

    def _count(self, member: Member | None, change: int) -> None:
        if member is None:
            return
        self.subscriptions.count(member, change)
        if member.assignor is not None:
            self.assignors.add(member.assignor, change)
        if member.classic is not None:
            self.classic_members += change
            self.classic_protocols.add_all((name for name, _ in member.classic.protocols), change)

    def _for_partitions(self, member: Member, change: Callable[[Partitions, int], None]) -> None:
        change(member.assigned, member.epoch)
        change(member.revoking, member.epoch)

    def _add_epochs(self, partitions: Partitions, epoch: int) -> None:
        for topic_id, held in partitions.items():
            self.partition_epochs.setdefault(topic_id, {}).update(dict.fromkeys(held, epoch))

    def _remove_epochs(self, partitions: Partitions, epoch: int) -> None:
        # In a compacted log, the record of a partition's new owner can precede the record that removes it from the old
        # owner. The epoch of the new owner must stay.
        for topic_id, held in partitions.items():
            epochs = self.partition_epochs.get(topic_id, {})
            for partition in held:
                if epochs.get(partition) == epoch:
                    del epochs[partition]
            if not epochs:
                self.partition_epochs.pop(topic_id, None)


def _stale(member: Member, reason: str) -> Refusal:
    error = ErrorCode.ILLEGAL_GENERATION if member.uses_classic else ErrorCode.STALE_MEMBER_EPOCH
    return Refusal(error, f"Member {member.member_id}: {reason}.")
