"""Driver of aiokafka, which runs on an event loop in a thread."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka import errors as aio_errors

from tests.interop.drivers.base import TIMEOUT_S, Fenced, GroupOptions, Message, ProducerOptions

if TYPE_CHECKING:
    from collections.abc import Coroutine

FENCED = (aio_errors.ProducerFenced, aio_errors.InvalidProducerEpoch)


class Loop:
    """An event loop in a thread. It makes the calls of the driver blocking."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result(2 * TIMEOUT_S)
        except FENCED as fenced:
            raise Fenced(repr(fenced)) from fenced

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class AioProducer:
    def __init__(self, loop: Loop, bootstrap: str, options: ProducerOptions) -> None:
        self._loop = loop
        self._futures: list[Any] = []
        self._transactional = options.transactional_id is not None
        self._producer: AIOKafkaProducer = loop.run(self._make(bootstrap, options))
        if not self._transactional:
            loop.run(self._producer.start())

    async def _make(self, bootstrap: str, options: ProducerOptions) -> AIOKafkaProducer:
        return AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if options.codec == "none" else options.codec,
            enable_idempotence=options.idempotent or self._transactional,
            transactional_id=options.transactional_id,
            transaction_timeout_ms=options.transaction_timeout_ms,
            acks="all",
        )

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        partition: int = 0,
        key: bytes | None = None,
        headers: tuple[tuple[str, bytes | None], ...] = (),
        timestamp: int | None = None,
    ) -> None:
        self._futures.append(
            self._loop.run(
                self._producer.send(
                    topic, value, key=key, partition=partition, headers=list(headers), timestamp_ms=timestamp
                )
            )
        )

    def flush(self) -> None:
        futures, self._futures = self._futures, []
        self._loop.run(self._acknowledged(futures))

    async def _acknowledged(self, futures: list[Any]) -> None:
        await self._producer.flush()
        for future in futures:
            await future

    def init(self) -> None:
        self._loop.run(self._producer.start())  # `start` finds the coordinator and initializes the producer epoch

    def begin(self) -> None:
        self._loop.run(self._producer.begin_transaction())

    def commit(self) -> None:
        self._loop.run(self._producer.commit_transaction())
        self._futures.clear()

    def abort(self) -> None:
        self._loop.run(self._producer.abort_transaction())
        self._loop.run(self._settle())

    async def _settle(self) -> None:
        """Retrieve the exceptions of aborted sends. asyncio logs exceptions that are never retrieved."""
        futures, self._futures = self._futures, []
        await asyncio.gather(*futures, return_exceptions=True)

    def send_offsets(self, consumer: Any) -> None:
        self._loop.run(self._send_offsets(consumer.consumer, consumer.group))

    async def _send_offsets(self, member: AIOKafkaConsumer, group: str) -> None:
        positions = {partition: await member.position(partition) for partition in member.assignment()}
        await self._producer.send_offsets_to_transaction(positions, group)

    def close(self) -> None:
        self._loop.run(self._end())

    async def _end(self) -> None:
        await self._settle()
        # A fenced producer cannot end its transaction. The test expects it.
        with contextlib.suppress(TimeoutError, aio_errors.KafkaError):
            await asyncio.wait_for(self._producer.stop(), 5.0)


class AioMember:
    def __init__(self, loop: Loop, bootstrap: str, topic: str, options: GroupOptions) -> None:
        assert options.protocol == "classic", "aiokafka supports only the classic protocol"
        self._loop = loop
        self._topic = topic
        self.group = options.group
        self.consumer: AIOKafkaConsumer = loop.run(self._start(bootstrap, topic, options))

    async def _start(self, bootstrap: str, topic: str, options: GroupOptions) -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=options.group,
            group_instance_id=options.instance,
            isolation_level=options.isolation,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=options.session_ms,
            heartbeat_interval_ms=500,
        )
        await consumer.start()
        return consumer

    def poll(self, seconds: float) -> list[Message]:
        polled = self._loop.run(self.consumer.getmany(timeout_ms=int(seconds * 1_000)))
        return [as_message(record) for records in polled.values() for record in records]

    def assigned(self) -> list[int]:
        return sorted(partition.partition for partition in self.consumer.assignment())

    def commit(self) -> None:
        self._loop.run(self.consumer.commit())

    def committed(self, partitions: list[int]) -> list[int | None]:
        return [
            self._loop.run(self.consumer.committed(TopicPartition(self._topic, partition))) for partition in partitions
        ]

    def close(self) -> None:
        self._loop.run(self.consumer.stop())


class AioDriver:
    name = "aiokafka"

    def __init__(self) -> None:
        self._loop = Loop()

    def producer(self, bootstrap: str, options: ProducerOptions) -> AioProducer:
        return AioProducer(self._loop, bootstrap, options)

    def member(self, bootstrap: str, topic: str, options: GroupOptions) -> AioMember:
        return AioMember(self._loop, bootstrap, topic, options)

    def consume(self, bootstrap: str, topic: str, partitions: list[int], isolation: str) -> list[Message]:
        messages: list[Message] = self._loop.run(self._consume(bootstrap, topic, partitions, isolation))
        return messages

    async def _consume(self, bootstrap: str, topic: str, partitions: list[int], isolation: str) -> list[Message]:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap, group_id=None, isolation_level=isolation, auto_offset_reset="earliest"
        )
        await consumer.start()
        try:
            assigned = [TopicPartition(topic, partition) for partition in partitions]
            consumer.assign(assigned)
            ends = await consumer.end_offsets(assigned)
            messages: list[Message] = []
            async with asyncio.timeout(TIMEOUT_S):
                await consumer.seek_to_beginning(*assigned)
                while not await self._at_end(consumer, ends):
                    for records in (await consumer.getmany(timeout_ms=500)).values():
                        messages += [as_message(record) for record in records]
            return messages
        finally:
            await consumer.stop()

    async def _at_end(self, consumer: AIOKafkaConsumer, ends: dict[TopicPartition, int]) -> bool:
        for partition, end in ends.items():
            if await consumer.position(partition) < end:
                return False
        return True

    def close(self) -> None:
        self._loop.close()


def as_message(record: Any) -> Message:
    return Message(
        record.partition, record.offset, record.timestamp, record.key, record.value, tuple(record.headers or ())
    )
