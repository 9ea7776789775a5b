"""Between a write and the transaction coordinator: is this partition part of the producer's transaction? (KIP-890)

A transactional batch that meets no open transaction of its producer on the partition may be a late one, of a transaction
that has ended. Written, it would open a transaction that nobody ends. So before the append

1. the log hands out a guard for (producer id, epoch), or says that the transaction is open here: nothing to ask;
2. the coordinator is asked: up to Produce v11 and TxnOffsetCommit v4 whether the partition *was* added (AddPartitionsToTxn by
   the client), from v12 and v5 on to *add* it (the implicit add of transaction version 2);
3. the append presents the guard. A marker that came in between has withdrawn it, and the log refuses.

Errors are refused per partition. What they are called towards the client depends on its request, see `Terms`.
"""

from asyncio import CancelledError, Future, get_running_loop
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Final, Protocol

from odradek.broker.config.properties import Config
from odradek.coordinator.txn.commands import PartitionErrors
from odradek.coordinator.txn.ports import TopicPartition
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.storage.producers.state import NO_GUARD

if TYPE_CHECKING:
    from odradek.broker.partition.partition import Partition

IMPLICIT_ADD_MIN_VERSION: Final = 12
"""From this Produce version on the broker adds partitions to transactions itself."""
ABORTABLE_MIN_VERSION: Final = 11
"""From this Produce version on clients know TRANSACTION_ABORTABLE."""
"""The guard of an append that needs none."""

Outcome = int | Refusal
"""The guard to append with, or why the batch is refused."""


@dataclass(frozen=True, slots=True)
class TransactionalBatch:
    """One partition's batch, as far as verification is concerned."""

    partition: "Partition"
    producer_id: int
    producer_epoch: int
    base_sequence: int


@dataclass(frozen=True, slots=True)
class Terms:
    """What a request of one API and version lets the broker do, and how its client is told of errors.

    `implicit_add`: the partition is added where it is not part of the transaction.
    """

    implicit_add: bool
    refusal: Callable[[ErrorCode], Refusal]


@cache
def produce_terms(version: int) -> Terms:
    return Terms(version >= IMPLICIT_ADD_MIN_VERSION, partial(refusal_for, version=version))


class Coordinator(Protocol):
    """What is asked of the transaction coordinator. Both raise Refusal at once, or by the future."""

    def verify_partitions(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Sequence[TopicPartition]
    ) -> "Future[PartitionErrors]": ...

    def add_partitions_for_produce(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Sequence[TopicPartition]
    ) -> "Future[PartitionErrors]": ...


def one_producer(batches: Sequence[TransactionalBatch]) -> tuple[int, int]:
    """(producer id, epoch) of all transactional batches of a request; more than one is refused as a whole."""
    first = batches[0]
    for batch in batches:
        if batch.producer_id != first.producer_id or batch.producer_epoch != first.producer_epoch:
            raise Refusal(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    return first.producer_id, first.producer_epoch


def refusal_for(error: ErrorCode, version: int) -> Refusal:
    """What the client of a Produce is told when the coordinator has answered `error`, with Kafka's messages where it gives one.

    Retriable errors of the coordinator become NOT_ENOUGH_REPLICAS, which producers retry without fetching metadata
    (KAFKA-16386); Produce never says PRODUCER_FENCED (KAFKA-10687).
    """
    told = error
    if error is ErrorCode.PRODUCER_FENCED:
        told = ErrorCode.INVALID_PRODUCER_EPOCH
    elif error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED or (
        error is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_MIN_VERSION
    ):
        told = ErrorCode.INVALID_TXN_STATE
    if told is ErrorCode.INVALID_TXN_STATE:
        return Refusal(told, "Partition was not added to the transaction")
    if told in _COORDINATOR_TROUBLE or (
        told is ErrorCode.CONCURRENT_TRANSACTIONS and version < IMPLICIT_ADD_MIN_VERSION
    ):
        return Refusal(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"Unable to verify the partition has been added to the transaction. Underlying error: {told.name}",
        )
    return Refusal(told)


_COORDINATOR_TROUBLE: Final = (
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


class TransactionVerifier:
    """Asks the coordinator on behalf of who writes. Holds no state: guards live in the logs."""

    def __init__(self, coordinator: Coordinator, config: Config) -> None:
        """`config` gives the limits of asking again; the switch is in the settings of the logs."""
        self._coordinator = coordinator
        self._backoff_ms = config.add_partitions_to_txn_retry_backoff_ms
        self._retry_ms_max = min(config.add_partitions_to_txn_retry_backoff_max_ms, config.request_timeout_ms)

    def start(
        self, transactional_id: str | None, terms: Terms, batches: Sequence[TransactionalBatch]
    ) -> "list[Outcome] | Future[list[Outcome]]":
        """One outcome per batch, in order; a future only when the coordinator has to be waited for.

        Raises Refusal for what is wrong with the request as a whole.
        """
        producer_id, epoch = one_producer(batches)
        verifies = any(batch.partition.log.config.verification_enabled for batch in batches)
        if transactional_id is None or not (terms.implicit_add or verifies):
            return [NO_GUARD] * len(batches)
        outcomes = [guard_of(batch, supports_epoch_bump=terms.implicit_add) for batch in batches]
        asked = {
            TopicPartition(batch.partition.topic, batch.partition.index): number
            for number, batch in enumerate(batches)
            if outcomes[number] != NO_GUARD and not isinstance(outcomes[number], Refusal)
        }
        if not asked:
            return outcomes
        question = Question(transactional_id, producer_id, epoch, tuple(asked), terms)
        answer = self._ask(question)
        errors = answer if isinstance(answer, dict) else errors_of(question, answer) if answer.done() else None
        if errors is None or (question.retried and busy(errors)):
            return self._wait(question, answer, asked, outcomes)
        return conclude(errors, terms, asked, outcomes)

    def _wait(
        self,
        question: "Question",
        answer: "Future[PartitionErrors] | PartitionErrors",
        asked: dict[TopicPartition, int],
        outcomes: list[Outcome],
    ) -> "Future[list[Outcome]]":
        waiting = _Waiting(
            partial(self._ask, question),
            question,
            lambda errors: conclude(errors, question.terms, asked, outcomes),
            self._backoff_ms / 1_000,
            self._retry_ms_max / 1_000,
        )
        waiting.hear(answer)
        return waiting.future

    def _ask(self, question: "Question") -> "Future[PartitionErrors] | PartitionErrors":
        ask = self._coordinator.add_partitions_for_produce if question.retried else self._coordinator.verify_partitions
        try:
            return ask(question.transactional_id, question.producer_id, question.producer_epoch, question.partitions)
        except Refusal as refusal:
            return dict.fromkeys(question.partitions, refusal.error)


@dataclass(frozen=True, slots=True)
class Question:
    """What the coordinator is asked on behalf of one request."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    terms: Terms

    @property
    def retried(self) -> bool:
        """Only the implicit add is asked again in here; an older producer is told to come again."""
        return self.terms.implicit_add


class _Waiting:
    """One produce that waits for the coordinator, and asks it again while it is busy."""

    __slots__ = ("_ask", "_backoff_s", "_conclude", "_give_up_s", "_loop", "_question", "future")

    def __init__(
        self,
        ask: Callable[[], "Future[PartitionErrors] | PartitionErrors"],
        question: Question,
        conclude: Callable[[PartitionErrors], list[Outcome]],
        backoff_s: float,
        retry_s_max: float,
    ) -> None:
        self._ask = ask
        self._question = question
        self._conclude = conclude
        self._backoff_s = backoff_s
        self._loop = get_running_loop()
        self._give_up_s = self._loop.time() + retry_s_max
        self.future: Future[list[Outcome]] = self._loop.create_future()

    def hear(self, answer: "Future[PartitionErrors] | PartitionErrors") -> None:
        """What the coordinator says, or will say."""
        if self.future.done():
            return
        if isinstance(answer, Future) and not answer.done():
            answer.add_done_callback(self.hear)
            return
        try:
            self._take(errors_of(self._question, answer) if isinstance(answer, Future) else answer)
        except CancelledError:
            self.future.cancel()
        except Exception as bug:  # noqa: BLE001  whoever waits for the future answers for it
            self.future.set_exception(bug)

    def _take(self, errors: PartitionErrors) -> None:
        # The markers of the producer's last transaction are being written. Asking again here is quicker than the
        # client's own back-off; at the end of the time it is told (KAFKA-18575).
        again_s = self._loop.time() + self._backoff_s
        if not self._question.retried or not busy(errors) or again_s > self._give_up_s:
            self.future.set_result(self._conclude(errors))
        else:
            self._loop.call_at(again_s, self._ask_again)

    def _ask_again(self) -> None:
        self.hear(self._ask())


def busy(errors: PartitionErrors) -> bool:
    return ErrorCode.CONCURRENT_TRANSACTIONS in errors.values()


def errors_of(question: Question, answered: "Future[PartitionErrors]") -> PartitionErrors:
    """One error per partition, also where the coordinator has refused the whole."""
    refusal = answered.exception()
    if refusal is None:
        return answered.result()
    if not isinstance(refusal, Refusal):
        raise refusal
    return dict.fromkeys(question.partitions, refusal.error)


def conclude(
    errors: PartitionErrors, terms: Terms, asked: Mapping[TopicPartition, int], outcomes: list[Outcome]
) -> list[Outcome]:
    """`outcomes` with what the coordinator said about the partitions it was asked for."""
    for key, number in asked.items():
        error = errors.get(key, ErrorCode.NONE)
        if error is not ErrorCode.NONE:
            outcomes[number] = terms.refusal(error)
    return outcomes


def guard_of(batch: TransactionalBatch, *, supports_epoch_bump: bool) -> Outcome:
    """The log's guard for this batch; NO_GUARD when its transaction is open on the partition already."""
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
