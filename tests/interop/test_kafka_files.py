"""Nodes with the properties of Kafka's own files: a broker and controller in one process, and in two."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import TopicPartition

from tests.interop.drivers.base import TIMEOUT_S
from tests.support.configured_nodes import ConfiguredNodes, kafka_file
from tests.support.jars import PREVIOUS
from tests.support.kafka_tools import TOOLS
from tests.support.ports import free_port
from tests.support.tool_jvm import run_tool

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[ConfiguredNodes]:
    with ConfiguredNodes(tmp_path) as started:
        yield started


def commit_and_read(bootstrap: str, count: int = 2) -> list[bytes]:
    """Commit a transaction with two records, and read `count` records from the start of the partition."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "files"})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    for value in (b"first", b"second"):
        producer.produce("files", value)
    producer.commit_transaction(TIMEOUT_S)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "files", "isolation.level": "read_committed"})
    consumer.assign([TopicPartition("files", 0, 0)])
    values: list[bytes] = []
    while len(values) < count:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None, "no record within the time limit"
        assert message.error() is None
        values.append(message.value() or b"")
    consumer.close()
    return values


def ports_of(bootstrap: str) -> list[int]:
    """Return the ports of the brokers that a client finds."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    described = admin.describe_cluster().result(TIMEOUT_S)
    brokers = admin.list_topics(timeout=TIMEOUT_S).brokers
    assert [node.port for node in described.nodes] == [broker.port for broker in brokers.values()]
    return [node.port for node in described.nodes]


def endpoints_by_kafkas_tool(controller_port: int) -> list[list[str]]:
    """Return the rows of kafka-cluster list-endpoints --bootstrap-controller."""
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{PREVIOUS}/*", TOOLS["kafka-cluster"], "list-endpoints"]
    done = subprocess.run(
        [*command, "--bootstrap-controller", f"localhost:{controller_port}"],
        capture_output=True, text=True, check=True, timeout=TIMEOUT_S,
    )  # fmt: skip
    return [line.split() for line in done.stdout.splitlines()[1:]]


def test_server_properties_of_kafka_start_a_broker_and_controller(nodes: ConfiguredNodes, tmp_path: Path) -> None:
    client_port, controller_port = free_port(), free_port()
    text = kafka_file("server.properties", tmp_path / "data", client_port=client_port, controller_port=controller_port)
    assert nodes.start("server", text) == f"localhost:{client_port}"
    assert commit_and_read(f"localhost:{client_port}") == [b"first", b"second"]
    assert ports_of(f"localhost:{client_port}") == [client_port]
    warnings = [line for line in nodes.log("server").read_text().splitlines() if "properties without effect" in line]
    assert len(warnings) == 1
    assert "num.network.threads, num.io.threads, socket.send.buffer.bytes" in warnings[0]
    assert nodes.stop("server") == 0


@pytest.mark.full
def test_broker_and_controller_properties_of_kafka_start_two_nodes(nodes: ConfiguredNodes, tmp_path: Path) -> None:
    client_port, controller_port = free_port(), free_port()
    ports = {"client_port": client_port, "controller_port": controller_port}
    nodes.launch("broker", kafka_file("broker.properties", tmp_path / "broker", **ports))
    nodes.launch("controller", kafka_file("controller.properties", tmp_path / "controller", **ports))
    assert nodes.wait_ready(["broker", "controller"]) == {
        "broker": f"localhost:{client_port}",
        "controller": f"localhost:{controller_port}",
    }
    assert commit_and_read(f"localhost:{client_port}") == [b"first", b"second"]
    assert ports_of(f"localhost:{client_port}") == [client_port]
    assert endpoints_by_kafkas_tool(controller_port) == [["1", "localhost", str(controller_port), "null", "controller"]]
    nodes.kill("controller")
    nodes.restart("controller")
    nodes.kill("broker")
    nodes.restart("broker")
    assert commit_and_read(f"localhost:{client_port}", 4) == [b"first", b"second"] * 2
    assert [nodes.stop(name) for name in ("broker", "controller")] == [0, 0]


@pytest.mark.full
@pytest.mark.timeout(300)
def test_tools_of_kafka_read_and_change_the_cluster_by_a_controller(nodes: ConfiguredNodes, tmp_path: Path) -> None:
    ports = {"client_port": free_port(), "controller_port": free_port()}
    nodes.launch("broker", kafka_file("broker.properties", tmp_path / "broker", **ports))
    nodes.launch("controller", kafka_file("controller.properties", tmp_path / "controller", **ports))
    nodes.wait_ready(["broker", "controller"])
    controller = ("--bootstrap-controller", f"localhost:{ports['controller_port']}")
    node = ("--entity-type", "brokers", "--entity-name", "1")
    for tool, arguments, printed in (
        ("kafka-features", (*controller, "describe"), "Feature: metadata.version"),
        (
            "kafka-configs",
            (*controller, *node, "--alter", "--add-config", "log.cleaner.threads=2"),
            "Completed updating",
        ),
        ("kafka-configs", (*controller, *node, "--describe"), "log.cleaner.threads=2 "),
        ("kafka-metadata-quorum", (*controller, "describe", "--status"), "LeaderId:"),
    ):
        done = run_tool(tool, *arguments)
        assert printed in done.stdout, (tool, done.stdout, done.stderr)
