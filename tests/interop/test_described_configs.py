"""DescribeConfigs beside Apache Kafka's: what both list has the same default and can, or cannot, be changed alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from tests.interop.conftest import SETTINGS
from tests.interop.drivers.base import TIMEOUT_S

if TYPE_CHECKING:
    from odradek import LocalCluster
    from tests.support.kafka_broker import KafkaBroker

pytestmark = pytest.mark.interop

OWN_DEFAULTS = {
    "advertised.listeners": "Kafka repeats the listeners",
    "controller.listener.names": "Kafka has one for controllers alone",
    "controller.quorum.voters": "each has its port",
    "listeners": "each has its port",
    "log.dirs": "each has its directory",
    "node.id": "each has its id",
    "offsets.topic.replication.factor": "fits the cluster by itself",
    "transaction.state.log.min.isr": "fits the cluster by itself",
    "transaction.state.log.replication.factor": "fits the cluster by itself",
}
ONLY_AT_START = ("listeners",)
"""Kafka can change these while it runs."""


def described(bootstrap: str, kind: ResourceType, name: str) -> dict[str, Any]:
    resource = ConfigResource(kind, name)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    entries: dict[str, Any] = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
    return entries


def test_properties_of_a_broker(odradek_cluster: LocalCluster, kafka_broker: KafkaBroker) -> None:
    ours = described(odradek_cluster.bootstrap, ResourceType.BROKER, "1")
    kafkas = described(kafka_broker.bootstrap, ResourceType.BROKER, "1")
    both = [name for name in ours if name in kafkas]
    assert len(both) > 50
    different = [name for name in both if row(ours[name], name) != row(kafkas[name], name)]
    assert different == [], [(row(ours[name], name), row(kafkas[name], name)) for name in different]


def row(entry: Any, name: str) -> tuple[object, ...]:
    own = name in OWN_DEFAULTS or name in SETTINGS
    read_only = None if name in ONLY_AT_START else entry.is_read_only
    return entry.is_sensitive, read_only, None if own else (entry.value, entry.is_default)


def test_properties_of_a_topic(odradek_cluster: LocalCluster, kafka_broker: KafkaBroker) -> None:
    found = []
    for bootstrap in (odradek_cluster.bootstrap, kafka_broker.bootstrap):
        topic = NewTopic("described-configs", 1, 1, config={"retention.ms": "-1", "max.message.bytes": "2000"})
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([topic])["described-configs"].result(TIMEOUT_S)
        found.append(described(bootstrap, ResourceType.TOPIC, "described-configs"))
    ours, kafkas = found
    assert ours.keys() <= kafkas.keys()
    for name, here in ours.items():
        there = kafkas[name]
        assert (here.value, here.is_read_only, here.is_sensitive) == (
            there.value,
            there.is_read_only,
            there.is_sensitive,
        ), name
        if name not in OWN_DEFAULTS:
            assert here.source == there.source, name
