"""DescribeConfigs compared with Apache Kafka: equal defaults and changes; each missing property has a reason."""

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
    "controller.listener.names": "Kafka has a separate one for controllers",
    "controller.quorum.voters": "each broker has its own port",
    "inter.broker.listener.name": "a local cluster has a separate listener for brokers",
    "listener.security.protocol.map": "the two brokers have listeners of other names",
    "listeners": "each broker has its own port",
    "log.dirs": "each broker has its own directory",
    "node.id": "each broker has its own id",
    "sasl.enabled.mechanisms": "Kafka's default, GSSAPI, is not supported",
    "security.inter.broker.protocol": "a local cluster names the listener for brokers",
    "offsets.topic.replication.factor": "depends on the number of brokers",
    "transaction.state.log.min.isr": "depends on the number of brokers",
    "transaction.state.log.replication.factor": "depends on the number of brokers",
}
ONLY_AT_START = (
    "listener.security.protocol.map",
    "listeners",
    "sasl.enabled.mechanisms",
    "sasl.jaas.config",
    "ssl.cipher.suites",
    "ssl.client.auth",
    "ssl.enabled.protocols",
    "ssl.endpoint.identification.algorithm",
    "ssl.protocol",
)
"""Properties that only Kafka can change dynamically."""
NOT_HERE = {
    "alter.log.dirs.": "a node has one data directory",
    "broker.id": "node.id",
    "background.threads": "one event loop, few threads",
    "client.quota.callback.class": "no classes are loaded",
    "config.providers": "no classes are loaded",
    "controlled.shutdown.enable": "always on",
    "controller.quorum.append.linger.ms": "appends are not delayed",
    "controller.quorum.auto.join.enable": "the voters are configured statically",
    "controller.quorum.bootstrap.servers": "the voters are configured statically",
    "controller.quorum.fetch.": "named limits",
    "controller.quorum.request.timeout.ms": "the election time-out is used instead",
    "controller.quorum.retry.backoff.ms": "no polling",
    "controller.socket.timeout.ms": "request.timeout.ms is used instead",
    "cordoned.log.dirs": "a node has one data directory",
    "early.start.listeners": "all listeners start together",
    "errors.deadletterqueue.": "no share groups",
    "follower.fetch.last.tiered.offset.enable": "no tiered storage",
    "group.coordinator.": "one event loop; appends are not delayed; the protocols are on by group.version",
    "group.share.": "no share groups",
    "group.streams.": "no streams groups",
    "initial.broker.registration.timeout.ms": "a node waits without a limit until it is registered, and logs it",
    "kafka.metrics.": "Prometheus alone",
    "log.cleaner.threads": "compaction runs on the event loop",
    "log.dir": "log.dirs",
    "max.connections.per.ip.overrides": "quotas of addresses (KIP-612) are set dynamically",
    "metadata.log.dir": "the metadata log is in the data directory",
    "metadata.log.segment.ms": "segments of metadata roll by size",
    "metadata.max.": "the metadata log is deleted up to its snapshots, and an idle controller writes nothing",
    "metric": "Prometheus alone",
    "num.": "one event loop",
    "offsets.topic.compression.codec": "offsets are written uncompressed",
    "principal.builder.class": "no classes are loaded",
    "process.roles": "by controller.quorum.voters",
    "queued.max.requests": "by bytes: queued.max.request.bytes",
    "remote.": "no tiered storage",
    "replica.socket.": "property of Kafka's threads",
    "replication.quota.window.": "quotas use a leaky bucket, which has no window",
    "sasl.client.": "no classes are loaded",
    "sasl.kerberos.": "GSSAPI is not supported",
    "sasl.login.": "property of Kafka's internal clients",
    "sasl.mechanism.": "nodes log in with the cluster secret",
    "sasl.oauthbearer.": "property of clients, or of retries of the JWKS endpoint, which are a named limit",
    "security.providers": "no classes are loaded",
    "share.": "no share groups",
    "socket.connection.setup.": "property of Kafka's internal clients",
    "socket.receive.buffer.bytes": "the system's own",
    "socket.send.buffer.bytes": "the system's own",
    "ssl.allow.": "new certificates may have other names",
    "ssl.engine.factory.class": "no classes are loaded",
    "ssl.keymanager.algorithm": "property of Java",
    "ssl.provider": "property of Java",
    "ssl.secure.random.implementation": "property of Java",
    "ssl.trustmanager.algorithm": "property of Java",
    "telemetry.max.bytes": "clients do not push metrics (KIP-714)",
}
"""Properties of Kafka, or prefixes of their names, that Odradek does not have, with the reason."""
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
PURGATORY = ".purgatory.purge.interval.requests"
"""Properties of Kafka's purgatory. Odradek removes a parked request when it is completed."""
POLICY = ".policy.class.name"
"""Properties with names of classes. Odradek loads no classes."""


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
    left_out = [name for name in kafkas if name not in odradek]
    assert [name for name in left_out if not is_explained(name)] == []
    removed = [start for start in NOT_HERE if not any(name.startswith(start) for name in left_out)]
    assert removed == [], f"reasons for properties that exist or no longer differ: {removed}"
    ours_alone = {name for name in odradek if name not in kafkas and not name.startswith(OWN)}
    assert ours_alone == {*HIDDEN, *OF_AUTHORIZER}


def is_explained(name: str) -> bool:
    return name.endswith((PURGATORY, POLICY)) or any(name.startswith(start) for start in NOT_HERE)


def row(entry: Any, name: str) -> tuple[object, ...]:
    own = name in OWN_DEFAULTS or name in SETTINGS
    read_only = None if name in ONLY_AT_START else entry.is_read_only
    return entry.is_sensitive, read_only, None if own else (entry.value, entry.is_default)


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
