"""Configurations, quotas and DeleteRecords by Kafka's tools and AdminClient, with equal results on both brokers."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import Consumer, KafkaError, Producer, TopicPartition

from tests.interop.drivers.base import TIMEOUT_S

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.tool_comparison import ToolComparison

TOOLS = "Kafka's tools 4.3"
pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


def fill(pair: ToolComparison, topic: str, count: int) -> None:
    for bootstrap in pair.bootstraps.values():
        producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
        for number in range(count):
            producer.produce(topic, str(number).encode(), partition=0)
        assert producer.flush(TIMEOUT_S) == 0


@pytest.mark.feature("kafka-delete-records", client=TOOLS)
def test_delete_records_tool_prints_the_same(pair: ToolComparison, name: str, tmp_path: Path) -> None:
    pair.same("kafka-topics", "--create", "--topic", name, "--partitions", "1")
    pair.same(
        "kafka-topics", "--create", "--topic", f"{name}-c", "--partitions", "1", "--config", "cleanup.policy=compact"
    )
    fill(pair, name, 10)
    plan = tmp_path / "offsets.json"
    for topic, offset in ((name, 4), (name, 2), (name, 11), (name, -1), (f"{name}-c", 0)):
        rows = [{"topic": topic, "partition": 0, "offset": offset}]
        plan.write_text(json.dumps({"version": 1, "partitions": rows}))
        pair.same("kafka-delete-records", "--offset-json-file", str(plan))
        if topic == name:
            pair.same("kafka-get-offsets", "--topic", name, "--time", "earliest")


def test_fetch_below_the_log_start_is_out_of_range(pair: ToolComparison, name: str) -> None:
    pair.same("kafka-topics", "--create", "--topic", name, "--partitions", "1")
    fill(pair, name, 5)
    for bootstrap in pair.bootstraps.values():
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        row = TopicPartition(name, 0, 3)
        assert admin.delete_records([row])[row].result(TIMEOUT_S).low_watermark == 3
        settings = {"bootstrap.servers": bootstrap, "group.id": name, "auto.offset.reset": "error", "log_level": 0}
        consumer = Consumer(settings)
        consumer.assign([TopicPartition(name, 0, 1)])
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        error = message.error()
        assert error is not None
        assert error.code() == KafkaError._AUTO_OFFSET_RESET
        consumer.close()


@pytest.mark.feature("kafka-configs: topics, brokers, groups", client=TOOLS)
def test_topic_and_broker_configurations_print_the_same(pair: ToolComparison, name: str) -> None:
    pair.same("kafka-topics", "--create", "--topic", name, "--partitions", "1")
    topic = ("--entity-type", "topics", "--entity-name", name)
    for change in (
        "retention.ms=60000,retention.bytes=70000,cleanup.policy=[compact,delete]",
        "retention.ms=soon",
        "retention.ms=",
        "cleanup.policy=none",
        "cleanup.policy=[delete,,compact]",
        "max.message.bytes=-1",
        "min.insync.replicas=0",
        "min.cleanable.dirty.ratio=2",
        "min.cleanable.dirty.ratio=inf",
        "segment.bytes=1",
        "follower.replication.throttled.replicas=none",
        "unclean.leader.election.enable=maybe",
        "no.such=1",
    ):
        pair.same("kafka-configs", *topic, "--alter", "--add-config", change)
    assert len(pair.same("kafka-configs", *topic, "--describe", ordered=False)) == 5
    odd = "cleanup.policy=[],retention.ms=+5,retention.bytes=-2,unclean.leader.election.enable=TRUE"
    odd += ",min.cleanable.dirty.ratio=0x1.8p-2f"
    assert pair.same("kafka-configs", *topic, "--alter", "--add-config", odd)[0] == "exit 0"
    assert len(pair.same("kafka-configs", *topic, "--describe", ordered=False)) == 7
    deleted = ",".join(change.split("=")[0] for change in odd.split(","))
    pair.same("kafka-configs", *topic, "--alter", "--delete-config", deleted)
    pair.same("kafka-configs", *topic, "--describe")
    pair.same("kafka-configs", "--entity-type", "topics", "--entity-name", f"{name}-none", "--describe")
    broker_entity = ("--entity-type", "brokers", "--entity-name", "1")
    for change in (
        "log.segment.bytes=many",
        "log.segment.bytes=1",
        "max.connections=0",
        "log.cleanup.policy=[delete,,compact]",
        "node.id=4",
        "log.retention.bytes=70000000",
        "max.connections.per.ip=1000",
    ):
        pair.same("kafka-configs", *broker_entity, "--alter", "--add-config", change)
    applied = "max.connections.per.ip=1000 sensitive"  # a broker applies it after the response of the controller
    pair.until(lambda lines: any(applied in line for line in lines), "kafka-configs", *broker_entity, "--describe")
    assert len(pair.same("kafka-configs", *broker_entity, "--describe", ordered=False)) == 4
    pair.same(
        "kafka-configs", *broker_entity, "--alter", "--delete-config", "log.retention.bytes,max.connections.per.ip"
    )
    pair.until(lambda lines: len(lines) == 2, "kafka-configs", *broker_entity, "--describe")
    pair.same("kafka-configs", *broker_entity, "--describe", ordered=False)


@pytest.mark.feature("kafka-configs: groups", client=TOOLS)
def test_group_configurations_print_the_same(pair: ToolComparison, name: str) -> None:
    group = ("--entity-type", "groups", "--entity-name", name)
    for change in (
        "consumer.session.timeout.ms=50000",
        "consumer.session.timeout.ms=10",
        "consumer.heartbeat.interval.ms=99999",
        "consumer.session.timeout.ms=soon",
        "no.such=1",
    ):
        pair.same("kafka-configs", *group, "--alter", "--add-config", change)
    pair.until(lambda lines: len(lines) == 3, "kafka-configs", *group, "--describe")
    pair.same("kafka-configs", *group, "--describe", ordered=False)
    pair.same("kafka-configs", *group, "--alter", "--delete-config", "consumer.session.timeout.ms")
    pair.until(lambda lines: len(lines) == 2, "kafka-configs", *group, "--describe")
    pair.same("kafka-configs", *group, "--describe", ordered=False)


@pytest.mark.feature("kafka-configs: quotas of users, clients, addresses", client=TOOLS)
def test_quota_commands_print_the_same(pair: ToolComparison, name: str) -> None:
    user, client = ("--entity-type", "users"), ("--entity-type", "clients")
    named_user, named_client = (*user, "--entity-name", name), (*client, "--entity-name", name)
    change = (
        "--alter",
        "--add-config",
        "producer_byte_rate=1048576,consumer_byte_rate=2097152,request_percentage=50.5",
    )
    for entity in (named_user, named_client, (*user, "--entity-default"), (*named_user, *client, "--entity-default")):
        assert pair.same("kafka-configs", *entity, *change)[0] == "exit 0"
        pair.until(lambda lines: len(lines) >= 2, "kafka-configs", *entity, "--describe")
        pair.same("kafka-configs", *entity, "--describe", ordered=False)
    for bad in ("producer_byte_rate=0", "producer_byte_rate=1.5", "no.such=1"):
        pair.same("kafka-configs", *named_user, "--alter", "--add-config", bad)
    address = ("--entity-type", "ips", "--entity-name", "127.0.0.9")
    pair.same("kafka-configs", *address, "--alter", "--add-config", "connection_creation_rate=10")
    pair.until(lambda lines: len(lines) >= 2, "kafka-configs", *address, "--describe")
    pair.same("kafka-configs", *address, "--describe")
    deleted = ("--alter", "--delete-config", "producer_byte_rate,consumer_byte_rate,request_percentage")
    for entity in (named_user, named_client, (*user, "--entity-default"), (*named_user, *client, "--entity-default")):
        assert pair.same("kafka-configs", *entity, *deleted)[0] == "exit 0"
        pair.until(lambda lines: len(lines) == 1, "kafka-configs", *entity, "--describe")
        pair.same("kafka-configs", *entity, "--describe", ordered=False)
    pair.same("kafka-configs", *address, "--alter", "--delete-config", "connection_creation_rate")


def test_producer_over_its_quota_is_throttled(pair: ToolComparison, name: str) -> None:
    """The quota permits the bytes of ten seconds without throttling. The bytes of two more seconds take two seconds."""
    pair.same("kafka-topics", "--create", "--topic", name, "--partitions", "1")
    client = ("--entity-type", "clients", "--entity-name", name)
    pair.same("kafka-configs", *client, "--alter", "--add-config", "producer_byte_rate=100000")
    for bootstrap in pair.bootstraps.values():
        producer = Producer(
            {"bootstrap.servers": bootstrap, "client.id": name, "linger.ms": 0, "batch.num.messages": 10}
        )
        began_s = time.monotonic()
        for _ in range(120):
            producer.produce(name, b"x" * 10_000, partition=0)
        assert producer.flush(TIMEOUT_S) == 0
        assert time.monotonic() - began_s >= 1
    pair.same("kafka-configs", *client, "--alter", "--delete-config", "producer_byte_rate")
