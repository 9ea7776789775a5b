"""An idempotent producer, optionally with transactions."""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from odradek.client.errors import ClientError, Fenced, InvalidArgument, InvalidState, Refused, check, refused
from odradek.client.network.cluster import CoordinatorType
from odradek.client.network.connection import VERSION_MAX
from odradek.client.network.fan_out import gathered
from odradek.client.network.metadata import TopicPartition
from odradek.client.network.settings import BROKER_TIMEOUT_MS
from odradek.client.producer.partitioner import partition_of
from odradek.client.producer.prepared import PreparedTransaction
from odradek.client.producer.records import batches_of
from odradek.protocol.batch import build_batch, increment_sequence
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from odradek.protocol.messages.end_txn import EndTxnRequest
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest
from odradek.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.protocol.special_values import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from odradek.client.network.cluster import Cluster
    from odradek.client.network.metadata import Topic
    from odradek.client.producer.records import ProducerRecord
    from odradek.protocol.record import NewRecord
    from odradek.protocol.schema import Message

TRANSACTION_TIMEOUT_MS: Final = 60_000
"""Default time after which the coordinator aborts an open transaction, in milliseconds, as in Kafka's producers."""
ALL_REPLICAS: Final = -1
"""Value of `acks` that requires all in-sync replicas."""
ADD_PARTITIONS_VERSION_MAX: Final = 3
PRODUCE_VERSION_MAX: Final = 11
END_TXN_VERSION_MAX: Final = 4
END_TWO_PHASE_VERSION_MIN: Final = 5
"""First version of EndTxn that raises the producer epoch, and returns it (KIP-890).

A two-phase commit needs it: each transaction must have its own identity, which its owner stores with the decision.
"""
TWO_PHASE_COMMIT_VERSION_MIN: Final = 6
"""First version of InitProducerId for a two-phase commit (KIP-939)."""
"""Last versions of the transaction protocol TV1, which every broker with transactions serves.

Requests of TV2 (KIP-890) may only be used together, and only if the cluster's transaction.version is 2.
"""


class State(Enum):
    """State of a producer."""

    NEW = "without a producer id"
    READY = "outside a transaction"
    OPEN = "in a transaction"
    PREPARED = "in a prepared transaction"
    FAILED = "in a transaction that can only be aborted"
    FENCED = "fenced by a newer producer"


class Operation(Enum):
    """Operation of a producer."""

    SEND = "send"
    SEND_IN_TRANSACTION = "send in a transaction"
    BEGIN = "begin a transaction"
    PREPARE = "prepare"
    RECOVER = "recover"
    COMPLETE = "complete"
    COMMIT = "commit"
    ABORT = "abort"


ALLOWED: Final[Mapping[Operation, frozenset[State]]] = {
    Operation.SEND: frozenset({State.NEW, State.READY}),
    Operation.SEND_IN_TRANSACTION: frozenset({State.OPEN}),
    Operation.BEGIN: frozenset({State.NEW, State.READY}),
    Operation.PREPARE: frozenset({State.OPEN}),
    Operation.RECOVER: frozenset({State.NEW}),
    Operation.COMPLETE: frozenset({State.PREPARED}),
    Operation.COMMIT: frozenset({State.OPEN, State.PREPARED}),
    Operation.ABORT: frozenset({State.OPEN, State.PREPARED, State.FAILED}),
}
"""States in which an operation is possible.

In all others it raises InvalidState, or Fenced if the producer is fenced.
"""


class ProducerIdentity(NamedTuple):
    """Producer id and epoch of a transactional id. Processes that share them write in one transaction."""

    transactional_id: str
    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Written:
    """Consecutive records in one partition, written from `base_offset` on."""

    topic: str
    partition: int
    base_offset: int
    records: int


class Producer:
    """A producer whose records are written once and in order, acknowledged by all in-sync replicas.

    Without a transactional id, only `send` is possible. With one, records belong to transactions:

    ```python
    producer = Producer(cluster, transactional_id="payments-1")
    await producer.begin()
    await producer.send("payments", [ProducerRecord(b"key", b"value")])
    await producer.commit()
    ```

    The first `begin` fences other producers of the same transactional id and aborts their open transaction. After a
    failed or cancelled `send`, the records may have been written or not: a transaction must be aborted, and the next
    operation begins with a new producer id or epoch. Calls must not overlap.

    With `two_phase_commit`, a transaction can be part of a commit that includes another system (KIP-939). No time-out
    aborts it, so its owner must end it:

    ```python
    prepared = await producer.prepare()
    ...  # store str(prepared) with the decision
    await producer.commit()
    ```

    After a failure, `recover` returns the open transaction, and `complete` commits it if it is the stored one:

    ```python
    producer = Producer(cluster, transactional_id="payments-1", two_phase_commit=True)
    if await producer.recover() is not None:
        await producer.complete(PreparedTransaction.parse(stored))
    ```

    Args:
        cluster: The cluster. It stays open when the producer is no longer used.
        transactional_id: The transactional id, None for a producer without transactions.
        transaction_timeout_ms: Time after which the coordinator aborts an open transaction, in milliseconds.
        two_phase_commit: True if transactions take part in a two-phase commit. The brokers must permit it.
        clock_ms: Clock for the timestamps of records, in milliseconds since 1970.
        identity: The identity of a transaction that another process began (`SharedTransaction`). The producer
            sends in it without a `begin`. The process that began the transaction must end it. Only one producer may
            write a partition.
    """

    def __init__(
        self,
        cluster: Cluster,
        transactional_id: str | None = None,
        *,
        transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS,
        two_phase_commit: bool = False,
        clock_ms: Callable[[], int] = lambda: int(time.time() * 1000),
        identity: ProducerIdentity | None = None,
    ) -> None:
        self.transactional_id = transactional_id if identity is None else identity.transactional_id
        self.state = State.NEW if identity is None else State.OPEN
        self._cluster = cluster
        self._transaction_timeout_ms = transaction_timeout_ms
        self._two_phase_commit = two_phase_commit
        self._kept: PreparedTransaction | None = None
        self._clock_ms = clock_ms
        self._producer_id, self._epoch = (-1, -1) if identity is None else (identity.producer_id, identity.epoch)
        self._sequences: dict[TopicPartition, int] = {}
        self._added: dict[TopicPartition, None] = {}
        self._keyless = 0

    @property
    def in_transaction(self) -> bool:
        """Return True if a transaction is open that `abort` can end."""
        return self.state in ALLOWED[Operation.ABORT]

    @property
    def identity(self) -> ProducerIdentity:
        """Return the producer id and epoch, with which other processes can send in the transaction.

        Raise InvalidState if the producer has none yet, or no transactional id.
        """
        if self.transactional_id is None or self._producer_id < 0:
            raise InvalidState(f"the producer is {State.NEW.value}, or has no transactional id")
        return ProducerIdentity(self.transactional_id, self._producer_id, self._epoch)

    async def send(self, topic: str, records: Iterable[ProducerRecord]) -> list[Written]:
        """Write records and return their offsets, in the order of batches and partitions.

        Raises:
            NotFound: The topic, or the partition of a record, does not exist.
            InvalidState: The producer has a transactional id, and no transaction is open.
            Fenced: A newer producer has the transactional id.
            ClientError: A leader refused, or none acknowledged in time. Records may have been written or not.
        """
        if self.transactional_id is None:
            self._require(Operation.SEND)
            await self._initialize()
        else:
            self._require(Operation.SEND_IN_TRANSACTION)
        described = await self._cluster.topic(topic)
        written = []
        for batch in batches_of(records):
            now_ms = self._clock_ms()
            by_partition: dict[TopicPartition, list[NewRecord]] = {}
            for record in batch:
                timestamp = now_ms if record.timestamp_ms is None else record.timestamp_ms
                key = TopicPartition(topic, self._partition(described, record))
                by_partition.setdefault(key, []).append((record.key, record.value, timestamp, record.headers))
            try:
                await self._add(topic, [key for key in by_partition if key not in self._added])
                of_partitions = await gathered(*(self._write(key, rows) for key, rows in by_partition.items()))
            except BaseException as error:
                self._fail(error)
                raise
            written += [each for of_partition in of_partitions for each in of_partition]
        return written

    async def begin(self) -> None:
        """Begin a transaction. Raise InvalidState if one is open or if the producer has no transactional id."""
        if self.transactional_id is None:
            raise InvalidState("cannot begin a transaction: the producer has no transactional id")
        self._require(Operation.BEGIN)
        await self._initialize()
        self.state = State.OPEN

    async def prepare(self) -> PreparedTransaction:
        """Prepare the open transaction: all its records are written, and it can only be committed or aborted.

        Return its identity, which the owner stores with its decision. Raise InvalidState if no transaction is open, a
        `send` of it failed, or the producer takes part in no two-phase commit.
        """
        self._require(Operation.PREPARE)
        self._require_two_phase_commit(Operation.PREPARE)
        self.state = State.PREPARED
        return PreparedTransaction(self._producer_id, self._epoch)

    async def recover(self) -> PreparedTransaction | None:
        """Fence other producers of the transactional id, and keep their open transaction.

        Return it, so that `complete`, `commit` or `abort` ends it. Return None if no transaction is open.

        Raises:
            InvalidState: The producer has a producer id already, or takes part in no two-phase commit.
            UnsupportedRequest: The brokers do not permit a two-phase commit.
            ClientError: The coordinator refused, or did not respond in time.
        """
        self._require(Operation.RECOVER)
        self._require_two_phase_commit(Operation.RECOVER)
        response = await self._init_producer_id(keep=True)
        if response.ongoing_txn_producer_id >= 0:
            ongoing = PreparedTransaction(response.ongoing_txn_producer_id, response.ongoing_txn_producer_epoch)
            self._kept, self.state = ongoing, State.PREPARED
        return self._kept

    async def complete(self, prepared: PreparedTransaction) -> bool:
        """Commit the kept transaction if it is `prepared`, otherwise abort it. Return True if it is committed.

        See `commit` for the exceptions. Raise InvalidState also without a successful `recover`, and InvalidArgument if
        `prepared` is a stored text, which `PreparedTransaction.parse` must decode first.
        """
        given: object = prepared  # mypy accepts no check of a type that it takes for certain
        if not isinstance(given, PreparedTransaction):
            problem = f"cannot complete: {given!r} is no PreparedTransaction"
            raise InvalidArgument(f"{problem}; decode a stored text with PreparedTransaction.parse")
        self._require(Operation.COMPLETE)
        if self._kept is None:
            raise InvalidState("cannot complete: the transaction was not recovered; commit or abort it")
        is_committed = prepared == self._kept
        await self._end(committed=is_committed)
        return is_committed

    async def commit(self) -> None:
        """Commit the open transaction. If a prepared transaction was not committed, the call can be repeated.

        Raises:
            InvalidState: No transaction is open, or a `send` of it failed.
            Fenced: A newer producer has the transactional id. The transaction was aborted.
            ClientError: The coordinator refused, or did not respond in time. Then the outcome is unknown.
        """
        self._require(Operation.COMMIT)
        await self._end(committed=True)

    async def abort(self) -> None:
        """Abort the open transaction. See `commit` for the exceptions."""
        self._require(Operation.ABORT)
        await self._end(committed=False)

    def _require_two_phase_commit(self, operation: Operation) -> None:
        if not self._two_phase_commit or self.transactional_id is None:
            raise InvalidState(f"cannot {operation.value}: the producer takes part in no two-phase commit")

    def _require(self, operation: Operation) -> None:
        if self.state is State.FENCED:
            problem = f"cannot {operation.value}: a newer producer has the transactional id {self.transactional_id}"
            raise Fenced(problem, code=ErrorCode.PRODUCER_FENCED)
        if self.state not in ALLOWED[operation]:
            raise InvalidState(f"cannot {operation.value}: the producer is {self.state.value}")

    def _fail(self, error: BaseException) -> None:
        """Record that the outcome of sent records is unknown. The next operation needs a new producer id or epoch."""
        if isinstance(error, Fenced):
            self.state = State.FENCED
        elif self.transactional_id is None:
            self.state = State.NEW
        else:
            self.state = State.FAILED

    async def _initialize(self) -> None:
        """Fetch a producer id, or raise the epoch of the transactional id. It has no effect if the producer has one."""
        if self.state is not State.NEW:
            return
        await self._init_producer_id(keep=False)

    async def _init_producer_id(self, *, keep: bool) -> Any:
        two_phase_commit = self._two_phase_commit and self.transactional_id is not None
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self._transaction_timeout_ms,
            enable2_pc=two_phase_commit,
            keep_prepared_txn=keep,
        )
        if self.transactional_id is None:
            response = await self._any(request)
        else:
            response = await self._coordinator(
                request, version_min=TWO_PHASE_COMMIT_VERSION_MIN if two_phase_commit else 0
            )
        check(response.error_code, "no producer id was assigned")
        self._take(response)
        self.state = State.READY
        return response

    def _take(self, response: Any) -> None:
        self._producer_id, self._epoch = response.producer_id, response.producer_epoch
        self._sequences.clear()

    async def _end(self, *, committed: bool) -> None:
        before = self.state
        new_id_needed = before is State.FAILED
        if self._added or self._kept is not None:
            # The owner of a prepared transaction has decided. So after a failure it repeats the same EndTxn.
            self.state = State.PREPARED if before is State.PREPARED else State.FAILED
            try:
                await self._end_once(committed=committed)
            except Fenced:
                self.state = State.FENCED
                raise
        self._added.clear()
        self._kept = None
        self.state = State.NEW if new_id_needed else State.READY

    async def _end_once(self, *, committed: bool) -> None:
        request = EndTxnRequest(self.transactional_id or "", self._producer_id, self._epoch, committed=committed)
        if self._two_phase_commit:
            response = await self._coordinator(request, version_min=END_TWO_PHASE_VERSION_MIN)
        else:
            response = await self._coordinator(request, version_max=END_TXN_VERSION_MAX)
        check(response.error_code, f"the transaction was not {'committed' if committed else 'aborted'}")
        if self._two_phase_commit:
            self._take(response)

    async def _any(self, request: Message) -> Any:
        """Send a request that every broker serves, under the retry policy."""
        attempts = self._cluster.attempts()
        while True:
            response = await self._cluster.request_any(request)
            if await attempts.prepare(response.error_code) is None:
                return response

    async def _coordinator(
        self,
        request: Message,
        error_of: Callable[[Any], int] = lambda response: int(response.error_code),
        *,
        version_min: int = 0,
        version_max: int = VERSION_MAX,
    ) -> Any:
        assert self.transactional_id is not None
        return await self._cluster.request_coordinator(
            CoordinatorType.TRANSACTION,
            self.transactional_id,
            request,
            error_of,
            version_min=version_min,
            version_max=version_max,
        )

    def _partition(self, topic: Topic, record: ProducerRecord) -> int:
        if record.partition is not None:
            return topic.partition(record.partition).index
        if record.key is not None:
            return partition_of(record.key, len(topic.partitions))
        self._keyless += 1
        return (self._keyless - 1) % len(topic.partitions)

    async def _add(self, topic: str, partitions: Sequence[TopicPartition]) -> None:
        """Add partitions to the transaction. The broker refuses records in partitions that were not added."""
        if self.transactional_id is None or not partitions:
            return
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(topic, [key.partition for key in partitions])],
        )
        self._added |= dict.fromkeys(partitions)
        response = await self._coordinator(request, _added_error, version_max=ADD_PARTITIONS_VERSION_MAX)
        check(_added_error(response), f"{topic} was not added to the transaction")

    async def _write(self, key: TopicPartition, rows: Sequence[NewRecord]) -> list[Written]:
        """Write records in one batch. Divide it if it exceeds the limit of the topic (max.message.bytes)."""
        sequence = self._sequences.get(key, 0)
        next_sequence = increment_sequence(sequence, len(rows))
        batch = build_batch(
            rows,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
            transactional=self.transactional_id is not None,
        )
        self._sequences[key] = next_sequence
        data = TopicProduceData(
            name=key.topic, partition_data=[PartitionProduceData(index=key.partition, records=batch)]
        )
        request = ProduceRequest(
            transactional_id=self.transactional_id,
            acks=ALL_REPLICAS,
            timeout_ms=BROKER_TIMEOUT_MS,
            topic_data=[data],
        )
        try:
            base_offset = await self._acknowledged(key, request)
        except Refused as error:
            is_last = self._sequences[key] == next_sequence  # a later batch of another `send` cannot be appended now
            if error.code != ErrorCode.MESSAGE_TOO_LARGE or len(rows) == 1 or not is_last:
                raise
            self._sequences[key] = sequence
            middle = len(rows) // 2
            return [*await self._write(key, rows[:middle]), *await self._write(key, rows[middle:])]
        return [Written(key.topic, key.partition, base_offset, len(rows))]

    async def _acknowledged(self, key: TopicPartition, request: ProduceRequest) -> int:
        """Send a batch until its leader acknowledges it, and return its base offset.

        The leader recognizes a repeated batch by its sequence numbers and writes it once.
        """
        attempts = self._cluster.attempts()
        refresh = False
        while True:
            failure: int | ClientError = ErrorCode.LEADER_NOT_AVAILABLE
            message = None
            try:
                leader = (await self._cluster.topic(key.topic, refresh=refresh)).partition(key.partition).leader
                if leader != NO_LEADER:
                    response = await self._cluster.request(leader, request, version_max=PRODUCE_VERSION_MAX)
                    row = response.responses[0].partition_responses[0]
                    if row.error_code == ErrorCode.NONE:
                        return int(row.base_offset)
                    failure, message = row.error_code, row.error_message
            except ClientError as error:
                failure = error
            if await attempts.prepare(failure) is None:
                if isinstance(failure, ClientError):
                    raise failure
                raise refused(failure, f"{key} was not written", message)
            refresh = True


def _added_error(response: Any) -> int:
    results = [each for topic in response.results_by_topic_v3_and_below for each in topic.results_by_partition]
    codes = (each.partition_error_code for each in results)
    return next((int(code) for code in codes if code), ErrorCode.NONE)
