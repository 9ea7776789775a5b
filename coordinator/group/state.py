"""The state of one partition of `__consumer_offsets`: its groups of both protocols, and their offsets.

Only `apply` changes hard state, which the log contains. Soft changes of decisions change soft state, which is lost
with the leadership, as in Kafka: joining members of classic groups, waiting requests, and progress of regular
expressions.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol

from odradek.coordinator.bounded_ids import BoundedIdDict
from odradek.coordinator.group.memory_accounting import MemoryAccounting
from odradek.coordinator.group.offset_store import OffsetStore
from odradek.coordinator.group.ports import FeatureLevels, GroupConfigs, TopicInfo, Topics
from odradek.runtime.shard import ShardRecord, Timer

GROUPS_MAX: Final = 20_000
"""Maximum groups in one partition of `__consumer_offsets` for requests that create a group. Kafka has no limit."""


class GroupKind(Enum):
    """Protocol of a group. The values are the group types of ListGroups."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


class Group(Protocol):
    """Operations of a group, of either protocol, for offsets and for administrative requests."""

    group_id: str
    kind: GroupKind

    @property
    def state_name(self) -> str:
        """State of the group as in ListGroups and DescribeGroups: Empty, Stable ..."""

    @property
    def protocol_type(self) -> str:
        """Protocol type of the members' JoinGroup requests. It is "consumer" for groups of the consumer protocol."""

    @property
    def is_empty(self) -> bool:
        """Return True if the group has no members."""

    @property
    def members_bytes(self) -> int:
        """Bytes of memory of all members: their objects (MEMBER_BYTES), ids, names, metadata and assignments."""

    @property
    def described_bytes_max(self) -> int:
        """Maximum memory of the description of the group for DescribeGroups or ConsumerGroupDescribe, in bytes."""

    def check_offset_commit(
        self, member_id: str, instance_id: str | None, generation: int, *, in_transaction: bool, api_version: int
    ) -> None:
        """Raise Refusal if this member may not commit. `generation` is the member epoch in a consumer group."""

    def check_partition_commit(
        self, member_id: str, generation: int, topic_id: bytes, topic: str, partition: int
    ) -> None:
        """Raise Refusal if this member, at an older epoch, may not commit for this partition (KIP-1251)."""

    def commit_timers(self, member_id: str) -> tuple[Timer, ...]:
        """Return the timers that a commit of this member restarts: a commit extends the session of a classic member."""

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Raise Refusal if this member may not fetch offsets (OffsetFetch v9+)."""

    def check_offset_delete(self) -> None:
        """Raise Refusal(NON_EMPTY_GROUP) if no offsets may be deleted. Subscribed topics are checked one by one."""

    def check_delete(self) -> None:
        """Raise Refusal (NON_EMPTY_GROUP ...) if the group may not be deleted."""

    def is_subscribed_to(self, topic: str) -> bool:
        """Return True if a member subscribes to the topic. Its offsets do not expire and cannot be deleted."""

    def offsets_expire_from_ms(self, commit_ms: int) -> int | None:
        """Return the time (wall clock) from which the retention of an offset committed at `commit_ms` counts.

        Return None if the offset does not expire now. In an empty group the retention counts from when it became empty
        (KIP-211).
        """

    def tombstones(self) -> tuple[ShardRecord, ...]:
        """Return the tombstones of the records of the group itself, without those of its offsets."""


@dataclass(slots=True)
class State:
    """State that the cores of one partition share. `new_id()` generates a member id (a random UUID as text)."""

    configs: GroupConfigs
    topics: Topics
    features: FeatureLevels
    new_id: Callable[[], str]
    offsets: OffsetStore
    groups: BoundedIdDict[Group] = field(default_factory=BoundedIdDict)
    leader_epoch: int = -1
    committed: int = 0
    """The high watermark at the last `on_committed`."""
    skipped_records: int = 0
    """Number of transactional records that are no offsets."""
    memory: MemoryAccounting = field(default_factory=MemoryAccounting)
    """Soft state: the memory that members can still take."""
    topic_hashes: dict[str, tuple[TopicInfo, int]] = field(default_factory=dict)
    """Cache of the hashes of topics that consumer groups subscribe to: topic name -> (hashed metadata, hash)."""

    def has_capacity_for(self, group_id: str) -> bool:
        """Return True if a request may create this group."""
        return self.groups.has_capacity_for(group_id, GROUPS_MAX)
