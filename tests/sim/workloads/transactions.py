"""Transactional producers of both generations, with the faults that applications have.

Some transactions exceed their time-out, some processes sleep while another takes their id, some end a transaction that has no records.
"""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from odradek.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from odradek.protocol.messages.end_txn import EndTxnRequest
from tests.sim.history import ADD, END, OK, Operation, Partition
from tests.sim.workloads.client import NONE, RETRIABLE
from tests.sim.workloads.producers import ATTEMPTS_MAX, Dialect, Pending, Producer

if TYPE_CHECKING:
    from tests.sim.world import World


TRIES_EACH_MAX: Final = 20
"""Attempts for each transaction that a producer is to begin."""


@dataclass(frozen=True, slots=True)
class Habits:
    """How likely a producer is to misbehave at each transaction. `timeout_ms`: of its transactions; 0 is what the run has drawn."""

    overtime: float = 0.05
    pause: float = 0.0
    pause_seconds: float = 2.0
    abort: float = 0.33
    empty: float = 0.03
    timeout_ms: int = 0
    padding: bool = True


STEADY: Final = Habits(overtime=0.0, abort=0.0, empty=0.0, timeout_ms=30_000, padding=False)
"""Of who is to show that a cluster commits: time enough to find out who is cut off, which costs a client that does not know it
`CONNECT_SECONDS` each time it asks there, and no batch that is larger than a segment."""


class TransactionalProducer(Producer):
    """Begins, writes, ends; some transactions exceed their time-out, some processes sleep while another takes their id."""

    def __init__(self, world: "World", name: str, dialect: Dialect, transactional_id: str, habits: Habits) -> None:
        super().__init__(world, name, dialect, transactional_id)
        self.habits = habits
        self.timeout_ms = habits.timeout_ms or world.options.transaction_timeout_ms
        if not habits.padding:
            self.padding_max = 0
        self.added: dict[Partition, None] = {}

    async def run(self, transactions: int) -> None:
        """Begins so many transactions. A start-up that fails under faults is tried again, so that no run is thin."""
        ready, begun = False, 0
        for _ in range(transactions * TRIES_EACH_MAX):
            if not ready:
                ready = await self.initialize(recover=False)
            if ready:
                begun += 1
                ready = await self.one_transaction()
            if begun == transactions:
                break
            await asyncio.sleep(self.rng.random() * self.world.options.think_seconds)
        self.close()

    async def one_transaction(self) -> bool:
        """False when the producer has to be initialized before the next one."""
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
            return await self.initialize(recover=True)
        return ended

    def _round(self) -> list[Pending]:
        partitions = self.rng.sample(self.world.written, self.rng.randint(1, min(3, len(self.world.written))))
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
            response = await self.call(request, self.dialect.add, await self.coordinator_of(self.transactional_id))
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
            response = await self.call(request, self.dialect.end, await self.coordinator_of(self.transactional_id))
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
