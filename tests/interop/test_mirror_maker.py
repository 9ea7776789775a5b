"""MirrorMaker copies records and group offsets between Odradek and Apache Kafka, with the ACLs that it needs."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.cimpl import NewTopic

from odradek.pipeline.cluster.owned_process import OwnedProcess
from tests.support.jars import PREVIOUS
from tests.support.kafka_broker import KafkaBroker
from tests.support.sasl_ssl import LISTENER, SaslSsl
from tests.support.single_broker import SingleBroker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = [pytest.mark.interop, pytest.mark.full, pytest.mark.timeout(600)]

MIRROR, ADMIN = "mirror", "admin"
TOPIC, GROUP = "orders", "readers"
FIRST, SECOND = [b"%d" % number for number in range(100)], [b"last"]
TIMEOUT_S = 120
REQUEST_TIMEOUT_S = 30
POLL_S = 0.5
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:ANONYMOUS;User:{ADMIN}",
}
LITERAL, PREFIXED = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
Acl = tuple[ResourceType, str, ResourcePatternType, tuple[AclOperation, ...]]
SOURCE_ACLS: tuple[Acl, ...] = (
    (ResourceType.TOPIC, TOPIC, LITERAL, (AclOperation.READ, AclOperation.DESCRIBE_CONFIGS)),
    (ResourceType.GROUP, GROUP, LITERAL, (AclOperation.DESCRIBE,)),
)
TOPIC_RIGHTS = (AclOperation.CREATE, AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE_CONFIGS)
COPIES: Acl = (ResourceType.TOPIC, "source.", PREFIXED, (*TOPIC_RIGHTS, AclOperation.ALTER, AclOperation.ALTER_CONFIGS))
TARGET_ACLS: tuple[Acl, ...] = (
    COPIES,
    (ResourceType.TOPIC, "mm2-", PREFIXED, TOPIC_RIGHTS),
    (ResourceType.TOPIC, "heartbeats", LITERAL, TOPIC_RIGHTS),
    (ResourceType.GROUP, "source-mm2", LITERAL, (AclOperation.READ,)),
    (ResourceType.GROUP, GROUP, LITERAL, (AclOperation.READ,)),
    (ResourceType.TRANSACTIONAL_ID, "connect-cluster-source-mm2", LITERAL, (AclOperation.WRITE, AclOperation.DESCRIBE)),
    (ResourceType.TRANSACTIONAL_ID, "source-mm2", PREFIXED, (AclOperation.WRITE, AclOperation.DESCRIBE)),
)


class Cluster:
    """One secured broker of Apache Kafka or of Odradek, and its administrator."""

    def __init__(self, folder: Path, stack: ExitStack, *, odradek: bool) -> None:
        self.security = SaslSsl(folder, [MIRROR, ADMIN])
        settings = {**SETTINGS, **self.security.of_broker}
        if odradek:
            self.odradek: SingleBroker | None = stack.enter_context(
                SingleBroker(folder / "odradek", {LISTENER: "SASL_SSL"}, settings)
            )
            self.address = self.odradek.addresses[LISTENER]
        else:
            self.odradek = None
            kafka = stack.enter_context(KafkaBroker(listeners={LISTENER: "SASL_SSL"}, overrides=settings))
            self.address = f"127.0.0.1:{kafka.ports[LISTENER]}"
        self.client: dict[str, Any] = {
            "bootstrap.servers": self.address,
            "log_level": 0,
            **self.security.librdkafka(ADMIN),
        }
        self.admin = AdminClient(self.client)

    def allow(self, *acls: Acl) -> None:
        rows = [AclBinding(*columns) for acl in acls for columns in columns_of(acl)]
        for future in self.admin.create_acls(rows).values():
            future.result(REQUEST_TIMEOUT_S)

    def forbid(self, acl: Acl) -> None:
        for future in self.admin.delete_acls([AclBindingFilter(*columns) for columns in columns_of(acl)]).values():
            assert future.result(REQUEST_TIMEOUT_S)

    def produce(self, values: list[bytes]) -> None:
        producer = Producer(self.client)
        for value in values:
            producer.produce(TOPIC, value, partition=0)
        assert producer.flush(REQUEST_TIMEOUT_S) == 0

    def denied(self) -> list[str]:
        """Return the audit events of MirrorMaker's denied requests. A broker of Apache Kafka has none here."""
        lines = [] if self.odradek is None else self.odradek.log().splitlines()
        return [line for line in lines if "odradek.audit" in line and f"User:{MIRROR}" in line and "denied" in line]

    def read_and_commit(self, count: int) -> None:
        consumer = Consumer({**self.client, "group.id": GROUP, "auto.offset.reset": "earliest"})
        consumer.subscribe([TOPIC])
        try:
            read = consumer.consume(count, TIMEOUT_S)
            assert len(read) == count
            consumer.commit(message=read[-1], asynchronous=False)
        finally:
            consumer.close()

    def committed(self, topic: str) -> int:
        """Return the committed offset of the group, or a negative number."""
        requested = ConsumerGroupTopicPartitions(GROUP, [TopicPartition(topic, 0)])
        [future] = self.admin.list_consumer_group_offsets([requested]).values()
        offset: int = future.result(REQUEST_TIMEOUT_S).topic_partitions[0].offset
        return offset


def columns_of(acl: Acl) -> list[tuple[Any, ...]]:
    kind, name, pattern, operations = acl
    return [(kind, name, pattern, f"User:{MIRROR}", "*", each, AclPermissionType.ALLOW) for each in operations]


@pytest.fixture(params=["Odradek to Kafka", "Kafka to Odradek"])
def clusters(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Cluster, Cluster]]:
    with ExitStack() as stack:
        odradek = Cluster(tmp_path / "one", stack, odradek=True)
        kafka = Cluster(tmp_path / "other", stack, odradek=False)
        source, target = (odradek, kafka) if request.param.startswith("Odradek") else (kafka, odradek)
        source.admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(REQUEST_TIMEOUT_S)
        source.allow(*SOURCE_ACLS)
        target.allow(*TARGET_ACLS)
        yield source, target


def mirror_maker(source: Cluster, target: Cluster, folder: Path) -> OwnedProcess:
    rows = {
        "clusters": "source,target",
        "source->target.enabled": "true",
        "target->source.enabled": "false",
        "target->source.emit.heartbeats.enabled": "false",
        "topics": TOPIC,
        "groups": GROUP,
        "replication.factor": "1",
        "offset-syncs.topic.location": "target",
        "sync.topic.acls.enabled": "false",
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": "1",
        "emit.checkpoints.interval.seconds": "1",
        "target.exactly.once.source.support": "enabled",
        "dedicated.mode.enable.internal.rest": "false",
    }
    rows |= {f"{kind}.topic.replication.factor": "1" for kind in ("checkpoints", "heartbeats", "offset-syncs")}
    rows["status.storage.partitions"] = "1"
    rows |= {f"{kind}.storage.replication.factor": "1" for kind in ("config", "offset", "status")}
    for name, cluster in (("source", source), ("target", target)):
        rows |= {f"{name}.{key}": value for key, value in cluster.security.java(MIRROR).items()}
        rows[f"{name}.bootstrap.servers"] = cluster.address
    file = folder / "mm2.properties"
    file.write_text("".join(f"{key} = {value}\n" for key, value in rows.items()))
    jvm = ("java", "-Xmx512M", "-cp", f"{PREVIOUS}/*")
    return OwnedProcess(
        [*jvm, "org.apache.kafka.connect.mirror.MirrorMaker", str(file)], console=folder / "mm2.log", quiet=True
    )


def until(state: Callable[[], Any], expected: Any) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while (found := state()) != expected:
        assert time.monotonic() < deadline, (found, expected)
        time.sleep(POLL_S)


class Reader:
    """Reads all records of partition 0 of a topic, in committed transactions only."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._consumer = Consumer({**cluster.client, "group.id": "copies", "isolation.level": "read_committed"})
        self._consumer.assign([TopicPartition(topic, 0, 0)])
        self.values: list[bytes] = []

    def read(self) -> list[bytes]:
        """Return the values of all records so far."""
        found = self._consumer.consume(len(FIRST), POLL_S)
        self.values += [message.value() or b"" for message in found if not message.error()]
        return self.values

    def close(self) -> None:
        self._consumer.close()


def test_mirror_maker_copies_with_least_privilege_and_stops_without_it(
    clusters: tuple[Cluster, Cluster], tmp_path: Path
) -> None:
    source, target = clusters
    source.produce(FIRST)
    source.read_and_commit(40)
    with ExitStack() as stack:
        process = mirror_maker(source, target, tmp_path)
        stack.callback(process.stop)
        copies = Reader(target, f"source.{TOPIC}")
        stack.callback(copies.close)
        until(copies.read, FIRST)
        until(lambda: target.committed(f"source.{TOPIC}") > 0, True)
        assert [line for cluster in clusters for line in cluster.denied()] == []
        target.forbid(COPIES)
        source.produce(SECOND)
        states = Reader(target, "mm2-status.source.internal")
        stack.callback(states.close)
        refused = f"TopicAuthorizationException: Not authorized to access topics: [source.{TOPIC}]"
        until(lambda: any(refused in state.decode() for state in states.read()), True)
        assert copies.read() == FIRST
        assert target.odradek is None or target.denied()
