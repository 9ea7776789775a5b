"""Stock clients work with thousands of partitions: the limits on requests permit what these clients send."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import kafka
import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic
from kafka.admin import ConfigResource as KafkaPythonResource
from kafka.admin import ConfigResourceType as KafkaPythonType
from kafka.structs import OffsetAndMetadata

from odradek import LocalCluster
from tests.support.tool_jvm import tool_jvm

if TYPE_CHECKING:
    from collections.abc import Iterator

TIMEOUT_S = 120.0
SHORT = 10, 100
FULL = 20, 500
"""Topics, and partitions per topic: 10,000 partitions."""
GROUP = "many"
pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


class ManyPartitions:
    """A broker with topics that have one record per partition."""

    def __init__(self, cluster: LocalCluster, topics: int, partitions: int) -> None:
        self.bootstrap = cluster.bootstrap
        self.topics = [f"many-{number:02}" for number in range(topics)]
        self.keys = [(topic, index) for topic in self.topics for index in range(partitions)]
        self._partitions = partitions

    def create(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for topic in self.topics:
            created = admin.create_topics([NewTopic(topic, self._partitions, 1)], request_timeout=TIMEOUT_S)
            created[topic].result(TIMEOUT_S)
        producer = Producer({"bootstrap.servers": self.bootstrap, "message.timeout.ms": int(TIMEOUT_S * 1_000)})
        failures: list[object] = []

        def delivered(error: object, _message: object) -> None:
            if error is not None:
                failures.append(error)

        for topic, index in self.keys:
            producer.produce(topic, f"{topic}-{index}", partition=index, on_delivery=delivered)
        assert producer.flush(TIMEOUT_S) == 0
        assert failures == []


@pytest.fixture(
    params=[
        pytest.param(SHORT, id="1,000 partitions"),
        pytest.param(FULL, id="10,000 partitions", marks=pytest.mark.full),
    ],
    scope="module",
)
def many(request: pytest.FixtureRequest) -> Iterator[ManyPartitions]:
    with LocalCluster(settings={"offsets.topic.num.partitions": "1"}) as cluster:
        running = ManyPartitions(cluster, *request.param)
        running.create()
        yield running
        cluster.kill(1)  # A clean stop flushes each log.


def test_confluent_kafka_fetches_commits_and_describes_all_partitions(many: ManyPartitions) -> None:
    consumer = Consumer({"bootstrap.servers": many.bootstrap, "group.id": GROUP, "enable.auto.commit": False})
    metadata = consumer.list_topics(timeout=TIMEOUT_S)
    described = {(topic, index) for topic in many.topics for index in metadata.topics[topic].partitions}
    assert described == set(many.keys)

    consumer.assign([TopicPartition(topic, index, 0) for topic, index in many.keys])
    received: list[Message] = []
    deadline_s = time.monotonic() + TIMEOUT_S
    while len(received) < len(many.keys) and time.monotonic() < deadline_s:
        received += consumer.consume(1_000, timeout=1.0)
    assert [message.error() for message in received if message.error()] == []
    assert sorted((message.topic(), message.partition()) for message in received) == sorted(many.keys)

    committed = [TopicPartition(topic, index, 1) for topic, index in many.keys]
    assert [each.error for each in consumer.commit(offsets=committed, asynchronous=False) if each.error] == []
    fetched = consumer.committed([TopicPartition(topic, index) for topic, index in many.keys], timeout=TIMEOUT_S)
    assert {(each.topic, each.partition): each.offset for each in fetched} == dict.fromkeys(many.keys, 1)
    consumer.close()

    admin = AdminClient({"bootstrap.servers": many.bootstrap})
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in many.topics]
    configs = [future.result(TIMEOUT_S) for future in admin.describe_configs(resources).values()]
    assert [config["cleanup.policy"].value for config in configs] == ["delete"] * len(many.topics)


def test_kafka_python_fetches_commits_and_describes_all_partitions(many: ManyPartitions) -> None:
    group = f"{GROUP}-python"
    consumer = kafka.KafkaConsumer(bootstrap_servers=many.bootstrap, group_id=group, enable_auto_commit=False)
    partitions = [kafka.TopicPartition(topic, index) for topic, index in many.keys]
    assert {index for topic in many.topics[:1] for index in consumer.partitions_for_topic(topic)} == {
        index for topic, index in many.keys if topic == many.topics[0]
    }
    consumer.assign(partitions)
    for partition in partitions:
        consumer.seek(partition, 0)
    received: list[tuple[str, int]] = []
    deadline_s = time.monotonic() + TIMEOUT_S
    while len(received) < len(partitions) and time.monotonic() < deadline_s:
        for partition, records in consumer.poll(timeout_ms=1_000, max_records=5_000).items():
            received += [(partition.topic, partition.partition)] * len(records)
    assert sorted(received) == sorted(many.keys)
    consumer.commit({partition: OffsetAndMetadata(1, "", -1) for partition in partitions})
    consumer.close(autocommit=False)

    admin = kafka.KafkaAdminClient(bootstrap_servers=many.bootstrap)
    offsets = admin.list_group_offsets(group)
    offsets = offsets.get(group, offsets)
    assert {(key.topic, key.partition): value.offset for key, value in offsets.items()} == dict.fromkeys(many.keys, 1)
    resources = [KafkaPythonResource(KafkaPythonType.TOPIC, topic) for topic in many.topics]
    described = admin.describe_configs(resources, config_filter="all")["topic"]
    assert {topic: configs["cleanup.policy"]["value"] for topic, configs in described.items()} == dict.fromkeys(
        many.topics, "delete"
    )
    admin.close()


def test_kafka_tools_fetch_and_describe_all_partitions(many: ManyPartitions) -> None:
    group = f"{GROUP}-java"
    jvm = tool_jvm()
    options = "--bootstrap-server", many.bootstrap
    consumed = jvm.run(
        "kafka-console-consumer",
        *(*options, "--include", "many-.*", "--group", group, "--max-messages", str(len(many.keys))),
        *("--command-property", "auto.offset.reset=earliest", "--timeout-ms", str(int(TIMEOUT_S * 1_000))),
    )
    assert sorted(consumed.stdout.split()) == sorted(f"{topic}-{index}" for topic, index in many.keys)
    offsets = jvm.run("kafka-consumer-groups", *options, "--describe", "--group", group, "--offsets")
    rows = [line.split() for line in offsets.stdout.splitlines() if line.startswith(group)]
    assert sorted((row[1], int(row[2]), row[3]) for row in rows) == sorted((*key, "1") for key in many.keys)
    topics = jvm.run("kafka-topics", *options, "--describe", "--topic", "many-.*")
    assert sum("\tPartition: " in line for line in topics.stdout.splitlines()) == len(many.keys)
    configs = jvm.run("kafka-configs", *options, "--describe", "--entity-type", "topics", "--all")
    assert sum(line.startswith("All configs for topic many-") for line in configs.stdout.splitlines()) == len(
        many.topics
    )
