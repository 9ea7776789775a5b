"""A transformer with aiokafka, which does not support KIP-447.

Each input partition has its own transactional id. A member that is assigned a partition first initializes a producer
with that id, and then fetches the committed offset. The initialization fences the producer of the former owner, so the
former owner cannot commit after the fetch.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import IllegalOperation, KafkaError

from tests.chaos.clients.aio_producer import BACKOFF_SECONDS, CLOSE_SECONDS, END_SECONDS, Aio
from tests.chaos.clients.common import CALL_SECONDS, REQUEST_TIMEOUT_MS, Client, python_settings
from tests.chaos.clients.member import (
    ABORTED_SHARE,
    BATCH_MAX,
    SLOW_SECONDS,
    SLOW_SHARE,
    MemberJournal,
    Partition,
    key_of,
    session,
)
from tests.sim.history import END, INFO, OK

if TYPE_CHECKING:
    from collections.abc import Collection

FAILURES = (KafkaError, IllegalOperation, OSError, TimeoutError)
POLL_MS = 300


class Member(ConsumerRebalanceListener):  # type: ignore[misc]
    """A group member.

    A transaction and a rebalance both hold `busy`. If `broken` is set, the process rejoins the group.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self.notes = MemberJournal(client)
        self.outputs = [(topic, index) for topic, count in client.spec.outputs.items() for index in range(count)]
        self.producers: dict[TopicPartition, Aio] = {}
        self.busy = asyncio.Lock()
        self.broken = False
        self.transactions = 0

    async def run(self) -> int:
        while not self.client.stopping.is_set():
            self.broken = False
            self.consumer = self.make_consumer()
            with contextlib.suppress(*FAILURES):
                await asyncio.wait_for(self.consumer.start(), END_SECONDS)
                await self.consume()
            await self.leave()
            await asyncio.sleep(BACKOFF_SECONDS)
        return 0

    def make_consumer(self) -> AIOKafkaConsumer:
        spec = self.client.spec
        consumer = AIOKafkaConsumer(
            **python_settings(spec.access),
            client_id=f"{spec.group}/{spec.process}",
            group_id=spec.group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            request_timeout_ms=REQUEST_TIMEOUT_MS + 1_000,
            fetch_max_wait_ms=300,
            retry_backoff_ms=50,
            metadata_max_age_ms=5_000,
            **session(),
        )
        consumer.subscribe(list(spec.topics), listener=self)
        return consumer

    async def consume(self) -> None:
        while not self.client.stopping.is_set() and not self.broken:
            batches = await self.consumer.getmany(timeout_ms=POLL_MS, max_records=BATCH_MAX)
            owned: dict[Any, Aio] = dict(self.producers)
            for partition, messages in batches.items():
                async with self.busy:
                    aio: Aio | None = self.producers.get(partition)
                    # A partition that was revoked and assigned again has another producer.
                    if aio is not None and aio is owned.get(partition) and not self.broken:
                        await self.transform(partition, aio, [message.offset for message in messages])

    async def leave(self) -> None:
        with contextlib.suppress(*FAILURES, asyncio.CancelledError):
            await asyncio.wait_for(self.consumer.stop(), CLOSE_SECONDS)
        async with self.busy:
            await self.drop(list(self.producers))

    async def drop(self, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            if (aio := self.producers.pop(partition, None)) is not None and aio.producer is not None:
                await aio.drop()

    # ---- rebalances -------------------------------------------------------------------------------------------------

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        async with self.busy:
            if revoked:
                self.notes.revoked((partition.topic, partition.partition) for partition in revoked)
            await self.drop(revoked)

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        async with self.busy:
            self.notes.assigned((partition.topic, partition.partition) for partition in assigned)
            for partition in sorted(assigned):
                try:
                    await asyncio.wait_for(self.own(partition), CALL_SECONDS)
                except FAILURES:
                    self.broken = True
                    return

    async def own(self, partition: TopicPartition) -> None:
        """Fence the former owner of a partition, and seek to the committed offset.

        Raises:
            KafkaError, OSError, TimeoutError: the former owner is possibly not fenced.
        """
        spec = self.client.spec
        aio = Aio(self.client.under(f"{spec.group}/{partition.topic}-{partition.partition}"))
        while not await aio.new_producer():
            if self.client.stopping.is_set():
                raise TimeoutError
        offset: Any = await self.consumer.committed(partition)
        self.consumer.seek(partition, offset or 0)
        self.producers[partition] = aio  # records that were read before the seek have no producer and are skipped

    # ---- transactions -----------------------------------------------------------------------------------------------

    async def transform(self, partition: TopicPartition, aio: Aio, offsets: list[int]) -> None:
        assert aio.producer is not None
        input_partition: Partition = (partition.topic, partition.partition)
        self.transactions += 1
        number = self.client.transaction_number(self.transactions)
        self.notes.consumed({input_partition: offsets}, number)
        rng = self.client.rng
        group = self.client.spec.group
        try:
            await aio.producer.begin_transaction()
            for offset in offsets:
                sent = aio.send(rng.choice(self.outputs), number, key_of(group, input_partition, offset))
                await asyncio.wait_for(sent, CALL_SECONDS)
            if rng.random() < SLOW_SHARE:
                await asyncio.sleep(SLOW_SECONDS)
            ends = {partition: offsets[-1] + 1}
            await asyncio.wait_for(aio.producer.send_offsets_to_transaction(ends, group), END_SECONDS)
        except FAILURES:
            self.broken = True
            return
        commit = rng.random() > ABORTED_SHARE
        if not await self.end(aio, number, commit=commit):
            self.broken = True
        elif commit:
            self.notes.committed({input_partition: offsets[-1] + 1})
        else:
            self.consumer.seek(partition, offsets[0])

    async def end(self, aio: Aio, transaction: int, *, commit: bool) -> bool:
        assert aio.producer is not None
        number = aio.client.end(transaction, commit=commit, written=True)
        try:
            work = aio.producer.commit_transaction() if commit else aio.producer.abort_transaction()
            await asyncio.wait_for(work, END_SECONDS)
        except FAILURES as failure:
            self.client.journal.complete(END, number, INFO, reason=repr(failure))
            return False
        self.client.journal.complete(END, number, OK)
        return True


async def run() -> int:
    return await Member(Client()).run()


def main() -> int:
    logging.disable(logging.CRITICAL)
    return asyncio.run(run())


if __name__ == "__main__":
    sys.exit(main())
