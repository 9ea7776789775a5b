"""Producers without transactions (idempotent and plain), and the common part of all producers.

They retry retriable errors with the same producer id, epoch and sequence, so a lost response leads to a duplicate that
the broker must detect. After other errors they call InitProducerId. Every attempt is an operation in the history.
"""

import asyncio
from dataclasses import dataclass
from math import inf
from random import Random
from typing import TYPE_CHECKING, Any, Final

from odradek.protocol.messages.init_producer_id import InitProducerIdRequest
from odradek.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.sim.history import INIT, OK, PRODUCE, Operation, Partition
from tests.sim.options.batch_options import DELIVERY_MS
from tests.sim.workloads.client import (
    CALL_SECONDS,
    NONE,
    NOT_SENT,
    OUT_OF_ORDER_SEQUENCE,
    PRODUCER_FENCED,
    RETRIABLE,
    Client,
)
from tests.sim.workloads.encode import TRANSACTIONAL, encode_batch
from tests.sim.workloads.shapes import shape_of
from tests.sim.workloads.table import next_values, rows_of

if TYPE_CHECKING:
    from tests.sim.world import World

ATTEMPTS_MAX: Final = 40
SEQUENCES: Final = 1 << 31
WRAP_PROBABILITY: Final = 0.5
"""Part of the idempotent producers whose sequences begin shortly before the highest one, so that they wrap to 0."""
SEQUENCES_BEFORE_WRAP_MAX: Final = 12
IDLE_PROBABILITY: Final = 0.1
IDLE_FACTOR: Final = 1.3
"""Idle time, as a multiple of producer.id.expiration.ms."""
ALL_REPLICAS: Final = -1
LEADER_ONLY: Final = 1
PRODUCE_TIMEOUT_MS: Final = 5000


@dataclass(slots=True)
class Pending:
    """A batch that is being sent. All attempts send the same bytes."""

    partition: Partition
    base_sequence: int
    values: tuple[bytes, ...]
    data: bytes
    acknowledged: bool = False
    uncertain: bool = False


@dataclass(slots=True)
class Dialect:
    """API versions of one transaction protocol that a producer uses."""

    generation: int
    init: int
    produce: int
    end: int
    add: int = 3


TV2_DIALECT: Final = Dialect(2, init=5, produce=12, end=5)
CLASSIC: Final = (
    Dialect(1, init=4, produce=11, end=4),
    Dialect(1, init=4, produce=10, end=1, add=0),
    Dialect(1, init=3, produce=9, end=3),
)


class Producer(Client):
    """Common part of idempotent and transactional producers."""

    def __init__(self, world: "World", name: str, dialect: Dialect, transactional_id: str | None = None) -> None:
        super().__init__(world, name)
        self.dialect = dialect
        self.transactional_id = transactional_id
        self.timeout_ms = 60_000
        self.acks = ALL_REPLICAS
        self.padding_max = world.options.padding_max
        self.producer_id = -1
        self.producer_epoch = -1
        self.sequences: dict[Partition, int] = {}
        self.first_sequence = 0
        """First sequence in each partition. A broker accepts any, except from transactional producers."""
        self.transaction = -1
        self.shapes = Random(f"shapes of {name} {world.options.seed}")
        """Its own generator, so that other choices of a seed stay the same."""

    # ---- InitProducerId ---------------------------------------------------------------------------------------------

    async def initialize(self, *, recover: bool = False) -> bool:
        """Call InitProducerId; with `recover`, with the current id and epoch (KIP-360). Return False if it fails."""
        for _ in range(ATTEMPTS_MAX):
            operation = await self._initialize_once(recover=recover)
            if operation.outcome == OK:
                self.producer_id, self.producer_epoch = operation.result_producer_id, operation.result_producer_epoch
                self.sequences.clear()
                return True
            if operation.error == PRODUCER_FENCED or operation.error not in RETRIABLE:
                recover = False  # another process has the id: start as a new instance
            await self.backoff()
        return False

    async def _initialize_once(self, *, recover: bool) -> Operation:
        expected = (self.producer_id, self.producer_epoch) if recover else (-1, -1)
        operation = self.invoke(
            INIT,
            transactional_id=self.transactional_id,
            generation=self.dialect.generation,
            producer_id=expected[0],
            producer_epoch=expected[1],
        )
        try:
            node = await self.coordinator_of(self.transactional_id)
            response = await self.call(self.init_request(expected), self.dialect.init, node)
        except OSError as error:
            return self.settle_lost(operation, error)
        self.initialized(response)
        return self.settle(
            operation,
            response.error_code,
            result_producer_id=response.producer_id,
            result_producer_epoch=response.producer_epoch,
        )

    def init_request(self, expected: tuple[int, int]) -> InitProducerIdRequest:
        """Return the request of this producer with the identity `expected`."""
        return InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.timeout_ms,
            producer_id=expected[0],
            producer_epoch=expected[1],
        )

    def initialized(self, response: Any) -> None:
        """Examine a response to InitProducerId. The producers of this module need only its identity."""

    # ---- Produce ----------------------------------------------------------------------------------------------------

    def batch(self, partition: Partition, count: int) -> Pending:
        sequence = self.sequences.get(partition, self.first_sequence)
        self.sequences[partition] = (sequence + count) % SEQUENCES
        padding = self.rng.choice((0, 20, self.padding_max // 3, self.padding_max))
        values = next_values(self, partition, count, padding=padding)
        data = encode_batch(
            **rows_of(self, partition, values),
            **shape_of(self.world, self.shapes),
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=sequence,
            attributes=TRANSACTIONAL if self.transactional_id else 0,
        )
        return Pending(partition, sequence, values, data)

    async def write(self, batches: list[Pending]) -> bool:
        """Send the batches until all are acknowledged.

        Return False after a fatal error, after ATTEMPTS_MAX attempts, or after DELIVERY_MS if producers expire.
        """
        give_up = self.world.now() + (DELIVERY_MS / 1_000 if self.world.options.producer_expiration_ms else inf)
        for _ in range(ATTEMPTS_MAX):
            waiting = [batch for batch in batches if not batch.acknowledged]
            if not waiting:
                return True
            if self.world.now() > give_up:
                return False
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
        """Send all batches in parallel, on one connection per leader."""
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
                acks=self.acks,
            )
            for batch in batches
        ]
        by_node: dict[int, list[int]] = {}
        for number, batch in enumerate(batches):
            try:
                by_node.setdefault(await self.leader_of(batch.partition), []).append(number)
            except OSError:
                self.settle(operations[number], NOT_SENT)
        sent = []
        for node, indexes in by_node.items():
            try:
                connection = await self.connection(node)
            except OSError as error:
                for number in indexes:
                    self.settle_lost(operations[number], error)
                continue
            for numbers in self._requests_of(batches, indexes):
                request = self._request([batches[number] for number in numbers])
                response_future = asyncio.ensure_future(
                    connection.call(request, self.dialect.produce, timeout=CALL_SECONDS)
                )
                sent.append((node, numbers, response_future))
        for node, numbers, response_future in sent:
            try:
                response = await response_future
            except OSError as error:
                for number in numbers:
                    self.settle_lost(operations[number], error)
                continue
            results = {
                (topic.name, result.index): result
                for topic in response.responses
                for result in topic.partition_responses
            }
            for number in numbers:
                batch = batches[number]
                result = results[batch.partition]
                if result.error_code == NONE and self.acks == ALL_REPLICAS:
                    self.world.monitor.acknowledged(node, batch.partition, result.base_offset, batch.values[0])
                self.settle(operations[number], result.error_code, result_offset=result.base_offset, node=node)
        return operations

    def _requests_of(self, batches: list[Pending], indexes: list[int]) -> list[list[int]]:
        """Group the batches into requests: the n-th batch of each partition together, or one batch per request."""
        if self.rng.random() >= 0.5:
            return [[number] for number in indexes]
        batches_of: dict[Partition, int] = {}
        grouped: dict[int, list[int]] = {}
        for number in indexes:
            partition = batches[number].partition
            batches_of[partition] = batches_of.get(partition, 0) + 1
            grouped.setdefault(batches_of[partition], []).append(number)
        return list(grouped.values())

    def _request(self, batches: list[Pending]) -> ProduceRequest:
        by_topic: dict[str, list[PartitionProduceData]] = {}
        for batch in batches:
            topic, index = batch.partition
            by_topic.setdefault(topic, []).append(PartitionProduceData(index=index, records=batch.data))
        return ProduceRequest(
            transactional_id=self.transactional_id,
            acks=self.acks,
            timeout_ms=PRODUCE_TIMEOUT_MS,
            topic_data=[TopicProduceData(name=name, partition_data=data) for name, data in by_topic.items()],
        )


class IdempotentProducer(Producer):
    """Writes batches outside transactions, with a producer id. Half of its sequences begin shortly before the wrap."""

    async def run(self, batches: int) -> None:
        generator = Random(f"{self.name} {self.world.options.seed}")
        if generator.random() < WRAP_PROBABILITY:
            self.first_sequence = SEQUENCES - generator.randint(1, SEQUENCES_BEFORE_WRAP_MAX)
        ready = await self.initialize()
        forgotten: dict[Partition, None] = {}
        for _ in range(batches):
            if not ready:
                ready = await self.initialize()
                continue
            partition = self.rng.choice(self.written)
            # Without state of the producer, a broker accepts any sequence first. A second batch must wait for that.
            batches_in_flight = 1 if partition in forgotten else self.rng.choice((1, 1, 2, 5))
            window = [self.batch(partition, self.rng.randint(1, 4)) for _ in range(batches_in_flight)]
            if not await self.write(window):
                ready = await self.initialize()
            await asyncio.sleep(self.rng.random() * self.world.options.think_seconds)
            forgotten.pop(partition, None)
            if generator.random() < IDLE_PROBABILITY and await self._idle():
                forgotten |= dict.fromkeys(self.written)
        self.close()

    async def _idle(self) -> bool:
        """Send nothing until the brokers have removed the state of this producer. It then continues its sequences.

        Return False if producers do not expire in this run.
        """
        expiration_ms = self.world.options.producer_expiration_ms
        if not expiration_ms or self.world.stopping:
            return False
        await asyncio.sleep(IDLE_FACTOR * expiration_ms / 1_000)
        self.world.count("producer continued after its expiration")
        return True


class PlainProducer(Producer):
    """Writes without a producer id, with acks=1 or acks=all. It never resends a batch."""

    async def run(self, batches: int) -> None:
        for _ in range(batches):
            self.acks = self.rng.choice((LEADER_ONLY, ALL_REPLICAS))
            await self._send([self.batch(self.rng.choice(self.written), self.rng.randint(1, 3))])
            await asyncio.sleep(self.rng.random() * self.world.options.think_seconds)
        self.close()

    def batch(self, partition: Partition, count: int) -> Pending:
        values = next_values(self, partition, count, padding=20)
        data = encode_batch(**rows_of(self, partition, values), **shape_of(self.world, self.shapes))
        return Pending(partition, -1, values, data)
