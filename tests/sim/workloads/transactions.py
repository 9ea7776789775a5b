"""Transactional producers of both transaction protocols, with the errors that applications make.

Some transactions exceed their time-out, some processes sleep while another takes their id, and some transactions have
no records.
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


ATTEMPTS_PER_TRANSACTION_MAX: Final = 20
"""Maximum attempts per transaction that a producer has to begin."""


@dataclass(frozen=True, slots=True)
class Behavior:
    """Probabilities of misbehavior per transaction. `timeout_ms` 0: the transaction time-out of the run."""

    overtime: float = 0.05
    pause: float = 0.0
    pause_seconds: float = 2.0
    abort: float = 0.33
    empty: float = 0.03
    timeout_ms: int = 0
    padding: bool = True


STEADY: Final = Behavior(overtime=0.0, abort=0.0, empty=0.0, timeout_ms=30_000, padding=False)
"""Behavior for the proof that a cluster commits.

The time-out is long enough to detect an isolated broker, which costs `CONNECT_SECONDS` per attempt. No batch is larger
than a segment.
"""


class TransactionalProducer(Producer):
    """Begins, writes and ends transactions."""

    def __init__(self, world: "World", name: str, dialect: Dialect, transactional_id: str, behavior: Behavior) -> None:
        super().__init__(world, name, dialect, transactional_id)
        self.behavior = behavior
        self.timeout_ms = behavior.timeout_ms or world.options.transaction_timeout_ms
        if not behavior.padding:
            self.padding_max = 0
        self.added: dict[Partition, None] = {}

    async def run(self, transactions: int) -> None:
        """Begin `transactions` transactions. A failed initialization is repeated, so that no run has too few."""
        ready, started = False, 0
        for _ in range(transactions * ATTEMPTS_PER_TRANSACTION_MAX):
            if not ready:
                ready = await self.initialize(recover=False)
            if ready:
                started += 1
                ready = await self.one_transaction()
            if started == transactions:
                break
            await asyncio.sleep(self.rng.random() * self.world.options.think_seconds)
        self.close()

    async def one_transaction(self) -> bool:
        """Run one transaction. Return False if InitProducerId must precede the next one."""
        self.transaction = self.world.next_transaction()
        self.added.clear()
        written = uncertain = False
        succeeded = True
        rounds = 0 if self.rng.random() < self.behavior.empty else self.rng.randint(1, self.world.options.rounds_max)
        for _ in range(rounds):
            batches = self._round()
            if self.dialect.generation == 1 and not await self.add([batch.partition for batch in batches]):
                succeeded = False
                break
            written = True
            succeeded = await self.write(batches)
            uncertain = any(not batch.acknowledged for batch in batches)
            if not succeeded:
                break
            await self._dawdle()
        commit = succeeded and self.rng.random() >= self.behavior.abort
        if not written and self.dialect.generation == 1 and not self.added:
            return succeeded
        ended = await self.end(commit=commit)
        if ended and self.dialect.generation == 1 and (uncertain or not succeeded):
            # A batch with unknown outcome must not reach the next transaction of the same producer epoch.
            return await self.initialize(recover=True)
        return ended

    def _round(self) -> list[Pending]:
        partitions = self.rng.sample(self.written, self.rng.randint(1, min(3, len(self.written))))
        return [
            self.batch(partition, self.rng.randint(1, 4))
            for partition in partitions
            for _ in range(self.rng.choice((1, 1, 2)))
        ]

    async def _dawdle(self) -> None:
        choice = self.rng.random()
        if choice < self.behavior.overtime:
            self.world.count("overtime")
            await asyncio.sleep(self.timeout_ms / 1000 * (0.9 + self.rng.random()))
        elif choice < self.behavior.overtime + self.behavior.pause:
            self.world.count("pause")
            await asyncio.sleep(self.behavior.pause_seconds * self.rng.random())

    async def add(self, partitions: list[Partition]) -> bool:
        """Send AddPartitionsToTxn for partitions that the transaction does not have yet."""
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
        """Send EndTxn until it succeeds. Return False if it fails definitely."""
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
