"""Verify before an append that the partition belongs to the producer's transaction (KIP-890).

Without verification, a late batch causes a hanging transaction:

1. A producer sends a batch, which the network delays, and ends the transaction.
2. The marker is written. Then the delayed batch arrives, and would start a new transaction in the partition.
3. The coordinator does not know that transaction. No marker ends it, and the last stable offset stops.

So a transactional batch is appended in these steps:

1. The log returns a verification guard for producer id and epoch. If the transaction is already open in the partition,
   there is nothing to verify.
2. The coordinator verifies that the client added the partition with AddPartitionsToTxn (Produce up to version 11,
   TxnOffsetCommit up to version 4), or adds it (from versions 12 and 5 on: the implicit add of transaction.version 2).
3. The append presents the guard. A marker written after step 1 has invalidated the guard, and the log refuses the
   batch.

Errors concern one partition. `Terms` maps them to the errors of the client's request.
"""

from asyncio import CancelledError, Future, get_running_loop
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Final, Protocol

from odradek.broker.config.properties import Config
from odradek.coordinator.txn.commands import PartitionErrors
from odradek.coordinator.txn.ports import TopicPartition
from odradek.frozen import frozen_dataclass
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.storage.producers.state import NO_GUARD

if TYPE_CHECKING:
    from odradek.broker.partition.partition import Partition

IMPLICIT_ADD_MIN_VERSION: Final = 12
"""First version of Produce whose partitions the broker adds to the transaction (KIP-890, transaction.version 2)."""
ABORTABLE_MIN_VERSION: Final = 11
"""First version of Produce whose clients know TRANSACTION_ABORTABLE (KIP-890)."""
"""The guard of an append that needs no verification."""

Outcome = int | Refusal
"""The verification guard for the append, or the error of the batch."""


@frozen_dataclass(frozen=True, slots=True)
class TransactionalBatch:
    """Header fields of one partition's transactional batch that verification needs."""

    partition: "Partition"
    producer_id: int
    producer_epoch: int
    base_sequence: int


@frozen_dataclass(frozen=True, slots=True)
class Terms:
    """Rules of verification for one API and version."""

    implicit_add: bool
    """True if the coordinator adds a partition that does not belong to the transaction; otherwise it only verifies."""
    refusal: Callable[[ErrorCode], Refusal]
    """Return the client's error for an error of the coordinator."""


@cache
def produce_terms(version: int) -> Terms:
    """Return the rules for one version of Produce."""
    return Terms(version >= IMPLICIT_ADD_MIN_VERSION, partial(refusal_for, version=version))


class Coordinator(Protocol):
    """The transaction coordinator, as verification uses it.

    Both methods raise Refusal, directly or through the future.
    """

    def verify_partitions(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Sequence[TopicPartition]
    ) -> "Future[PartitionErrors]":
        """Return the error of each partition: NONE if it belongs to the transaction."""

    def add_partitions_for_produce(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Sequence[TopicPartition]
    ) -> "Future[PartitionErrors]":
        """Add the partitions to the transaction, and return the error of each."""


def one_producer(batches: Sequence[TransactionalBatch]) -> tuple[int, int]:
    """Return producer id and epoch of all transactional batches of a request.

    Raise Refusal(INVALID_PRODUCER_ID_MAPPING) if the batches have different ones.
    """
    first = batches[0]
    for batch in batches:
        if batch.producer_id != first.producer_id or batch.producer_epoch != first.producer_epoch:
            raise Refusal(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    return first.producer_id, first.producer_epoch


def refusal_for(error: ErrorCode, version: int) -> Refusal:
    """Return the error of a Produce response for the coordinator's `error`, with Kafka's message if there is one.

    Retriable errors of the coordinator become NOT_ENOUGH_REPLICAS, which producers retry without fetching metadata
    (KAFKA-16386). PRODUCER_FENCED becomes INVALID_PRODUCER_EPOCH, because Produce never returns the former
    (KAFKA-10687).
    """
    mapped = error
    if error is ErrorCode.PRODUCER_FENCED:
        mapped = ErrorCode.INVALID_PRODUCER_EPOCH
    elif error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED or (
        error is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_MIN_VERSION
    ):
        mapped = ErrorCode.INVALID_TXN_STATE
    if mapped is ErrorCode.INVALID_TXN_STATE:
        return Refusal(mapped, "Partition was not added to the transaction")
    if mapped in _RETRIABLE_ERRORS or (
        mapped is ErrorCode.CONCURRENT_TRANSACTIONS and version < IMPLICIT_ADD_MIN_VERSION
    ):
        return Refusal(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"Unable to verify the partition has been added to the transaction. Underlying error: {mapped.name}",
        )
    return Refusal(mapped)


_RETRIABLE_ERRORS: Final = (
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


class TransactionVerifier:
    """Verify the transactional batches of requests. It has no state of its own: the guards are in the logs."""

    def __init__(self, coordinator: Coordinator, config: Config) -> None:
        """`config` has the retry limits. Verification itself is enabled per topic configuration of the logs."""
        self._coordinator = coordinator
        self._backoff_ms = config.add_partitions_to_txn_retry_backoff_ms
        self._retry_ms_max = min(config.add_partitions_to_txn_retry_backoff_max_ms, config.request_timeout_ms)

    def start(
        self, transactional_id: str | None, terms: Terms, batches: Sequence[TransactionalBatch]
    ) -> "list[Outcome] | Future[list[Outcome]]":
        """Verify the batches of one request.

        Return one outcome per batch, in order; a future if the coordinator has to respond.

        Raise Refusal if the request as a whole is invalid.
        """
        producer_id, epoch = one_producer(batches)
        verifies = any(batch.partition.log.config.verification_enabled for batch in batches)
        if transactional_id is None or not (terms.implicit_add or verifies):
            return [NO_GUARD] * len(batches)
        outcomes = [guard_of(batch, supports_epoch_bump=terms.implicit_add) for batch in batches]
        positions = {
            TopicPartition(batch.partition.topic, batch.partition.index): number
            for number, batch in enumerate(batches)
            if outcomes[number] != NO_GUARD and not isinstance(outcomes[number], Refusal)
        }
        if not positions:
            return outcomes
        verification = Verification(transactional_id, producer_id, epoch, tuple(positions), terms)
        response = self._send(verification)
        errors = (
            response if isinstance(response, dict) else errors_of(verification, response) if response.done() else None
        )
        if errors is None or (verification.retriable and busy(errors)):
            return self._wait(verification, response, positions, outcomes)
        return conclude(errors, terms, positions, outcomes)

    def _wait(
        self,
        verification: "Verification",
        response: "Future[PartitionErrors] | PartitionErrors",
        positions: dict[TopicPartition, int],
        outcomes: list[Outcome],
    ) -> "Future[list[Outcome]]":
        waiting = _Waiting(
            partial(self._send, verification),
            verification,
            lambda errors: conclude(errors, verification.terms, positions, outcomes),
            self._backoff_ms / 1_000,
            self._retry_ms_max / 1_000,
        )
        waiting.receive(response)
        return waiting.future

    def _send(self, verification: "Verification") -> "Future[PartitionErrors] | PartitionErrors":
        send = (
            self._coordinator.add_partitions_for_produce
            if verification.retriable
            else self._coordinator.verify_partitions
        )
        try:
            return send(
                verification.transactional_id,
                verification.producer_id,
                verification.producer_epoch,
                verification.partitions,
            )
        except Refusal as refusal:
            return dict.fromkeys(verification.partitions, refusal.error)


@frozen_dataclass(frozen=True, slots=True)
class Verification:
    """The request to the coordinator for the batches of one producer."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    terms: Terms

    @property
    def retriable(self) -> bool:
        """True if the broker retries CONCURRENT_TRANSACTIONS. Older producers receive a retriable error instead."""
        return self.terms.implicit_add


class _Waiting:
    """One request that waits for the coordinator, with retries after CONCURRENT_TRANSACTIONS."""

    __slots__ = ("_backoff_s", "_conclude", "_deadline_s", "_loop", "_send", "_verification", "future")

    def __init__(
        self,
        send: Callable[[], "Future[PartitionErrors] | PartitionErrors"],
        verification: Verification,
        conclude: Callable[[PartitionErrors], list[Outcome]],
        backoff_s: float,
        retry_s_max: float,
    ) -> None:
        self._send = send
        self._verification = verification
        self._conclude = conclude
        self._backoff_s = backoff_s
        self._loop = get_running_loop()
        self._deadline_s = self._loop.time() + retry_s_max
        self.future: Future[list[Outcome]] = self._loop.create_future()

    def receive(self, response: "Future[PartitionErrors] | PartitionErrors") -> None:
        """Process the coordinator's response, now or when the future is done."""
        if self.future.done():
            return
        if isinstance(response, Future) and not response.done():
            response.add_done_callback(self.receive)
            return
        try:
            self._complete(errors_of(self._verification, response) if isinstance(response, Future) else response)
        except CancelledError:
            self.future.cancel()
        except Exception as bug:  # noqa: BLE001  the future passes it to the request handler
            self.future.set_exception(bug)

    def _complete(self, errors: PartitionErrors) -> None:
        # 1. A producer of transaction version 2 ends a transaction, and immediately sends a batch of the next one.
        # 2. The coordinator still writes the markers, and returns CONCURRENT_TRANSACTIONS.
        # 3. A retry here is faster than the producer's own backoff. After the retry limit, the producer receives the
        #    error (KAFKA-18575).
        retry_s = self._loop.time() + self._backoff_s
        if not self._verification.retriable or not busy(errors) or retry_s > self._deadline_s:
            self.future.set_result(self._conclude(errors))
        else:
            self._loop.call_at(retry_s, self._retry)

    def _retry(self) -> None:
        self.receive(self._send())


def busy(errors: PartitionErrors) -> bool:
    """Return True if the coordinator still writes markers of the producer, or has no capacity for its partitions."""
    return ErrorCode.CONCURRENT_TRANSACTIONS in errors.values()


def errors_of(verification: Verification, completed: "Future[PartitionErrors]") -> PartitionErrors:
    """Return the error of each partition of a completed verification. A Refusal counts for all partitions."""
    refusal = completed.exception()
    if refusal is None:
        return completed.result()
    if not isinstance(refusal, Refusal):
        raise refusal
    return dict.fromkeys(verification.partitions, refusal.error)


def conclude(
    errors: PartitionErrors, terms: Terms, positions: Mapping[TopicPartition, int], outcomes: list[Outcome]
) -> list[Outcome]:
    """Return `outcomes` with the coordinator's errors. `positions` maps partitions to positions in `outcomes`."""
    for key, number in positions.items():
        error = errors.get(key, ErrorCode.NONE)
        if error is not ErrorCode.NONE:
            outcomes[number] = terms.refusal(error)
    return outcomes


def guard_of(batch: TransactionalBatch, *, supports_epoch_bump: bool) -> Outcome:
    """Return the verification guard for a batch; NO_GUARD if its transaction is already open in the partition."""
    try:
        batch.partition.check_leader()
        return batch.partition.log.producers.start_verification(
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            supports_epoch_bump=supports_epoch_bump,
        )
    except Refusal as refusal:
        return refusal
