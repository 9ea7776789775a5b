"""The state of one partition of `__consumer_offsets`: its groups of both protocols, and their offsets.

What is in the log is hard state, changed by `apply` alone. Beside it stands soft state, changed by the soft changes of
decisions and lost with the leadership as in Kafka: members of a classic group that are joining, which requests wait for a
response, how far regular expressions are resolved.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol

from odradek.coordinator.by_id import ById
from odradek.coordinator.group.memory_accounting import MemoryAccounting
from odradek.coordinator.group.offset_store import OffsetStore
from odradek.coordinator.group.ports import FeatureLevels, GroupConfigs, TopicInfo, Topics
from odradek.runtime.shard import ShardRecord, Timer

CONSUMER_PROTOCOL: Final = "consumer"
"""The protocol type of consumers in JoinGroup. The coordinator can read the subscriptions of such members."""
GROUPS_MAX: Final = 20_000
"""Groups in one partition of `__consumer_offsets` up to which a request makes a new one; Kafka has no limit."""


class GroupKind(Enum):
    """As ListGroups names the types."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


class Group(Protocol):
    """What offsets and administration ask of a group, whichever its protocol."""

    group_id: str
    kind: GroupKind

    @property
    def state_name(self) -> str:
        """As ListGroups and DescribeGroups say it: Empty, Stable ..."""

    @property
    def protocol_type(self) -> str:
        """What the members of a classic group say ("consumer" for consumers); always "consumer" with the other protocol."""

    @property
    def is_empty(self) -> bool:
        """No members."""

    @property
    def members_bytes(self) -> int:
        """Bytes of memory of all members: MEMBER_BYTES for each, their texts and metadata, and their assignments."""

    def check_offset_commit(
        self, member_id: str, instance_id: str | None, generation: int, *, in_transaction: bool, api_version: int
    ) -> None:
        """May this member commit? `generation` is the member epoch of a consumer group. Raises Refusal."""

    def check_offset_commit_of(
        self, member_id: str, generation: int, topic_id: bytes, topic: str, partition: int
    ) -> None:
        """May this member, of an older epoch, commit for this partition (KIP-1251)? Raises Refusal."""

    def commit_timers(self, member_id: str) -> tuple[Timer, ...]:
        """The timers that a commit of this member sets anew: it keeps the session of a classic member alive."""

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """May this member fetch offsets (OffsetFetch v9+)? Raises Refusal."""

    def check_offset_delete(self) -> None:
        """May offsets be deleted, of topics that it is not subscribed to? Raises Refusal(NON_EMPTY_GROUP)."""

    def check_delete(self) -> None:
        """May the group be deleted? Raises Refusal(NON_EMPTY_GROUP ...)."""

    def is_subscribed_to(self, topic: str) -> bool:
        """Offsets of a topic that a member subscribes to are neither deleted nor expire."""

    def offsets_expire_from_ms(self, commit_ms: int) -> int | None:
        """The wall-clock instant from which the retention of an offset committed at `commit_ms` counts; None: not at all
        now (KIP-211: a group with members keeps what it is subscribed to, an empty one counts from when it became empty).
        """

    def tombstones(self) -> tuple[ShardRecord, ...]:
        """The records that make the group itself be gone from the log (its offsets are not its business)."""


@dataclass(slots=True)
class State:
    """Everything the cores share. `new_id()` makes the ids of members (a random uuid as text)."""

    configs: GroupConfigs
    topics: Topics
    features: FeatureLevels
    new_id: Callable[[], str]
    offsets: OffsetStore
    groups: ById[Group] = field(default_factory=ById)
    leader_epoch: int = -1
    committed: int = 0
    """The high watermark as last heard of."""
    skipped_records: int = 0
    """Records of types or versions that this broker does not know."""
    memory: MemoryAccounting = field(default_factory=MemoryAccounting)
    """Soft: what members may still take in memory."""
    topic_hashes: dict[str, tuple[TopicInfo, int]] = field(default_factory=dict)
    """A memo, not state: the hash of a topic that a consumer group subscribes to, and what it was computed from."""

    def has_capacity_for(self, group_id: str) -> bool:
        """May a request make this new group?"""
        return self.groups.has_capacity_for(group_id, GROUPS_MAX)
