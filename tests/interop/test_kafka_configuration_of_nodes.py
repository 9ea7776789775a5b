"""A server.properties of Apache Kafka with SASL_SSL and PLAIN between nodes, run by Kafka and then by Odradek."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from odradek.local.processes import BrokerCommand, BrokerProcess, Lifeline
from odradek.local.startup import wait_ready
from odradek.local.stopping import stop_all
from tests.interop.drivers.base import Message, ProducerOptions
from tests.interop.drivers.confluent import ConfluentDriver
from tests.support.certificates import issue
from tests.support.command_line import TIMEOUT_S
from tests.support.hosts import START_SECONDS
from tests.support.kafka_broker import KafkaBroker

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.interop, pytest.mark.full, pytest.mark.timeout(600)]

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
USERS = 'user_admin="admin-secret" user_alice="alice-secret"'
TOPIC = "transactions"


def properties(folder: Path, between_brokers: tuple[str, str]) -> dict[str, str]:
    """Return the properties of security, with `between_brokers` as the one that names the listener for brokers."""
    authority = issue("authority", ca=True)
    node = issue("node", authority, hosts=["localhost", "127.0.0.1"])
    (folder / "authority.pem").write_text(authority.pem)
    (folder / "node.pem").write_text(node.key_pem() + node.chain_pem)
    name, value = between_brokers
    return {
        name: value,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,CONTROLLER:SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": (
            f'{MODULE} username="admin" password="admin-secret" {USERS};'
        ),
        "listener.name.controller.plain.sasl.jaas.config": (
            f'{MODULE} username="admin" password="admin-secret" user_admin="admin-secret";'
        ),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "node.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "authority.pem"),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
    }


def outcomes(folder: Path, port: int) -> dict[str, object]:
    """Return what clients with two users observe at the listener with SASL_SSL."""

    def settings(user: str, password: str | None = None) -> dict[str, Any]:
        return {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(folder / "authority.pem"),
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": password or f"{user}-secret",
        }

    admin = settings("admin")
    client = AdminClient(admin)
    client.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(TIMEOUT_S)
    driver = ConfluentDriver(admin)
    producer = driver.producer(admin["bootstrap.servers"], ProducerOptions(transactional_id="t"))
    producer.init()
    producer.begin()
    producer.send(TOPIC, b"committed")
    producer.commit()
    producer.close()
    read, deadline = list[Message](), time.monotonic() + TIMEOUT_S
    while not read and time.monotonic() < deadline:  # Kafka writes the markers after the response to a commit
        read = driver.consume(admin["bootstrap.servers"], TOPIC, [0], "read_committed")
    return {
        "read": [message.value for message in read],
        "alice": delivery_error(settings("alice")),
        "wrong password": delivery_error(settings("admin", "wrong")),
    }


def delivery_error(settings: dict[str, Any]) -> str:
    """Return the name of the error of one produced record."""
    producer = Producer({**settings, "message.timeout.ms": 3_000, "log_level": 0})
    errors: list[Any] = []
    producer.produce(TOPIC, b"v", on_delivery=lambda error, _: errors.append(error))
    producer.flush(TIMEOUT_S)
    return "none" if errors[0] is None else str(errors[0].name())


@pytest.mark.parametrize(
    "between_brokers",
    [("security.inter.broker.protocol", "SASL_SSL"), ("inter.broker.listener.name", "SASL_SSL")],
    ids=["by protocol", "by name"],
)
def test_file_of_kafka_with_sasl_between_nodes_has_the_same_effect(
    tmp_path: Path, between_brokers: tuple[str, str]
) -> None:
    overrides = properties(tmp_path, between_brokers)
    kafka = KafkaBroker(tmp_path / "kafka", overrides=overrides, listeners={"SASL_SSL": "SASL_SSL"})
    with kafka:
        expected = outcomes(tmp_path, kafka.ports["SASL_SSL"])
    text = (kafka.directory / "server.properties").read_text()
    file, log = tmp_path / "server.properties", tmp_path / "broker.log"
    file.write_text(text.replace(str(kafka.data_directory), str(tmp_path / "data")))
    lifeline = Lifeline()
    process = BrokerProcess(BrokerCommand(1, file, log, lifeline=lifeline.reader))
    try:
        wait_ready([process], timeout_s=START_SECONDS)
        assert outcomes(tmp_path, kafka.ports["SASL_SSL"]) == expected
        assert expected["read"] == [b"committed"]
        assert expected["alice"] == "TOPIC_AUTHORIZATION_FAILED"
        assert "authentication to a node failed" not in log.read_text()
    finally:
        stop_all([process])
        lifeline.close()
