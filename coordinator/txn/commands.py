"""What can be asked of one shard of transactional ids, what it answers, and what it wants done."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from odradek.coordinator.bounded_ids import BoundedIdDict
from odradek.coordinator.txn.ports import Marker, TopicPartition, TxnConfig
from odradek.coordinator.txn.state import Transaction
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.runtime.shard import Again

TV2: Final = 2
"""The client's transaction version from which every end of a transaction raises the epoch (KIP-890)."""


class ProducerIdentity(NamedTuple):
    producer_id: int
    producer_epoch: int


PartitionErrors = dict[TopicPartition, ErrorCode]


@dataclass(frozen=True, slots=True)
class InitProducerId:
    """`expected` is the identity that the producer believes to have (KIP-360), None from one that has just started."""

    transactional_id: str
    timeout_ms: int
    expected: ProducerIdentity | None = None
    client_id: str | None = None


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """`client_version` 0 for AddPartitionsToTxn v0-3 and AddOffsetsToTxn, TV2 for brokers that add on behalf of one."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    client_version: int = 0
    client_id: str | None = None


@dataclass(frozen=True, slots=True)
class VerifyPartitions:
    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class EndTransaction:
    """`client_version` TV2 for EndTxn v5 and later, 0 below."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    commit: bool
    client_version: int = 0


@dataclass(frozen=True, slots=True)
class AbortTimedOut:
    """The sweep saw this transaction (told by its start) run out of time."""

    transactional_id: str
    producer_id: int
    start_ms: int


@dataclass(frozen=True, slots=True)
class CompleteTransaction:
    """Every marker of the transaction that was prepared with this identity is written."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class ExpireIds:
    transactional_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SweepTimedOut:
    pass


@dataclass(frozen=True, slots=True)
class SweepExpired:
    pass


@dataclass(frozen=True, slots=True)
class Describe:
    transactional_id: str


@dataclass(frozen=True, slots=True)
class ListAll:
    pass


Command = (
    InitProducerId
    | AddPartitions
    | VerifyPartitions
    | EndTransaction
    | AbortTimedOut
    | CompleteTransaction
    | ExpireIds
    | SweepTimedOut
    | SweepExpired
    | Describe
    | ListAll
)


@dataclass(frozen=True, slots=True)
class SendMarkers:
    """Effect: write the markers of a prepared transaction, then tell CompleteTransaction."""

    transactional_id: str
    marker: Marker


@dataclass(frozen=True, slots=True)
class Post:
    """Effect: give the shard this command."""

    command: Command


@dataclass(slots=True)  # not frozen: one is made for every command, and freezing triples its price
class Situation:
    """What a decision about one id is made of. `txn` is None for an unknown id.

    `ids`: those that the shard knows. `uncommitted`: its last record is behind the high watermark. `completing`: its markers are being written.
    `take_producer_id` raises Refusal(COORDINATOR_LOAD_IN_PROGRESS) while there is none.
    """

    txn: Transaction | None
    uncommitted: bool
    completing: bool
    now_ms: int
    coordinator_epoch: int
    feature_level: int
    config: TxnConfig
    take_producer_id: Callable[[], int]
    ids: BoundedIdDict[Transaction]

    @property
    def pending(self) -> bool:
        """Kafka's "pending state": one of its transitions is being prepared, appended, or completed."""
        return self.uncommitted or self.completing


def again(transactional_id: str) -> Again:
    """Wait for the id; CONCURRENT_TRANSACTIONS when that takes too long."""
    return Again(transactional_id, Refusal(ErrorCode.CONCURRENT_TRANSACTIONS))


Reply = Any
