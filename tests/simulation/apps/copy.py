"""A consume-transform-produce application with aiokafka, and five variants of it with a bug each.

The correct one follows four rules:

- It assigns partitions to itself, so that a rebalance cannot take them in the middle of a transaction.
- It starts the producer first: that ends the transaction of the previous process before the offsets are read.
- The offsets are part of the transaction.
- After any error it exits. The next process continues at the committed offsets.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import odradek
from odradek.simulation import Faults, Topic, checkers

if TYPE_CHECKING:
    from odradek.simulation import Sim

GROUP: Final = "copy"
RECORDS: Final = 40
PARTITIONS: Final = 2
BATCH: Final = 3
"""Records per transaction."""
WORK_SECONDS: Final = 0.15
COMMIT_SECONDS: Final = 0.1
"""Longest wait for the response to a commit, in the variant with a time-out."""
TOPICS: Final = {
    "in": Topic(partitions=PARTITIONS, records=[(b"%d" % number, b"order %d" % number) for number in range(RECORDS)]),
    "out": Topic(partitions=PARTITIONS),
}


class Copy:
    """The correct application."""

    transactional_id: str | None = "copy-1"

    async def main(self, sim: Sim) -> None:
        from aiokafka import AIOKafkaConsumer, TopicPartition

        self.sim = sim
        self.consumer = AIOKafkaConsumer(
            bootstrap_servers=sim.bootstrap,
            group_id=GROUP,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        await self.start_producer()
        await self.consumer.start()
        partitions = [TopicPartition("in", number) for number in range(PARTITIONS)]
        self.consumer.assign(partitions)
        await self.prepare(partitions)
        ends = await self.consumer.end_offsets(partitions)
        while [place for place in partitions if await self.consumer.position(place) < ends[place]]:
            batches = await self.consumer.getmany(timeout_ms=500, max_records=BATCH)
            if batches:
                await self.process(batches)
                sim.record("copied", sum(map(len, batches.values())))
        await self.producer.stop()
        await self.consumer.stop()

    async def start_producer(self) -> None:
        """Start a producer, which ends the transaction of the previous one."""
        from aiokafka import AIOKafkaProducer

        self.producer = AIOKafkaProducer(
            bootstrap_servers=self.sim.bootstrap,
            transactional_id=self.transactional_id,
            transaction_timeout_ms=20_000,
            enable_idempotence=True,
        )
        await self.producer.start()

    async def prepare(self, partitions: list[Any]) -> None:
        """Set the positions. The committed offsets are used without this."""

    async def process(self, batches: dict[Any, list[Any]]) -> None:
        async with self.producer.transaction():
            await self.send(batches)
            await self.producer.send_offsets_to_transaction(self.offsets(batches), GROUP)
            await self.sim.crash_point("before commit")
        await self.sim.crash_point("after commit")

    async def send(self, batches: dict[Any, list[Any]]) -> None:
        for records in batches.values():
            for record in records:
                await self.producer.send_and_wait("out", record.value.upper(), key=record.key)
                await self.sim.crash_point("sent")
        await asyncio.sleep(WORK_SECONDS)

    @staticmethod
    def offsets(batches: dict[Any, list[Any]]) -> dict[Any, int]:
        return {place: records[-1].offset + 1 for place, records in batches.items()}


class OffsetsOutside(Copy):
    """Bug: the offsets are committed after the transaction, not in it."""

    async def process(self, batches: dict[Any, list[Any]]) -> None:
        async with self.producer.transaction():
            await self.send(batches)
        await self.sim.crash_point("before offsets")
        await self.consumer.commit(self.offsets(batches))


class OffsetsFirst(Copy):
    """Bug: the offsets are committed before the records are processed."""

    async def process(self, batches: dict[Any, list[Any]]) -> None:
        await self.consumer.commit(self.offsets(batches))
        async with self.producer.transaction():
            await self.send(batches)


class NoTransactions(Copy):
    """Bug: an idempotent producer without a transactional id. Its records are duplicated by the next process."""

    transactional_id = None

    async def process(self, batches: dict[Any, list[Any]]) -> None:
        await self.send(batches)
        await self.consumer.commit(self.offsets(batches))


class PositionInFile(Copy):
    """Bug: the position is kept in a local file, and a transaction that is aborted afterwards is not done again."""

    async def prepare(self, partitions: list[Any]) -> None:
        for place in partitions:
            self.consumer.seek(place, self.sim.durable.get(place, 0))

    async def process(self, batches: dict[Any, list[Any]]) -> None:
        async with self.producer.transaction():
            self.sim.durable.update(self.offsets(batches))
            await self.send(batches)


class CommitTakenAsAborted(Copy):
    """Bug: a commit without a response in time is taken as aborted, and the records are produced again."""

    async def process(self, batches: dict[Any, list[Any]]) -> None:
        from aiokafka.errors import KafkaError

        await self.producer.begin_transaction()
        await self.send(batches)
        await self.producer.send_offsets_to_transaction(self.offsets(batches), GROUP)
        try:
            await asyncio.wait_for(self.producer.commit_transaction(), COMMIT_SECONDS)
        except (TimeoutError, KafkaError):
            await self.start_producer()
            await self.process(batches)


simulated = odradek.simulated(
    topics=TOPICS,
    checkers=[
        checkers.exactly_once("in", "out", origin=lambda record: (record.value or b"").lower()),
        checkers.finished,
    ],
    faults=Faults(seconds=10),
)
correct = simulated(Copy)
BUGS: Final = (OffsetsOutside, OffsetsFirst, NoTransactions, PositionInFile, CommitTakenAsAborted)
