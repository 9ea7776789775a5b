"""Producers: idempotent ones, and transactional ones of both generations, with the faults that applications have.

They retry what may be retried, with the same producer id, epoch and sequence, so that lost answers become duplicates for the broker to find;
they give up and initialise again when told to. Every attempt is an operation of its own in the history.
"""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from protocol.messages.end_txn import EndTxnRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.sim.history import ADD, END, INIT, OK, PRODUCE, Operation, Partition
from tests.sim.workloads.client import (
    NONE,
    OUT_OF_ORDER_SEQUENCE,
    PRODUCER_FENCED,
    RETRIABLE,
    Client,
)
from tests.sim.workloads.encode import TRANSACTIONAL, encode_batch

if TYPE_CHECKING:
    from tests.sim.world import World

ATTEMPTS_MAX: Final = 40
SEQUENCES: Final = 1 << 31
ALL_REPLICAS: Final = -1
PRODUCE_TIMEOUT_MS: Final = 5000


@dataclass(slots=True)
class Pending:
    """A batch on its way, the same bytes at every attempt."""

    partition: Partition
    base_sequence: int
    values: tuple[bytes, ...]
    data: bytes
    acknowledged: bool = False
    uncertain: bool = False


@dataclass(slots=True)
class Dialect:
    """API versions that a producer speaks."""

    generation: int
    init: int
    produce: int
    end: int
    add: int = 3


MODERN: Final = Dialect(2, init=5, produce=12, end=5)
CLASSIC: Final = (
    Dialect(1, init=4, produce=11, end=4),
    Dialect(1, init=4, produce=10, end=1, add=0),
    Dialect(1, init=3, produce=9, end=3),
)


class Producer(Client):
    """Writes batches with a producer id: what idempotent and transactional producers share."""

    def __init__(self, world: "World", name: str, dialect: Dialect, transactional_id: str | None = None) -> None:
        super().__init__(world, name)
        self.dialect = dialect
        self.transactional_id = transactional_id
        self.timeout_ms = 60_000
        self.producer_id = -1
        self.producer_epoch = -1
        self.sequences: dict[Partition, int] = {}
        self.transaction = -1

    # -- InitProducerId

    async def initialise(self, *, recover: bool = False) -> bool:
        """Take over the id; with `recover`, as the producer that had it (KIP-360). False when it cannot be had for now."""
        for _ in range(ATTEMPTS_MAX):
            operation = await self._initialise_once(recover=recover)
            if operation.outcome == OK:
                self.producer_id, self.producer_epoch = operation.result_producer_id, operation.result_producer_epoch
                self.sequences.clear()
                return True
            if operation.error == PRODUCER_FENCED or operation.error not in RETRIABLE:
                recover = False  # somebody else has the id: come as a new instance
            await self.backoff()
        return False

    async def _initialise_once(self, *, recover: bool) -> Operation:
        expected = (self.producer_id, self.producer_epoch) if recover else (-1, -1)
        operation = self.invoke(
            INIT,
            transactional_id=self.transactional_id,
            generation=self.dialect.generation,
            producer_id=expected[0],
            producer_epoch=expected[1],
        )
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.timeout_ms,
            producer_id=expected[0],
            producer_epoch=expected[1],
        )
        try:
            response = await self.call(request, self.dialect.init)
        except OSError as error:
            return self.settle_lost(operation, error)
        return self.settle(
            operation,
            response.error_code,
            result_producer_id=response.producer_id,
            result_producer_epoch=response.producer_epoch,
        )

    # -- Produce

    def batch(self, partition: Partition, count: int) -> Pending:
        sequence = self.sequences.get(partition, 0)
        self.sequences[partition] = (sequence + count) % SEQUENCES
        values = self.world.next_values(
            count, padding=self.rng.choice((0, 20, self.world.options.padding_max // 3, self.world.options.padding_max))
        )
        data = encode_batch(
            [(None, value) for value in values],
            timestamp=self.world.timestamp(),
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=sequence,
            attributes=TRANSACTIONAL if self.transactional_id else 0,
        )
        return Pending(partition, sequence, values, data)

    async def write(self, batches: list[Pending]) -> bool:
        """Send until all are acknowledged. False when one is refused for good, or when patience ends."""
        for _ in range(ATTEMPTS_MAX):
            waiting = [batch for batch in batches if not batch.acknowledged]
            if not waiting:
                return True
            operations = await self._send(waiting)
            stuck: dict[Partition, None] = {}
            for batch, operation in zip(waiting, operations, strict=True):
                if operation.outcome == OK:
                    batch.acknowledged = True
                elif operation.error in RETRIABLE or (
                    operation.error == OUT_OF_ORDER_SEQUENCE and batch.partition in stuck
                ):
                    batch.uncertain = batch.uncertain or operation.outcome != "fail"
                    stuck[batch.partition] = None
                else:
                    return False
            if stuck:
                await self.backoff()
        return False

    async def _send(self, batches: list[Pending]) -> list[Operation]:
        """All batches at once, one request each, on one connection."""
        operations = [
            self.invoke(
                PRODUCE,
                transactional_id=self.transactional_id,
                generation=self.dialect.generation,
                transaction=self.transaction,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                partition=batch.partition,
                base_sequence=batch.base_sequence,
                values=batch.values,
            )
            for batch in batches
        ]
        try:
            connection = await self.connection()
        except OSError as error:
            return [self.settle_lost(operation, error) for operation in operations]
        answers = [
            asyncio.ensure_future(connection.call(self._request(batch), self.dialect.produce, timeout=8.0))
            for batch in batches
        ]
        for operation, answer in zip(operations, answers, strict=True):
            try:
                response = await answer
            except OSError as error:
                self.settle_lost(operation, error)
                continue
            result = response.responses[0].partition_responses[0]
            self.settle(operation, result.error_code, result_offset=result.base_offset)
        return operations

    def _request(self, batch: Pending) -> ProduceRequest:
        topic, index = batch.partition
        return ProduceRequest(
            transactional_id=self.transactional_id,
            acks=ALL_REPLICAS,
            timeout_ms=PRODUCE_TIMEOUT_MS,
            topic_data=[
                TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=index, records=batch.data)])
            ],
        )


class IdempotentProducer(Producer):
    """Writes batch after batch outside transactions."""

    async def run(self, batches: int) -> None:
        ready = await self.initialise()
        for _ in range(batches):
            if not ready:
                ready = await self.initialise()
                continue
            partition = self.rng.choice(self.world.partitions)
            window = [self.batch(partition, self.rng.randint(1, 4)) for _ in range(self.rng.choice((1, 1, 2, 5)))]
            if not await self.write(window):
                ready = await self.initialise()
            await asyncio.sleep(self.rng.random() * self.world.options.think_seconds)
        self.close()


@dataclass(slots=True)
class Habits:
    """How likely a producer is to misbehave at each transaction."""

    overtime: float = 0.05
    pause: float = 0.0
    pause_seconds: float = 2.0
    abort: float = 0.33
    empty: float = 0.03


class TransactionalProducer(Producer):
    """Begins, writes, ends; some transactions exceed their time-out, some processes sleep while another takes their id."""

    def __init__(self, world: "World", name: str, dialect: Dialect, transactional_id: str, habits: Habits) -> None:
        super().__init__(world, name, dialect, transactional_id)
        self.habits = habits
        self.timeout_ms = world.options.transaction_timeout_ms
        self.added: dict[Partition, None] = {}

    async def run(self, transactions: int) -> None:
        ready = False
        for _ in range(transactions):
            if not ready:
                ready = await self.initialise(recover=False)
            if ready:
                ready = await self.one_transaction()
            await asyncio.sleep(self.rng.random() * self.world.options.think_seconds)
        self.close()

    async def one_transaction(self) -> bool:
        """False when the producer has to be initialised before the next one."""
        self.transaction = self.world.next_transaction()
        self.added.clear()
        written = uncertain = False
        fine = True
        rounds = 0 if self.rng.random() < self.habits.empty else self.rng.randint(1, self.world.options.rounds_max)
        for _ in range(rounds):
            batches = self._round()
            if self.dialect.generation == 1 and not await self.add([batch.partition for batch in batches]):
                fine = False
                break
            written = True
            fine = await self.write(batches)
            uncertain = any(not batch.acknowledged for batch in batches)
            if not fine:
                break
            await self._dawdle()
        commit = fine and self.rng.random() >= self.habits.abort
        if not written and self.dialect.generation == 1 and not self.added:
            return fine
        ended = await self.end(commit=commit)
        if ended and self.dialect.generation == 1 and (uncertain or not fine):
            # A batch of unknown fate must not meet the next transaction of the same epoch.
            return await self.initialise(recover=True)
        return ended

    def _round(self) -> list[Pending]:
        partitions = self.rng.sample(self.world.partitions, self.rng.randint(1, min(3, len(self.world.partitions))))
        return [
            self.batch(partition, self.rng.randint(1, 4))
            for partition in partitions
            for _ in range(self.rng.choice((1, 1, 2)))
        ]

    async def _dawdle(self) -> None:
        draw = self.rng.random()
        if draw < self.habits.overtime:
            self.world.count("overtime")
            await asyncio.sleep(self.timeout_ms / 1000 * (0.9 + self.rng.random()))
        elif draw < self.habits.overtime + self.habits.pause:
            self.world.count("pause")
            await asyncio.sleep(self.habits.pause_seconds * self.rng.random())

    async def add(self, partitions: list[Partition]) -> bool:
        """AddPartitionsToTxn for those that are not in yet."""
        new = tuple(dict.fromkeys(partition for partition in partitions if partition not in self.added))
        for _ in range(ATTEMPTS_MAX):
            if not new:
                return True
            operation = await self._add_once(new)
            if operation.outcome == OK:
                self.added.update(dict.fromkeys(new))
                return True
            if operation.error not in RETRIABLE:
                return False
            await self.backoff()
        return False

    async def _add_once(self, partitions: tuple[Partition, ...]) -> Operation:
        assert self.transactional_id is not None
        operation = self._invoke_in_transaction(ADD, partitions=partitions)
        by_topic: dict[str, list[int]] = {}
        for topic, index in partitions:
            by_topic.setdefault(topic, []).append(index)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.producer_epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in by_topic.items()
            ],
        )
        try:
            response = await self.call(request, self.dialect.add)
        except OSError as error:
            return self.settle_lost(operation, error)
        codes = [
            result.partition_error_code
            for topic in response.results_by_topic_v3_and_below
            for result in topic.results_by_partition
        ]
        return self.settle(operation, next((code for code in codes if code != NONE), NONE))

    async def end(self, *, commit: bool) -> bool:
        """EndTxn until it is answered for good. False when the producer has lost its id."""
        for _ in range(ATTEMPTS_MAX):
            operation = await self._end_once(commit=commit)
            if operation.outcome == OK:
                if self.dialect.generation == 2:
                    self.producer_id, self.producer_epoch = (
                        operation.result_producer_id,
                        operation.result_producer_epoch,
                    )
                    self.sequences.clear()
                return True
            if operation.error not in RETRIABLE:
                return False
            await self.backoff()
        return False

    async def _end_once(self, *, commit: bool) -> Operation:
        assert self.transactional_id is not None
        operation = self._invoke_in_transaction(END, commit=commit)
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            committed=commit,
        )
        try:
            response = await self.call(request, self.dialect.end)
        except OSError as error:
            return self.settle_lost(operation, error)
        return self.settle(
            operation,
            response.error_code,
            result_producer_id=response.producer_id,
            result_producer_epoch=response.producer_epoch,
        )

    def _invoke_in_transaction(
        self, kind: str, *, commit: bool = False, partitions: tuple[Partition, ...] = ()
    ) -> Operation:
        return self.invoke(
            kind,
            transactional_id=self.transactional_id,
            generation=self.dialect.generation,
            transaction=self.transaction,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            commit=commit,
            partitions=partitions,
        )
