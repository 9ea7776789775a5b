"""Ports of the transaction coordinator to the rest of the broker, and its configuration."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from odradek.frozen import frozen_dataclass
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from asyncio import Future


class TopicPartition(NamedTuple):
    """Topic name and partition number."""

    topic: str
    partition: int


@frozen_dataclass(frozen=True, slots=True)
class Marker:
    """Markers of one transaction for the partitions of one leader, as in WriteTxnMarkers.

    Producer id and epoch are those of the Prepare record. `transaction_version` is that of the client (KIP-1228).
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
    partitions: tuple[TopicPartition, ...]
    transaction_version: int


MarkerResults = Sequence[dict[TopicPartition, ErrorCode]]
"""Errors per partition for each marker of a request, in the order of the request. NONE is success."""


class MarkerSender(Protocol):
    """Port that sends WriteTxnMarkers requests to brokers."""

    def write_markers(self, broker_id: int, markers: Sequence[Marker]) -> "Future[MarkerResults]":
        """Send `markers` to `broker_id` in one request, without the network if that is this broker.

        The future has the results. It is done on return if the broker is this one. It raises OSError if the broker
        cannot be reached or the connection is lost: the markers may or may not be written then.
        """


class Leaders(Protocol):
    """Leaders of partitions in the metadata."""

    def leader_of(self, topic: str, partition: int) -> int | None:
        """Return the leader of the partition, NO_LEADER if it has none, None if the partition does not exist."""


class FeatureLevels(Protocol):
    """Finalized feature levels of the cluster."""

    def transaction_version(self) -> int:
        """Return the finalized level of `transaction.version`: 0, 1 or 2."""


AllocateProducerIds = Callable[[], Awaitable[tuple[int, int]]]
"""Function that requests a block from the controller: (first producer id, length). It raises Refusal or OSError."""


@frozen_dataclass(frozen=True, slots=True)
class TxnConfig:
    """Broker properties of the transaction coordinator. Times are in ms, sizes in bytes.

    `request_timeout_ms` bounds the commit of one decision. After it, the response is COORDINATOR_NOT_AVAILABLE. Kafka
    uses the time-out of the transaction instead, so a transaction with a very short one fails although its record is
    committed later. `wait_ms_max` bounds the time that a request waits for a pending id. After it, the response is
    CONCURRENT_TRANSACTIONS.
    """

    max_timeout_ms: int = 900_000
    two_phase_commit: bool = False
    id_expiration_ms: int = 604_800_000
    abort_timed_out_interval_ms: int = 10_000
    remove_expired_interval_ms: int = 3_600_000
    tombstone_batch_bytes_max: int = 1_048_588
    request_timeout_ms: int = 30_000
    wait_ms_max: int = 1_000
