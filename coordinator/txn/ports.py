"""What the transaction coordinator needs from the rest of the broker."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from asyncio import Future

NO_LEADER: Final = -1
"""The partition exists, but no live broker leads it now."""


class TopicPartition(NamedTuple):
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class Marker:
    """One end of one transaction, for the partitions that one broker leads.

    Producer id and epoch are those of the Prepare record; `transaction_version` is the client's (KIP-1228).
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
    partitions: tuple[TopicPartition, ...]
    transaction_version: int


MarkerResults = Sequence[dict[TopicPartition, ErrorCode]]
"""For each marker of a request, in its order, the outcome per partition."""


class MarkerSender(Protocol):
    def write_markers(self, broker_id: int, markers: Sequence[Marker]) -> "Future[MarkerResults]":
        """Have `markers` written by `broker_id` (this broker included, without network) in one request.

        The future is done on return where possible; it raises OSError when the broker cannot be reached or the
        connection is lost, after which nothing is known about the markers.
        """


class Leaders(Protocol):
    def leader_of(self, topic: str, partition: int) -> int | None:
        """The broker that leads the partition, NO_LEADER when it has none, None when it does not exist (any more)."""


class FeatureLevels(Protocol):
    def transaction_version(self) -> int:
        """The finalized level of `transaction.version`: 0, 1 or 2."""


AllocateProducerIds = Callable[[], Awaitable[tuple[int, int]]]
"""Asks the controller for a block: (first producer id, length). Raises Refusal or OSError."""


@dataclass(frozen=True, slots=True)
class TxnConfig:
    """Kafka's properties of the coordinator, in milliseconds and bytes.

    `request_timeout_ms` bounds the commit of one decision before the client is told COORDINATOR_NOT_AVAILABLE. Kafka
    takes the transaction's own time-out there, so that a very short one fails writes that succeed later.
    `wait_ms_max` is how long a request waits for an id that is busy before it is told CONCURRENT_TRANSACTIONS.
    """

    max_timeout_ms: int = 900_000
    id_expiration_ms: int = 604_800_000
    abort_timed_out_interval_ms: int = 10_000
    remove_expired_interval_ms: int = 3_600_000
    tombstone_batch_bytes_max: int = 1_048_588
    request_timeout_ms: int = 30_000
    wait_ms_max: int = 1_000
