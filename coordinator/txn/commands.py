"""Commands to one shard of transactional ids, their replies, and its effects."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from odradek.client_shares import Client
from odradek.coordinator.txn.id_shares import IdShares
from odradek.coordinator.txn.ports import Marker, TopicPartition, TxnConfig
from odradek.coordinator.txn.state import ProducerIdentity, Transaction
from odradek.coordinator.txn.table import TransactionTable
from odradek.frozen import frozen_dataclass
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.runtime.shard import ExpiryCommand, RetryAfter

TV2: Final = 2
"""Transaction version of clients whose producer epoch rises at each end of a transaction (KIP-890)."""


PartitionErrors = dict[TopicPartition, ErrorCode]
"""Reply to AddPartitions and VerifyPartitions: the error of each partition, NONE for success."""


@frozen_dataclass(frozen=True, slots=True)
class InitProducerId:
    """Request the identity of a producer, and abort an ongoing transaction of its id.

    `timeout_ms` is NEVER_TIMES_OUT_MS for a producer that takes part in a two-phase commit (KIP-939, Enable2Pc).
    `expected` is the identity that the producer has (KIP-360). It is None from a producer that has just started.
    """

    transactional_id: str
    timeout_ms: int
    expected: ProducerIdentity | None = None
    client_id: str | None = None
    client: Client | None = None
    """Client whose share a new id counts for; None if it is not known."""


@frozen_dataclass(frozen=True, slots=True)
class RecoverProducer:
    """Request the identity of a producer, and keep an ongoing transaction of its id (KIP-939, KeepPreparedTxn).

    The time-out of `init` applies if no transaction is ongoing. An ongoing transaction keeps its own, unless that of
    `init` is NEVER_TIMES_OUT_MS: then the transaction never times out.
    """

    init: InitProducerId

    @property
    def transactional_id(self) -> str:
        return self.init.transactional_id


class RecoveredProducer(NamedTuple):
    """Reply to RecoverProducer. `ongoing` is the identity of the kept transaction; None if there is none."""

    identity: ProducerIdentity
    ongoing: ProducerIdentity | None


@frozen_dataclass(frozen=True, slots=True)
class AddPartitions:
    """Add partitions to a transaction.

    `client_version` is 0 for AddPartitionsToTxn v0-3 and AddOffsetsToTxn. It is TV2 if a broker adds the partition of a
    Produce or TxnOffsetCommit request.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    client_version: int = 0
    client_id: str | None = None


@frozen_dataclass(frozen=True, slots=True)
class VerifyPartitions:
    """Check that partitions belong to the ongoing transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]


@frozen_dataclass(frozen=True, slots=True)
class EndTransaction:
    """Commit or abort a transaction. `client_version` is TV2 for EndTxn v5 and later, else 0."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    commit: bool
    client_version: int = 0


@frozen_dataclass(frozen=True, slots=True)
class AbortTimedOut:
    """Abort a transaction after its time-out. `start_ms` identifies it among the transactions of the id."""

    transactional_id: str
    producer_id: int
    start_ms: int


@frozen_dataclass(frozen=True, slots=True)
class CompleteTransaction:
    """Complete the transaction that was prepared with this identity: all its markers are written."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


@frozen_dataclass(frozen=True, slots=True)
class ExpireIds(ExpiryCommand):
    """Write tombstones for those of the ids that are still expired."""

    transactional_ids: tuple[str, ...]


@frozen_dataclass(frozen=True, slots=True)
class ExpireId:
    """Remove an id without an open transaction now, if its identity is still `expected`."""

    transactional_id: str
    expected: ProducerIdentity


@frozen_dataclass(frozen=True, slots=True)
class SweepTimedOut:
    """Find transactions whose time-out has passed.

    `ids` are the transactional ids that the sweep has to check, from `position` on. None: those of all ongoing
    transactions.
    """

    ids: tuple[str, ...] | None = None
    position: int = 0


@frozen_dataclass(frozen=True, slots=True)
class SweepExpired(ExpiryCommand):
    """Find transactional ids whose expiration time has passed.

    `ids` are the transactional ids that the sweep has to check, from `position` on. None: all ids.
    """

    ids: tuple[str, ...] | None = None
    position: int = 0


@frozen_dataclass(frozen=True, slots=True)
class Describe:
    """Return the transaction of an id."""

    transactional_id: str


@frozen_dataclass(frozen=True, slots=True)
class ListAll:
    """Return the transactions of all ids of the shard."""


Command = (
    InitProducerId
    | RecoverProducer
    | AddPartitions
    | VerifyPartitions
    | EndTransaction
    | AbortTimedOut
    | CompleteTransaction
    | ExpireIds
    | ExpireId
    | SweepTimedOut
    | SweepExpired
    | Describe
    | ListAll
)


@frozen_dataclass(frozen=True, slots=True)
class SendMarkers:
    """Effect: write the markers of a prepared transaction, then submit CompleteTransaction."""

    transactional_id: str
    marker: Marker


@frozen_dataclass(frozen=True, slots=True)
class Post:
    """Effect: submit `command` to the shard."""

    command: Command


@frozen_dataclass(frozen=True, slots=True)
class PostNextTurn:
    """Effect: submit `command` to the shard in the next turn of the event loop. Other work runs before it."""

    command: Command


@dataclass(slots=True)  # not frozen: each command creates one, and a frozen dataclass takes three times as long
class DecisionContext:
    """Input of a decision about one transactional id.

    - `txn`: the transaction of the id; None if the id is unknown.
    - `uncommitted`: True if the last record of the id is not committed.
    - `completing`: True if the markers of the id are being written.
    - `take_producer_id` returns a new producer id, or raises Refusal(COORDINATOR_LOAD_IN_PROGRESS) if none is
      available.
    - `ids`: all transactional ids of the shard, with their transactions.
    - `shares`: the clients that have created them.
    """

    txn: Transaction | None
    uncommitted: bool
    completing: bool
    now_ms: int
    coordinator_epoch: int
    feature_level: int
    config: TxnConfig
    take_producer_id: Callable[[], int]
    ids: TransactionTable
    shares: IdShares

    @property
    def pending(self) -> bool:
        """True if the last record of the id is not committed, or its markers are being written."""
        return self.uncommitted or self.completing


def retry_after(transactional_id: str) -> RetryAfter:
    """Return the result that makes a command wait for a record of the id.

    The engine refuses the command with CONCURRENT_TRANSACTIONS after a bounded time.
    """
    return RetryAfter(transactional_id, Refusal(ErrorCode.CONCURRENT_TRANSACTIONS))


Reply = Any
"""Reply of a command. Its type depends on the command."""
