"""The relay between a producer and its brokers: late commits."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from odradek.client import Cluster, Producer, ProducerRecord
from odradek.pipeline.faults.relay import Relay
from odradek.protocol.errors import ErrorCode
from tests.support.committed_records import committed_records

if TYPE_CHECKING:
    from tests.support.topics import Topics

ARRIVAL_SECONDS_MAX = 30.0


async def begun(cluster: Cluster, transactional_id: str, topic: str, value: bytes) -> Producer:
    producer = Producer(cluster, transactional_id=transactional_id)
    await producer.begin()
    await producer.send(topic, [ProducerRecord(b"key", value)])
    return producer


def test_late_commit_arrives_after_the_next_producer_began_and_is_refused(topics: Topics) -> None:
    topic, transactional_id = topics.new(), topics.unique("id")
    relay, arrived = Relay(topics.access), threading.Event()
    relayed = relay.start()

    async def killed() -> None:
        """Send EndTxn through the relay, and close the connection without its response."""
        async with relayed.cluster() as cluster:
            producer = await begun(cluster, transactional_id, topic, b"first")
            relay.arm(0.0, arrived.set, late=True)
            commit = asyncio.create_task(producer.commit())
            assert await asyncio.to_thread(arrived.wait, ARRIVAL_SECONDS_MAX)
            commit.cancel()
            with suppress(asyncio.CancelledError):
                await commit

    async def next_one() -> None:
        async with Cluster(topics.bootstrap) as cluster:
            producer = await begun(cluster, transactional_id, topic, b"second")
            relay.release()
            held = await asyncio.to_thread(relay.take_held_commit)
            assert held is not None
            assert held.error in {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH}
            await producer.commit()

    try:
        asyncio.run(killed())
        asyncio.run(next_one())
    finally:
        relay.stop()
    found = asyncio.run(committed_records(topics.bootstrap, topic, transactional_id))
    assert [record.value for record in found] == [b"second"]
