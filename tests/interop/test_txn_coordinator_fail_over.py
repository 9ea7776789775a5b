"""Transactions on three brokers whose coordinators are killed or paused: clients of TV1 and TV2, kafka-transactions."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import ElectionType, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from odradek import LocalCluster
from odradek.pipeline.cluster.access import Access
from odradek.pipeline.flights.progress_topic import await_stable
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest
from odradek.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.interop.drivers.base import TIMEOUT_S, ProducerOptions
from tests.interop.drivers.confluent import ConfluentDriver
from tests.support.hanging import leave_hanging
from tests.support.ledger import LONGEST_WAIT_S, PARTITIONS, TOPIC, Load, check, final_read
from tests.support.raw_client import RawClient
from tests.support.tool_jvm import run_tool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.interop.drivers.base import Driver

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

BROKERS = 3
SETTINGS = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
    "transaction.partition.verification.enable": "false",
}
"""Verification is disabled so that the test can create a hanging transaction for kafka-transactions."""
HOUR_MS = 3_600_000
TRANSACTIONS_BETWEEN = 10
"""Transactions of each producer before a coordinator is killed, and while it is down."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(BROKERS, settings=SETTINGS) as running:
        yield running


@pytest.fixture
def brokers(cluster: LocalCluster) -> LocalCluster:
    """Start all brokers, and wait until each partition has its preferred leader."""
    cluster.start()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    deadline = time.monotonic() + TIMEOUT_S
    while any(
        partition.leader != partition.replicas[0]
        for topic in admin.list_topics(timeout=TIMEOUT_S).topics.values()
        for partition in topic.partitions.values()
    ):
        assert time.monotonic() < deadline
        admin.elect_leaders(ElectionType.PREFERRED, None).result(TIMEOUT_S)
    return cluster


def make_topic(cluster: LocalCluster, name: str, partitions: int = PARTITIONS) -> str:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(name, partitions, BROKERS)])[name].result(TIMEOUT_S)
    deadline = time.monotonic() + TIMEOUT_S
    while not all(asyncio.run(knows(cluster, node_id, name)) for node_id in cluster.node_ids):
        assert time.monotonic() < deadline
    return name


async def knows(cluster: LocalCluster, node_id: int, topic: str) -> bool:
    """Return True if a broker has a topic and its leaders in its metadata. Raw requests have no retries."""
    client = await connect(cluster, node_id)
    response = await client.call(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 9)
    client.close()
    return response.topics[0].error_code == 0 and all(
        partition.error_code == 0 for partition in response.topics[0].partitions
    )


def settle(cluster: LocalCluster, topic: str) -> None:
    """Wait until all brokers have the same leaders of `topic`, and until it has no open transaction.

    A broker that was paused serves reads from its old log until it has the metadata of the new leader. An EndTxn
    response precedes the markers.
    """
    deadline = time.monotonic() + TIMEOUT_S
    while len(dict.fromkeys(asyncio.run(leaders(cluster, node_id, topic)) for node_id in cluster.node_ids)) > 1:
        assert time.monotonic() < deadline
    await_stable(Access(cluster.bootstrap), {topic: PARTITIONS})


async def leaders(cluster: LocalCluster, node_id: int, topic: str) -> tuple[tuple[int, int, int], ...]:
    """Return partition, leader and leader epoch from the metadata of one broker."""
    client = await connect(cluster, node_id)
    response = await client.call(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 9)
    client.close()
    return tuple(
        sorted(
            (partition.partition_index, partition.leader_id, partition.leader_epoch)
            for partition in response.topics[0].partitions
        )
    )


async def connect(cluster: LocalCluster, node_id: int) -> RawClient:
    host, port = cluster.endpoint(node_id).rsplit(":", 1)
    return await RawClient.connect(host, int(port))


def coordinator_of(cluster: LocalCluster, transactional_id: str) -> int:
    """Return the coordinator of a transactional id, which must be the same in the responses of all brokers."""

    async def find(node_id: int) -> int:
        client = await connect(cluster, node_id)
        request = FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id])
        coordinator = (await client.call(request, 4)).coordinators[0]
        client.close()
        assert coordinator.error_code == 0, coordinator
        assert f"{coordinator.host}:{coordinator.port}" == cluster.endpoint(coordinator.node_id)
        return int(coordinator.node_id)

    node_ids = [asyncio.run(find(node_id)) for node_id in cluster.node_ids if cluster.is_running(node_id)]
    assert len(dict.fromkeys(node_ids)) == 1, node_ids
    return node_ids[0]


def transact(cluster: LocalCluster, topic: str, transactional_id: str, value: bytes) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "transactional.id": transactional_id,
            "socket.timeout.ms": 3_000,  # time-out of librdkafka for a broker that does not respond
            "log_level": 0,
        }
    )
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    for index in range(PARTITIONS):
        producer.produce(topic, value, partition=index)
    return producer


def ids_of_every_coordinator(cluster: LocalCluster, prefix: str) -> dict[int, str]:
    """Return a transactional id for each coordinator, by node id."""
    coordinator: dict[int, str] = {}
    number = 0
    while len(coordinator) < BROKERS:
        name = f"{prefix}-{number}"
        coordinator.setdefault(coordinator_of(cluster, name), name)
        number += 1
    return coordinator


def test_each_coordinator_ends_transactions_on_all_brokers(brokers: LocalCluster) -> None:
    topic = make_topic(brokers, "every")
    ids = ids_of_every_coordinator(brokers, "every")
    assert sorted(ids) == brokers.node_ids
    for name in ids.values():
        transact(brokers, topic, name, b"yes").commit_transaction(TIMEOUT_S)
        transact(brokers, topic, name, b"no").abort_transaction(TIMEOUT_S)
    settle(brokers, topic)
    committed = ConfluentDriver().consume(brokers.bootstrap, topic, list(range(PARTITIONS)), "read_committed")
    assert [message.value for message in committed] == [b"yes"] * PARTITIONS * BROKERS


@pytest.mark.parametrize("client", ["confluent-kafka", pytest.param("Java 4.4", marks=pytest.mark.full)])
def test_open_transaction_survives_the_failure_of_its_coordinator_or_a_leader(
    brokers: LocalCluster, drivers: Callable[[str], Driver], client: str
) -> None:
    """The client receives only errors that it retries, and the transaction is atomic."""
    topic = make_topic(brokers, f"open-{client[:4]}")
    name = f"{topic}-id"
    producer = drivers(client).producer(brokers.bootstrap, ProducerOptions(transactional_id=name))
    producer.init()
    for commit in (True, False):
        producer.begin()
        for index in range(PARTITIONS):
            producer.send(topic, b"before", partition=index)
        producer.flush()
        failed_node = coordinator_of(brokers, name) if commit else leader_of(brokers, topic, 0)
        brokers.kill(failed_node)
        for index in range(PARTITIONS):
            producer.send(topic, b"after", partition=index)
        if commit:
            producer.commit()
        else:
            producer.abort()
        brokers.start(failed_node)
    producer.begin()
    producer.send(topic, b"last")
    producer.commit()
    settle(brokers, topic)
    committed = drivers("confluent-kafka").consume(brokers.bootstrap, topic, list(range(PARTITIONS)), "read_committed")
    assert sorted(message.value or b"" for message in committed) == [
        *[b"after"] * PARTITIONS,
        *[b"before"] * PARTITIONS,
        b"last",
    ]


def leader_of(cluster: LocalCluster, topic: str, index: int) -> int:
    async def find() -> int:
        client = await connect(cluster, next(n for n in cluster.node_ids if cluster.is_running(n)))
        response = await client.call(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 9)
        client.close()
        return next(int(p.leader_id) for p in response.topics[0].partitions if p.partition_index == index)

    return asyncio.run(find())


def test_transactions_are_atomic_while_coordinators_are_killed_in_turn(brokers: LocalCluster) -> None:
    make_topic(brokers, TOPIC)
    loads = [Load(brokers.bootstrap, f"p{number}", number) for number in range(3)]
    for number in range(2):
        for load in loads:
            load.go_on(TRANSACTIONS_BETWEEN)
        failed_node = coordinator_of(brokers, f"p{number}")
        brokers.kill(failed_node)
        for load in loads:
            load.go_on(TRANSACTIONS_BETWEEN)  # while the coordinator is down
        brokers.start(failed_node)
    for load in loads:
        load.go_on(TRANSACTIONS_BETWEEN)
    histories = [load.finish() for load in loads]
    coordinator = final_read(brokers.bootstrap, [history.tag for history in histories])
    check(histories, coordinator, at_least=5 * TRANSACTIONS_BETWEEN)
    assert [history.recovered for history in histories] == [[], [], []]


def test_paused_coordinator_is_replaced_and_causes_no_error_when_it_resumes(brokers: LocalCluster) -> None:
    topic = make_topic(brokers, "paused")
    name = "paused-id"
    producer = transact(brokers, topic, name, b"one")
    paused = coordinator_of(brokers, name)
    brokers.pause(paused)
    try:
        producer.commit_transaction(LONGEST_WAIT_S)
        assert coordinator_of_others(brokers, name, paused) != paused
    finally:
        brokers.resume(paused)
    producer.begin_transaction()
    producer.produce(topic, b"two", partition=0)
    producer.commit_transaction(LONGEST_WAIT_S)
    settle(brokers, topic)
    committed = ConfluentDriver().consume(brokers.bootstrap, topic, list(range(PARTITIONS)), "read_committed")
    assert sorted(message.value or b"" for message in committed) == [b"one"] * PARTITIONS + [b"two"]


def coordinator_of_others(cluster: LocalCluster, transactional_id: str, left_out: int) -> int:
    async def find(node_id: int) -> int:
        client = await connect(cluster, node_id)
        request = FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id])
        coordinator = (await client.call(request, 4)).coordinators[0]
        client.close()
        return int(coordinator.node_id)

    return asyncio.run(find(next(node_id for node_id in cluster.node_ids if node_id != left_out)))


def tool(cluster: LocalCluster, *arguments: str) -> list[list[str]]:
    finished = run_tool("kafka-transactions", "--bootstrap-server", cluster.bootstrap, *arguments)
    assert finished.returncode == 0, finished.stderr
    return [line.split() for line in finished.stdout.splitlines() if line.strip()]


def test_kafka_transactions_lists_and_describes_ids_of_all_coordinators(brokers: LocalCluster) -> None:
    topic = make_topic(brokers, "listed")
    ids = ids_of_every_coordinator(brokers, "listed")
    producers = [transact(brokers, topic, name, b"x") for name in ids.values()]
    for producer in producers:
        assert producer.flush(TIMEOUT_S) == 0
    _, *rows = tool(brokers, "list")
    listed = {row[0]: (int(row[1]), row[3]) for row in rows}
    assert {name: listed[name] for name in ids.values()} == {name: (node, "Ongoing") for node, name in ids.items()}
    node, name = ids.popitem()
    _, row = tool(brokers, "describe", "--transactional-id", name)
    assert (int(row[0]), row[1], row[4]) == (node, name, "Ongoing")
    assert sorted(row[-1].split(",")) == [f"{topic}-{index}" for index in range(PARTITIONS)]
    _, *open_here = tool(brokers, "describe-producers", "--topic", topic, "--partition", "1")
    assert len(open_here) == BROKERS
    for producer in producers:
        producer.abort_transaction(TIMEOUT_S)


def test_hanging_transaction_is_found_and_aborted(brokers: LocalCluster) -> None:
    """A hanging transaction is a batch of a producer whose coordinator does not know the transaction."""
    topic = make_topic(brokers, "hanging", 1)
    leader = leader_of(brokers, topic, 0)
    asyncio.run(write_hanging(brokers, leader, topic))
    _, *coordinator = tool(brokers, "find-hanging", "--topic", topic, "--partition", "0")
    assert [(row[0], row[1], row[5]) for row in coordinator] == [(topic, "0", "0")]
    tool(brokers, "abort", "--topic", topic, "--partition", "0", "--start-offset", "0")
    _, *hanging_rows = tool(brokers, "find-hanging", "--topic", topic, "--partition", "0")
    assert hanging_rows == []
    producer = Producer({"bootstrap.servers": brokers.bootstrap, "log_level": 0})
    producer.produce(topic, b"after")
    assert producer.flush(TIMEOUT_S) == 0
    committed = ConfluentDriver().consume(brokers.bootstrap, topic, [0], "read_committed")
    assert [message.value for message in committed] == [b"after"]


async def write_hanging(cluster: LocalCluster, leader: int, topic: str) -> None:
    client = await connect(cluster, leader)
    identity = await client.call(InitProducerIdRequest(None, 60_000, -1, -1), 4)
    assert identity.error_code == 0
    await leave_hanging(client, topic, identity.producer_id, int(time.time() * 1_000) - HOUR_MS)
    client.close()


def test_transaction_times_out_after_the_failure_of_its_coordinator(brokers: LocalCluster) -> None:
    topic = make_topic(brokers, "timeout", 1)
    name = "timeout-id"
    producer = Producer(
        {
            "bootstrap.servers": brokers.bootstrap,
            "transactional.id": name,
            "transaction.timeout.ms": 2_000,
            "log_level": 0,
        }
    )
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, b"never")
    producer.flush(TIMEOUT_S)
    brokers.kill(coordinator_of(brokers, name))
    producer_after = Producer({"bootstrap.servers": brokers.bootstrap, "log_level": 0})
    producer_after.produce(topic, b"after")
    assert producer_after.flush(TIMEOUT_S) == 0
    deadline = time.monotonic() + TIMEOUT_S
    while [
        committed.value for committed in ConfluentDriver().consume(brokers.bootstrap, topic, [0], "read_committed")
    ] != [b"after"]:
        assert time.monotonic() < deadline
