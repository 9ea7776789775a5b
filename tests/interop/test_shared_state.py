"""A test of the plugin finds the state of the cluster unchanged, whatever the test before it has changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from odradek import client
from odradek.client import Acl, AclOperation, ConfigChange, ConfigKind, ConfigOperation, PatternType, Permission
from odradek.testing.kafka_cluster import KafkaCluster
from odradek.testing.shared_state import SharedState, read

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.interop, pytest.mark.full]

NEW_ACL = Acl(client.ResourceType.TOPIC, "x", PatternType.LITERAL, "User:bob", "*", AclOperation.READ, Permission.ALLOW)
MECHANISM = "SCRAM-SHA-256"


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with KafkaCluster(2, security="sasl_ssl") as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def is_restored(cluster: KafkaCluster) -> Iterator[None]:
    """Check that a test has changed the state, and that it is restored."""
    before = state_of(cluster)
    yield
    cluster.reset()
    assert state_of(cluster) == before


def state_of(cluster: KafkaCluster) -> SharedState:
    return cluster.run(lambda connected: read(connected, cluster.node_ids))


async def set_config(cluster: client.Cluster, kind: ConfigKind, resource: str, name: str, value: str) -> None:
    await client.alter_configs(cluster, kind, resource, [ConfigChange(ConfigOperation.SET, name, value)])


def test_acls(cluster: KafkaCluster) -> None:
    cluster.run(lambda connected: client.create_acls(connected, [NEW_ACL]))
    cluster.run(lambda connected: client.delete_acls(connected, client.AclFilter(principal="User:alice")))
    assert state_of(cluster).acls == {NEW_ACL}


def test_users(cluster: KafkaCluster) -> None:
    cluster.run(lambda connected: client.set_user(connected, "bob", "secret", MECHANISM))
    cluster.run(lambda connected: client.remove_user(connected, "alice"))
    assert set(state_of(cluster).users) == {("admin", MECHANISM), ("bob", MECHANISM)}


def test_removed_user_logs_in_again(cluster: KafkaCluster) -> None:
    cluster.run(lambda connected: client.remove_user(connected, "alice"))
    cluster.reset()
    cluster.create_topic("alice-orders")
    producer = Producer(cluster.client_config("confluent-kafka", user="alice"))
    producer.produce("alice-orders", b"42")
    assert producer.flush(30) == 0


def test_quotas(cluster: KafkaCluster) -> None:
    cluster.run(lambda connected: client.alter_quotas(connected, {"client-id": None}, {"producer_byte_rate": 1.0}))
    assert state_of(cluster).quotas == {(("client-id", None),): {"producer_byte_rate": 1.0}}


def test_configurations_of_brokers_and_groups(cluster: KafkaCluster) -> None:
    async def change(connected: client.Cluster) -> None:
        await set_config(connected, ConfigKind.BROKER, "", "message.max.bytes", "2000000")
        await set_config(connected, ConfigKind.BROKER, "", "a.custom.property", "7")
        await set_config(connected, ConfigKind.BROKER, "2", "log.cleaner.io.buffer.load.factor", "0.7")
        await set_config(connected, ConfigKind.GROUP, "billing", "consumer.session.timeout.ms", "50000")

    cluster.run(change)
    configs = state_of(cluster).configs
    assert configs[ConfigKind.BROKER, "2"] == {"log.cleaner.io.buffer.load.factor": "0.7"}
    assert configs[ConfigKind.GROUP, "billing"] == {"consumer.session.timeout.ms": "50000"}
    assert {"message.max.bytes", "a.custom.property"} <= set(configs[ConfigKind.BROKER, ""])


def test_delegation_tokens(cluster: KafkaCluster) -> None:
    cluster.run(client.create_token)
    assert len(state_of(cluster).tokens) == 1


def test_transactional_ids_and_their_open_transactions(cluster: KafkaCluster) -> None:
    cluster.create_topic("orders")
    zombie = Producer(cluster.client_config("confluent-kafka") | {"transactional.id": "shop", "log_level": 0})
    zombie.init_transactions(30)
    zombie.begin_transaction()
    zombie.produce("orders", b"open")
    zombie.flush(30)
    cluster.reset()
    assert cluster.run(client.list_transactions).rows == []
    cluster.create_topic("orders")
    with pytest.raises(KafkaException) as raised:  # the next test may use the same id
        zombie.commit_transaction(30)
    assert raised.value.args[0].code() in {
        KafkaError._FENCED,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
        KafkaError.INVALID_PRODUCER_EPOCH,
    }
    assert cluster.values("orders") == []


def test_fault_rules_and_configurations_of_topics(cluster: KafkaCluster) -> None:
    cluster.create_topic("orders", configs={"retention.ms": "1000"})
    rule = cluster.faults.on("Metadata").error("UNKNOWN_SERVER_ERROR")
    cluster.reset()
    cluster.create_topic("orders")
    entries = cluster.run(lambda connected: client.describe_configs(connected, ConfigKind.TOPIC, "orders"))
    assert "retention.ms" not in {entry.name for entry in entries}
    assert rule.injected == 0
