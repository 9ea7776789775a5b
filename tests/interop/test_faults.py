"""Faults in the handling of requests: effects on real clients, and on the state of real brokers.

The primitives are those of two other projects. Kafka's proxy of KAFKA-21074: injectError, disconnectOn, delayOn,
blackholeClient, with the triggers once, the n-th call, n times and each time. kfake of franz-go: ControlKey,
KeepControl, SleepControl, CurrentNode, AddFault.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from odradek import client
from odradek.testing.faults import drop_response, error
from odradek.testing.kafka import Kafka
from odradek.testing.kafka_cluster import KafkaCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from odradek.testing.rules import Action, Request

pytestmark = [pytest.mark.interop, pytest.mark.full]

DELAY_MS = 300
SHORT_S = 1.0
"""Request time-out of a client that receives no response."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with KafkaCluster() as cluster:
        yield cluster


@pytest.fixture
def kafka(cluster: KafkaCluster, request: pytest.FixtureRequest) -> Iterator[Kafka]:
    yield Kafka(cluster, "test")
    cluster.reset()


@asynccontextmanager
async def connected(kafka: Kafka, **settings: Any) -> AsyncIterator[client.Cluster]:
    async with client.Cluster(kafka.bootstrap, client.Settings(client_id="shop", **settings)) as cluster:
        yield cluster
    await asyncio.sleep(0)  # the transports close


@pytest.fixture
async def shop(kafka: Kafka) -> AsyncIterator[client.Cluster]:
    async with connected(kafka, request_timeout_s=SHORT_S, retry=client.RetryPolicy(deadline_s=5.0)) as cluster:
        yield cluster


async def topics_after(kafka: Kafka, shop: client.Cluster) -> list[str]:
    """Return the topics. The broker has applied all earlier changes of topics: it knows a topic that is created now."""
    kafka.faults.clear()
    kafka.topic()
    return [topic.name for topic in await client.list_topics(shop)]


async def send(producer: client.Producer, topic: str, value: bytes) -> None:
    await producer.begin()
    await producer.send(topic, [client.ProducerRecord(None, value)])


async def test_lost_response_of_a_commit_commits(kafka: Kafka, shop: client.Cluster) -> None:
    topic, transactional_id = kafka.topic(), kafka.transactional_id()
    producer = client.Producer(shop, transactional_id=transactional_id)
    await send(producer, topic, b"42")
    rule = kafka.faults.on("EndTxn", transactional_id=transactional_id, times=1).drop_response()
    await producer.commit()  # it is sent again after the time-out
    assert rule.injected == 1
    assert kafka.values(topic) == [b"42"]
    [injection] = kafka.faults.log
    assert injection.request.client_id == "shop"
    assert injection.request.transactional_ids == (transactional_id,)


async def test_error_arrives_at_the_client_and_the_request_is_not_handled(kafka: Kafka, shop: client.Cluster) -> None:
    topic = kafka.topic()
    producer = client.Producer(shop, transactional_id=kafka.transactional_id())
    await send(producer, topic, b"42")
    with kafka.faults.on("EndTxn").error("INVALID_TXN_STATE"), pytest.raises(client.ClientError, match="INVALID_TXN"):
        await producer.commit()
    assert kafka.values(topic) == []
    assert kafka.values(topic, committed=False) == [b"42"]


async def test_retriable_error_on_the_nth_request_is_retried(kafka: Kafka, shop: client.Cluster) -> None:
    topic = kafka.topic()
    producer = client.Producer(shop, transactional_id=kafka.transactional_id())
    rule = kafka.faults.on("EndTxn", nth=3).error("COORDINATOR_NOT_AVAILABLE")
    for number in range(4):
        await send(producer, topic, b"%d" % number)
        await producer.commit()
        assert rule.injected == (number >= 2)
    assert kafka.values(topic) == [b"0", b"1", b"2", b"3"]


async def test_error_after_the_request_was_handled(kafka: Kafka, shop: client.Cluster) -> None:
    name = kafka.group("topic")
    rule = kafka.faults.on("CreateTopics", topic=name).error("POLICY_VIOLATION", executed=True)
    with pytest.raises(client.ClientError, match="POLICY_VIOLATION"):
        await client.create_topic(shop, name)
    assert rule.injected == 1
    assert name in await topics_after(kafka, shop)


@pytest.mark.parametrize(("when", "exists"), [("before", False), ("after", True)])
async def test_disconnect_before_and_after_the_request(kafka: Kafka, when: Any, exists: bool) -> None:
    async with connected(kafka, retry=client.RetryPolicy(deadline_s=0.0)) as once:
        name = kafka.group("topic")
        rule = kafka.faults.on("CreateTopics").disconnect(when)
        with pytest.raises(client.ClientError):
            await client.create_topic(once, name)
        assert rule.injected == 1
        assert (name in await topics_after(kafka, once)) is exists


async def test_delayed_response_holds_back_one_connection(kafka: Kafka, shop: client.Cluster) -> None:
    topic = kafka.topic()
    rule = kafka.faults.on("ListOffsets", client_id="shop").delay(DELAY_MS)
    loop = asyncio.get_running_loop()
    began = loop.time()
    delayed = loop.create_task(client.list_offsets(shop, [topic], client.LATEST))
    await asyncio.to_thread(rule.wait)
    assert kafka.values(topic) == []  # by another client
    await delayed
    assert loop.time() - began >= DELAY_MS / 1_000


async def test_silenced_client_is_served_again_after_the_rule(kafka: Kafka) -> None:
    async with connected(kafka, request_timeout_s=0.5, retry=client.RetryPolicy(deadline_s=0.0)) as silenced:
        name = kafka.group("topic")
        with kafka.faults.on(client_id="sh*p").drop_request() as rule:
            with pytest.raises(client.ClientError):
                await client.create_topic(silenced, name)
            assert rule.injected >= 1
        assert name not in await topics_after(kafka, silenced)


async def test_function_sees_requests_and_decides(kafka: Kafka, shop: client.Cluster) -> None:
    topic, seen = kafka.topic(), []

    def once(request: Request) -> Action | None:
        seen.append((request.api, request.broker, request.fields["committed"]))
        return {1: error("NOT_COORDINATOR"), 2: drop_response()}.get(len(seen))

    kafka.faults.on("EndTxn").call(once)
    producer = client.Producer(shop, transactional_id=kafka.transactional_id())
    await send(producer, topic, b"42")
    await producer.commit()
    assert seen == [("EndTxn", 1, True)] * 3
    assert kafka.values(topic) == [b"42"]


async def test_request_waits_for_an_event_while_others_are_served(kafka: Kafka, shop: client.Cluster) -> None:
    topic, seen = kafka.topic(), threading.Event()

    def wait(_request: Request) -> None:
        assert seen.wait(30)

    def note(_request: Request) -> None:
        seen.set()

    producer = client.Producer(shop, transactional_id=kafka.transactional_id())
    await send(producer, topic, b"42")
    kafka.faults.on("EndTxn").call(wait)
    kafka.faults.on("ListOffsets").call(note)
    committed = asyncio.create_task(producer.commit())
    assert kafka.values(topic) == []  # it requests the offsets
    await committed
    assert kafka.values(topic) == [b"42"]


async def test_function_that_fails_lets_the_request_pass(kafka: Kafka, shop: client.Cluster) -> None:
    def fail(request: Request) -> Action | None:
        raise KeyError(request.api)

    kafka.faults.on("Metadata").call(fail)
    assert await client.list_topics(shop) is not None
    assert kafka.faults.log == []
    assert {type(each) for each in kafka.faults.errors} == {KeyError}


async def test_restarted_broker_has_the_rules(kafka: Kafka) -> None:
    topic = kafka.topic()
    rule = kafka.faults.on("ListOffsets", times=1).error("LEADER_NOT_AVAILABLE")
    kafka.cluster.kill(1)
    kafka.cluster.start(1)
    async with connected(kafka) as shop:
        assert await client.list_offsets(shop, [topic], client.LATEST) == {}
        assert await client.list_offsets(shop, [topic], client.LATEST)
    assert rule.injected == 1
