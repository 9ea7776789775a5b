"""Requests and results for partitions: ISR changes, reassignments, leader elections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.frozen import frozen_dataclass
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from uuid import UUID


@frozen_dataclass(frozen=True, slots=True)
class PartitionIsr:
    """A change of one partition's ISR that its leader requests (AlterPartition v3).

    `isr`: (broker id, broker epoch) of each member. The epoch is -1 if the leader does not know it.
    `leader_epoch` and `partition_epoch` are the epochs of the state that the change is based on.
    `recovering`: the leader was elected uncleanly and has not recovered yet.
    """

    topic_id: UUID
    index: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]
    recovering: bool = False


@frozen_dataclass(frozen=True, slots=True)
class AlteredPartition:
    """The state of the partition after an AlterPartition.

    After an error, the fields below `error` have their defaults.
    """

    topic_id: UUID
    index: int
    error: ErrorCode = ErrorCode.NONE
    leader: int = -1
    leader_epoch: int = -1
    partition_epoch: int = -1
    isr: tuple[int, ...] = ()
    recovering: bool = False


@frozen_dataclass(frozen=True, slots=True)
class NewReplicas:
    """The replicas that a partition is reassigned to, the preferred leader first. None: cancel the reassignment."""

    topic: str
    index: int
    replicas: tuple[int, ...] | None


@frozen_dataclass(frozen=True, slots=True)
class OngoingReassignment:
    """A reassignment in progress. `replicas` include the `adding` and the `removing` ones."""

    topic: str
    index: int
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


@frozen_dataclass(frozen=True, slots=True)
class PartitionResult:
    """The result for one partition."""

    topic: str
    index: int
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
