"""DescribeConfigs compared with Apache Kafka: equal defaults and changes; each missing property has a reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from odradek.broker.config.without_effect import WITHOUT_EFFECT
from odradek.broker_interface import OTHER_NAMES
from tests.interop.conftest import SETTINGS
from tests.interop.drivers.base import TIMEOUT_S

if TYPE_CHECKING:
    from odradek import LocalCluster
    from tests.support.kafka_broker import KafkaBroker

pytestmark = pytest.mark.interop

OWN_DEFAULTS = {
    "advertised.listeners": "Kafka repeats the listeners",
    "controller.listener.names": "Kafka has a separate one for controllers",
    "controller.quorum.voters": "each broker has its own port",
    "inter.broker.listener.name": "a local cluster has a separate listener for brokers",
    "listener.security.protocol.map": "the two brokers have listeners of other names",
    "listeners": "each broker has its own port",
    "log.dirs": "each broker has its own directory",
    "node.id": "each broker has its own id",
    "sasl.enabled.mechanisms": "Kafka's default, GSSAPI, is not supported",
    "security.inter.broker.protocol": "a local cluster names the listener for brokers",
    "process.roles": "Kafka requires the property",
    "offsets.topic.replication.factor": "depends on the number of brokers",
    "transaction.state.log.min.isr": "depends on the number of brokers",
    "transaction.state.log.replication.factor": "depends on the number of brokers",
}
NOT_HERE = (*OTHER_NAMES, *WITHOUT_EFFECT)
"""Properties of Kafka that Odradek describes only if they are set, or by another name."""
HIDDEN = (
    "group.consumer.regex.refresh.interval.ms",
    "leader.imbalance.per.broker.percentage",
    "log.initial.task.delay.ms",
    "producer.id.expiration.check.interval.ms",
    "unclean.leader.election.interval.ms",
)
"""Internal properties that Kafka does not describe, and one that it removed in 4.0."""
OWN = ("odradek.", "cluster.secret.file")
"""Properties that Kafka does not have."""
OF_AUTHORIZER = ("super.users", "allow.everyone.if.no.acl.found")
"""Properties of StandardAuthorizer. Kafka does not describe them without it."""


def described(bootstrap: str, kind: ResourceType, name: str) -> dict[str, Any]:
    resource = ConfigResource(kind, name)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    entries: dict[str, Any] = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
    return entries


def test_broker_properties_equal_those_of_kafka(odradek_cluster: LocalCluster, kafka_broker: KafkaBroker) -> None:
    odradek = described(odradek_cluster.bootstrap, ResourceType.BROKER, "1")
    kafkas = described(kafka_broker.bootstrap, ResourceType.BROKER, "1")
    common = [name for name in odradek if name in kafkas]
    assert len(common) > 50
    different = [name for name in common if row(odradek[name], name) != row(kafkas[name], name)]
    assert different == [], [(row(odradek[name], name), row(kafkas[name], name)) for name in different]
    assert [name for name in kafkas if name not in odradek and name not in NOT_HERE] == []
    ours_alone = {name for name in odradek if name not in kafkas and not name.startswith(OWN)}
    assert ours_alone == {*HIDDEN, *OF_AUTHORIZER}


def row(entry: Any, name: str) -> tuple[object, ...]:
    own = name in OWN_DEFAULTS or name in SETTINGS
    return entry.is_sensitive, entry.is_read_only, None if own else (entry.value, entry.is_default)


def test_topic_properties_equal_those_of_kafka(odradek_cluster: LocalCluster, kafka_broker: KafkaBroker) -> None:
    descriptions = []
    for bootstrap in (odradek_cluster.bootstrap, kafka_broker.bootstrap):
        topic = NewTopic("described-configs", 1, 1, config={"retention.ms": "-1", "max.message.bytes": "2000"})
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([topic])["described-configs"].result(TIMEOUT_S)
        descriptions.append(described(bootstrap, ResourceType.TOPIC, "described-configs"))
    odradek, kafkas = descriptions
    assert odradek.keys() == kafkas.keys()
    for name, row_of_odradek in odradek.items():
        row_of_kafka = kafkas[name]
        assert (row_of_odradek.value, row_of_odradek.is_read_only, row_of_odradek.is_sensitive) == (
            row_of_kafka.value,
            row_of_kafka.is_read_only,
            row_of_kafka.is_sensitive,
        ), name
        if name not in OWN_DEFAULTS:
            assert row_of_odradek.source == row_of_kafka.source, name
