"""A member of a group of the consumer protocol (KIP-848)."""

from collections.abc import Mapping
from dataclasses import field
from enum import IntEnum
from types import MappingProxyType
from typing import Final

from odradek.coordinator.group.memory_accounting import MEMBER_BYTES, text_bytes
from odradek.frozen import frozen_dataclass

JOIN_EPOCH: Final = 0
"""Epoch in the heartbeat of a member that joins or rejoins."""
LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2
"""Epoch in the last heartbeat of a static member that will return.

It keeps its partitions until its session expires.
"""
NO_MEMBER_EPOCH: Final = -1
NO_TIMEOUT: Final = -1

Partitions = Mapping[bytes, Mapping[int, int]]
"""Topic id -> partition -> epoch at which the member received it (KIP-1251)."""

NO_PARTITIONS: Final[Partitions] = MappingProxyType({})


class MemberState(IntEnum):
    """Progress of a member towards its target assignment. The values are those of the record."""

    STABLE = 0
    """The member has the assignment of its epoch."""
    UNREVOKED_PARTITIONS = 1
    """The member must revoke partitions, and has not confirmed it yet."""
    UNRELEASED_PARTITIONS = 2
    """The member waits for partitions that other members still hold."""
    UNKNOWN = 127
    """A newer coordinator wrote a value that this version does not know."""

    @classmethod
    def of(cls, value: int) -> "MemberState":
        return _STATES.get(value, cls.UNKNOWN)


_STATES: Final = {int(state): state for state in MemberState}


@frozen_dataclass(frozen=True, slots=True)
class ClassicMember:
    """JoinGroup data of a member that uses the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """(name, metadata) in order of preference."""


@frozen_dataclass(frozen=True, slots=True)
class Member:
    """One member, as an immutable value that each change replaces.

    OffsetCommit and heartbeats must contain `epoch`. `topics` are the names that the member subscribes to by name.
    """

    member_id: str
    epoch: int = JOIN_EPOCH
    previous_epoch: int = NO_MEMBER_EPOCH
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = NO_TIMEOUT
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    """Sorted, without duplicates."""
    regex: str | None = ""
    assignor: str | None = None
    assigned: Partitions = field(default_factory=lambda: NO_PARTITIONS)
    revoking: Partitions = field(default_factory=lambda: NO_PARTITIONS)
    """Partitions that the member must revoke."""
    classic: ClassicMember | None = None

    @property
    def size(self) -> int:
        """Estimated bytes that the member takes in memory, without its assignment."""
        ids = text_bytes(self.member_id, self.instance_id, self.rack_id, self.client_id, self.client_host)
        protocols = () if self.classic is None else self.classic.protocols
        metadata = sum(text_bytes(name) + len(data) for name, data in protocols)
        return MEMBER_BYTES + ids + metadata + text_bytes(*self.topics, self.regex)

    @property
    def uses_classic(self) -> bool:
        return self.classic is not None

    @property
    def held(self) -> Partitions:
        """Partitions that no other member may have: assigned ones, and those to revoke."""
        return {
            topic_id: {**self.assigned.get(topic_id, {}), **self.revoking.get(topic_id, {})}
            for topic_id in {**self.assigned, **self.revoking}
        }

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def epoch_of(self, topic_id: bytes, partition: int) -> int | None:
        """Return the epoch at which the member received this partition, or None if the member does not hold it."""
        epoch = self.assigned.get(topic_id, {}).get(partition)
        return self.revoking.get(topic_id, {}).get(partition) if epoch is None else epoch
