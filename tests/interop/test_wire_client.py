"""Odradek's client library against broker processes that are killed while it writes and reads."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from odradek import LocalCluster
from odradek.client import (
    Cluster,
    Consumer,
    CoordinatorType,
    Fenced,
    IsolationLevel,
    Producer,
    ProducerRecord,
    blocked_partitions,
    cluster_status,
    create_topic,
    describe_transaction,
    wait_until_in_sync,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]
BROKERS = 3
ROUNDS = 30


@pytest.fixture(scope="module")
def brokers() -> Iterator[LocalCluster]:
    with LocalCluster(BROKERS) as running:
        yield running


@pytest.fixture
async def cluster(brokers: LocalCluster) -> AsyncIterator[Cluster]:
    """Start all brokers, wait until all replicas are in sync, and return a client."""
    await asyncio.to_thread(brokers.start)
    await wait_until_in_sync(brokers.bootstrap, BROKERS)
    async with Cluster(brokers.bootstrap) as connected:
        yield connected


@pytest.fixture
async def topic(cluster: Cluster) -> str:
    """Create a topic with three partitions and a replica on each broker."""
    return (await create_topic(cluster, f"wire-{time.time_ns():x}", partitions=3)).name


async def values(cluster: Cluster, topic: str, isolation: IsolationLevel) -> list[int]:
    """Read the topic when the markers of its transactions are written. A commit does not wait for the markers."""
    while (await blocked_partitions(cluster, [topic])).rows:
        await asyncio.sleep(0.1)
    batches = Consumer(cluster, topic, isolation=isolation).batches()
    return [int(record.value or b"") async for batch in batches for record in batch]


def records(*numbers: int) -> list[ProducerRecord]:
    return [ProducerRecord(b"%d" % number, b"%d" % number) for number in numbers]


async def test_committed_records_are_visible_and_aborted_ones_are_not(cluster: Cluster, topic: str) -> None:
    producer = Producer(cluster, f"{topic}-id")
    for number in range(6):
        await producer.begin()
        await producer.send(topic, records(number))
        await (producer.commit() if number % 2 else producer.abort())
    assert sorted(await values(cluster, topic, IsolationLevel.READ_COMMITTED)) == [1, 3, 5]
    assert sorted(await values(cluster, topic, IsolationLevel.READ_UNCOMMITTED)) == list(range(6))


async def test_newer_producer_fences_the_older_one_and_aborts_its_transaction(cluster: Cluster, topic: str) -> None:
    old, new = Producer(cluster, f"{topic}-id"), Producer(cluster, f"{topic}-id")
    await old.begin()
    await old.send(topic, records(1))
    await new.begin()
    await new.send(topic, records(2))
    with pytest.raises(Fenced):
        await old.commit()
    await new.commit()
    assert await values(cluster, topic, IsolationLevel.READ_COMMITTED) == [2]


@pytest.mark.parametrize("victim", ["leader", "coordinator"])
async def test_producer_writes_each_record_once_while_a_broker_is_killed(
    brokers: LocalCluster, cluster: Cluster, topic: str, victim: str
) -> None:
    identity = f"{topic}-id"
    producer = Producer(cluster, identity)
    for number in range(ROUNDS):
        await producer.begin()
        await producer.send(topic, records(number, number + ROUNDS))
        if number == ROUNDS // 3:
            partition = (await cluster.topic(topic)).partition(0)
            coordinator = await cluster.coordinator(CoordinatorType.TRANSACTION, identity)
            node_id = partition.leader if victim == "leader" else coordinator
            brokers.kill(node_id)
        await producer.send(topic, records(number + 2 * ROUNDS))
        await producer.commit()
    assert sorted(await values(cluster, topic, IsolationLevel.READ_COMMITTED)) == list(range(3 * ROUNDS))
    status = await cluster_status(cluster)
    assert sorted({*status.unreachable, *(broker.node_id for broker in status.brokers if broker.fenced)}) == [node_id]
    assert (await describe_transaction(cluster, identity)).coordinator != node_id or victim == "leader"


async def test_following_consumer_continues_after_the_failure_of_a_leader(
    brokers: LocalCluster, cluster: Cluster, topic: str
) -> None:
    producer = Producer(cluster)
    await producer.send(topic, records(*range(ROUNDS)))
    consumed: list[int] = []
    following = Consumer(cluster, topic, follow=True).batches()
    async for batch in following:
        consumed += [int(record.value or b"") for record in batch]
        if len(consumed) == ROUNDS:
            leader = (await cluster.topic(topic)).partition(1).leader
            brokers.kill(leader)
            await producer.send(topic, records(*range(ROUNDS, 2 * ROUNDS)))
        if len(consumed) == 2 * ROUNDS:
            break
    await following.aclose()
    assert sorted(consumed) == list(range(2 * ROUNDS))
