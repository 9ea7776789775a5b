"""Faults of whole brokers: network between them, processes, disks, and the placement of leaders."""

from __future__ import annotations

import asyncio
import time
from itertools import count
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from odradek import client
from odradek.testing.kafka import Kafka
from odradek.testing.kafka_cluster import KafkaCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.interop, pytest.mark.full]

BROKERS = 3
DELIVERY_MS = 20_000
SLOW_MS = 200
"""Delay of one direction of a slow link."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with KafkaCluster(BROKERS, settings={"replica.lag.time.max.ms": 1_000}) as cluster:
        yield cluster


@pytest.fixture
def kafka(cluster: KafkaCluster) -> Iterator[Kafka]:
    yield Kafka(cluster, "test")
    cluster.reset()


async def leader_seen_by(endpoint: str, topic: str, *, other_than: int) -> int:
    """Wait until a broker reports another leader, and return its node id."""
    async with asyncio.timeout(30), client.Cluster(endpoint) as cluster:
        while True:
            leader = (await cluster.topic(topic, refresh=True)).partition(0).leader
            if leader not in {other_than, -1}:
                return leader
            await asyncio.sleep(0.05)


def produced(
    kafka: Kafka, topic: str, value: bytes, timeout_ms: int = DELIVERY_MS, bootstrap: str | None = None
) -> str:
    """Produce one record with acks=all, and return the name of its error, or ""."""
    errors: list[str] = []

    config = kafka.client_config("confluent-kafka") | {"message.timeout.ms": timeout_ms}
    if bootstrap is not None:
        config["bootstrap.servers"] = bootstrap
    producer = Producer(config)
    producer.produce(
        topic, value, partition=0, on_delivery=lambda error, _: errors.append(error.name() if error else "")
    )
    producer.flush(timeout_ms / 1_000 + 10)
    [error] = errors
    return error


def test_leader_moves_to_a_broker_by_name_and_to_any_other_one(kafka: Kafka) -> None:
    topic, cluster = kafka.topic(), kafka.cluster
    for target in (3, 1, 2):
        assert cluster.move_leader(topic, to=target) == cluster.leader(topic) == target
    assert cluster.move_leader(topic) != 2


def test_leader_of_one_replica_moves_with_its_records(kafka: Kafka) -> None:
    topic = kafka.topic(replication_factor=1)
    assert produced(kafka, topic, b"42") == ""
    target = kafka.cluster.leader(topic) % BROKERS + 1
    assert kafka.cluster.move_leader(topic, to=target) == target
    assert kafka.values(topic) == [b"42"]
    with pytest.raises(ValueError, match="no other in-sync replica"):
        kafka.cluster.move_leader(topic)


def test_coordinators_move(kafka: Kafka) -> None:
    cluster = kafka.cluster
    transactional_id, group = kafka.transactional_id(), kafka.group()
    before = cluster.coordinator(transactional_id=transactional_id)
    after = cluster.move_coordinator(transactional_id=transactional_id)
    assert after == cluster.coordinator(transactional_id=transactional_id) != before
    before = cluster.coordinator(group=group)
    after = cluster.move_coordinator(group=group, to=before % BROKERS + 1)
    assert after == cluster.coordinator(group=group) == before % BROKERS + 1


def test_isolated_leader_is_replaced_and_an_acknowledged_record_survives(kafka: Kafka) -> None:
    topic, cluster = kafka.topic(), kafka.cluster
    assert produced(kafka, topic, b"before") == ""
    leader = cluster.leader(topic)
    others = sorted(set(cluster.node_ids) - {leader})
    for other in others:
        cluster.cut(leader, other)
    endpoint = cluster.endpoint(others[0])
    assert asyncio.run(leader_seen_by(endpoint, topic, other_than=leader)) in others
    assert produced(kafka, topic, b"during", bootstrap=endpoint) == ""
    cluster.heal()
    for node_id in cluster.node_ids:  # a deposed leader serves what it has until it knows the new one
        asyncio.run(leader_seen_by(cluster.endpoint(node_id), topic, other_than=leader))
    assert kafka.values(topic) == [b"before", b"during"]


def test_reset_waits_for_a_broker_that_was_fenced(kafka: Kafka) -> None:
    topic, cluster = kafka.topic(), kafka.cluster
    leader = cluster.leader(topic)
    others = sorted(set(cluster.node_ids) - {leader})
    for other in others:
        cluster.cut(leader, other)
    asyncio.run(leader_seen_by(cluster.endpoint(others[0]), topic, other_than=leader))
    cluster.reset()
    metadata = cluster.run(lambda connected: connected.fetch_metadata([]))
    assert sorted(metadata.brokers) == cluster.node_ids


def test_cluster_with_tls_and_users_has_all_faults() -> None:
    with KafkaCluster(BROKERS, security="sasl_ssl") as cluster:
        kafka = Kafka(cluster, "test")
        topic = kafka.topic()
        cluster.move_leader(topic, to=1)
        producer = Producer(kafka.client_config("confluent-kafka") | {"enable.idempotence": True})
        for other in (2, 3):
            cluster.cut(1, other)
        producer.produce(topic, b"1")
        assert producer.flush(0.5) == 1  # no follower has the record
        cluster.heal()
        assert producer.flush(60) == 0
        with kafka.faults.on("Produce", times=1).disconnect("after") as rule:
            producer.produce(topic, b"2")
            assert producer.flush(60) == 0
        assert rule.injected == 1
        cluster.kill(2)
        cluster.reset()
        assert cluster.is_running(2)


def test_one_way_fault_stops_the_replication_that_needs_the_direction(kafka: Kafka) -> None:
    topic, cluster = kafka.topic(configs={"min.insync.replicas": "3"}), kafka.cluster
    leader = cluster.leader(topic)
    follower = leader % BROKERS + 1
    cluster.cut(leader, to=follower)
    assert produced(kafka, topic, b"lost", 3_000) != ""
    cluster.heal()
    assert produced(kafka, topic, b"42") == ""


def test_slow_link_delays_replication(kafka: Kafka) -> None:
    topic, cluster = kafka.topic(configs={"min.insync.replicas": "3"}), kafka.cluster
    leader = cluster.leader(topic)
    cluster.slow(leader, leader % BROKERS + 1, ms=SLOW_MS)
    began = time.monotonic()
    assert produced(kafka, topic, b"42") == ""
    assert time.monotonic() - began >= SLOW_MS / 1_000  # the record and the next fetch of the follower are both late


def test_full_disk_refuses_records_and_a_free_one_accepts_them(kafka: Kafka) -> None:
    topic, cluster = kafka.topic(replication_factor=1), kafka.cluster
    leader = cluster.leader(topic)
    cluster.full_disk(leader)
    assert produced(kafka, topic, b"lost", 2_000) != ""
    cluster.free_disk(leader)
    assert produced(kafka, topic, b"42") == ""
    assert kafka.values(topic) == [b"42"]


def test_paused_and_killed_brokers_are_there_after_the_reset(kafka: Kafka) -> None:
    cluster = kafka.cluster
    cluster.pause(1)
    cluster.kill(2)
    kafka.faults.on("EndTxn").delay(1)  # a paused broker does not confirm it
    cluster.reset()
    assert all(map(cluster.is_running, cluster.node_ids))
    assert produced(kafka, kafka.topic(), b"42") == ""


def test_records_survive_a_plan_of_faults(kafka: Kafka) -> None:
    topic, cluster = kafka.topic(), kafka.cluster
    plan = kafka.faults.plan(seed=7, duration_s=6)
    config = kafka.client_config("confluent-kafka") | {"enable.idempotence": True}
    producer = Producer(config)
    failed: list[object] = []

    numbers = count()
    with cluster.run_faults(plan) as runs:
        while runs():
            number = next(numbers)
            producer.produce(
                topic, b"%d" % number, on_delivery=lambda error, _: failed.append(error) if error else None
            )
            producer.flush(0.02)
    assert producer.flush(60) == 0
    assert failed == []
    assert kafka.values(topic) == [b"%d" % number for number in range(next(numbers))]


def test_log_of_faults_stays_until_the_reset(kafka: Kafka) -> None:
    topic, cluster = kafka.topic(), kafka.cluster
    kafka.faults.on("Produce", topic=topic, times=1).delay(1)
    assert produced(kafka, topic, b"42") == ""
    cluster.end_faults()
    assert [injection.request.topics for injection in kafka.faults.log] == [(topic,)]
    cluster.reset()
    assert kafka.faults.log == []


def test_arguments_of_links_are_checked(kafka: Kafka) -> None:
    with pytest.raises(ValueError, match="name two brokers"):
        kafka.cluster.cut(1)
    with pytest.raises(ValueError, match="name two brokers"):
        kafka.cluster.slow(1, 2, to=3)
    with pytest.raises(ValueError, match="name one"):
        kafka.cluster.move_coordinator()
