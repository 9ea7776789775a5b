"""A member of a group of the consumer protocol (KIP-848): a value, replaced whole whenever something about it changes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import Final

from odradek.coordinator.group.memory_accounting import MEMBER_BYTES, text_bytes

JOIN_EPOCH: Final = 0
"""A member that (re-)joins sends it."""
LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2
"""A static member that will be back: its partitions stay its own until its session ends."""
NO_EPOCH: Final = -1
NO_TIMEOUT: Final = -1

Partitions = Mapping[bytes, Mapping[int, int]]
"""Topic id -> partition -> the epoch at which the member got it (KIP-1251)."""

NO_PARTITIONS: Final[Partitions] = MappingProxyType({})


class MemberState(IntEnum):
    """Where a member stands on its way to its target assignment; the value is that of the log."""

    STABLE = 0
    """It has what its epoch's assignment gives it."""
    UNREVOKED_PARTITIONS = 1
    """It has been told to give partitions up, and has not said yet that it has."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that other members still hold."""
    UNKNOWN = 127
    """Written by a newer coordinator."""

    @classmethod
    def of(cls, value: int) -> "MemberState":
        return _STATES.get(value, cls.UNKNOWN)


_STATES: Final = {int(state): state for state in MemberState}


@dataclass(frozen=True, slots=True)
class ClassicMember:
    """What a member that speaks the classic protocol has said of itself in JoinGroup."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """(name, metadata), the preferred one first."""


@dataclass(frozen=True, slots=True)
class Member:
    """`epoch` is what OffsetCommit and heartbeats must carry; `topics` are the names it subscribes to by name."""

    member_id: str
    epoch: int = JOIN_EPOCH
    previous_epoch: int = NO_EPOCH
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = NO_TIMEOUT
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    """Sorted, without doubles."""
    regex: str | None = ""
    assignor: str | None = None
    assigned: Partitions = field(default_factory=lambda: NO_PARTITIONS)
    revoking: Partitions = field(default_factory=lambda: NO_PARTITIONS)
    """Told to be given up."""
    classic: ClassicMember | None = None

    @property
    def size(self) -> int:
        """What it takes in memory, about, assignments aside."""
        ids = text_bytes(self.member_id, self.instance_id, self.rack_id, self.client_id, self.client_host)
        protocols = () if self.classic is None else self.classic.protocols
        said = sum(text_bytes(name) + len(metadata) for name, metadata in protocols)
        return MEMBER_BYTES + ids + said + text_bytes(*self.topics, self.regex)

    @property
    def uses_classic(self) -> bool:
        return self.classic is not None

    @property
    def held(self) -> Partitions:
        """What nobody else may have: its own, and what it has been told to give up."""
        return {
            topic_id: {**self.assigned.get(topic_id, {}), **self.revoking.get(topic_id, {})}
            for topic_id in {**self.assigned, **self.revoking}
        }

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def epoch_of(self, topic_id: bytes, partition: int) -> int | None:
        """The epoch at which this partition became the member's; None when it is not, or no longer."""
        epoch = self.assigned.get(topic_id, {}).get(partition)
        return self.revoking.get(topic_id, {}).get(partition) if epoch is None else epoch
