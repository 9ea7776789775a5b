"""Roles of nodes: the listeners and voters that each of them needs, and the files of Kafka."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from odradek.broker.config.addresses import (
    controller_listener,
    has_other_nodes,
    has_other_voters,
    inter_broker_listener,
    parse_listeners,
    remote_listeners,
)
from odradek.broker.config.checks import CHECKS, CHECKS_OF_PROCESSES
from odradek.broker.config.property import ConfigError
from odradek.broker.config.roles import bootstrap_servers, finds_voters
from odradek.broker.config.sources import load
from odradek.broker.requests.listener import BROKER, CLIENT, CONTROLLER
from tests.support.configured_nodes import KAFKA_FILES, kafka_file

if TYPE_CHECKING:
    from odradek.broker.config.properties import Config

BROKER_ALONE = """process.roles=broker
node.id=4
log.dirs=/d
listeners=PLAINTEXT://localhost:9092
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=localhost:9093
"""
CONTROLLER_ALONE = """process.roles=controller
node.id=1
log.dirs=/d
listeners=CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=localhost:9093
"""


def of_process(text: str, *assignments: str) -> Config:
    checks = (*CHECKS, *CHECKS_OF_PROCESSES)
    return load(properties=text, environment={}, assignments=assignments, strict=True, checks=checks)


@pytest.mark.parametrize("name", sorted(path.name for path in KAFKA_FILES.iterdir()))
def test_files_of_kafka_have_no_fault_and_no_unknown_name(name: str) -> None:
    config = of_process(kafka_file(name, Path("/data"), client_port=9092, controller_port=9093))
    assert not config.unknown
    assert {"num.io.threads", "socket.receive.buffer.bytes"} <= config.without_effect.keys()
    assert finds_voters(config) is (name == "broker.properties")


def test_broker_alone_has_no_listener_for_controllers_and_knows_theirs() -> None:
    config = of_process(BROKER_ALONE)
    assert [listener.roles for listener in parse_listeners(config)] == [(CLIENT, BROKER)]
    assert controller_listener(config) == "CONTROLLER"
    assert [listener.name for listener in remote_listeners(config)] == ["CONTROLLER"]
    assert bootstrap_servers(config) == (("localhost", 9093),)
    assert has_other_voters(config)


def test_controller_alone_has_no_listener_for_clients_and_brokers() -> None:
    config = of_process(CONTROLLER_ALONE)
    assert [listener.roles for listener in parse_listeners(config)] == [(CONTROLLER,)]
    assert (inter_broker_listener(config), controller_listener(config)) == ("PLAINTEXT", "CONTROLLER")
    assert (has_other_voters(config), has_other_nodes(config)) == (False, True)


def test_value_of_a_listener_of_other_nodes_is_accepted() -> None:
    config = of_process(BROKER_ALONE, "listener.name.controller.ssl.client.auth=required")
    assert config.on_listener("CONTROLLER").ssl_client_auth == "required"


@pytest.mark.parametrize(
    ("text", "assignments", "message"),
    [
        (BROKER_ALONE, ["controller.quorum.voters=4@localhost:9"], "process.roles: broker alone, but"),
        (BROKER_ALONE, ["controller.quorum.bootstrap.servers="], "controller.quorum.bootstrap.servers: not set"),
        (BROKER_ALONE, ["controller.quorum.bootstrap.servers=h"], "controller.quorum.bootstrap.servers: 'h' is"),
        (BROKER_ALONE, ["controller.listener.names=PLAINTEXT"], "listeners: PLAINTEXT is for controllers, which this"),
        (BROKER_ALONE, ["cluster.secret.file=/s"], "controller.quorum.voters: not set; with"),
        (BROKER_ALONE, ["controller.quorum.bootstrap.servers=other:1"], "cluster.secret.file: not set"),
        (BROKER_ALONE, ["listeners=PLAINTEXT://:9092"], "cluster.secret.file: not set"),
        (CONTROLLER_ALONE, ["controller.quorum.voters=2@localhost:9"], "process.roles: controller, but"),
        (CONTROLLER_ALONE, ["controller.quorum.bootstrap.servers=a:1,b:1"], "controller.quorum.bootstrap.servers: na"),
        (CONTROLLER_ALONE, ["listeners=CONTROLLER://:1,A://:2"], "listeners: A is not in controller.listener.names"),
        (CONTROLLER_ALONE, ["process.roles=broker,controller"], "controller.listener.names: all listeners are"),
        (CONTROLLER_ALONE, ["process.roles=zookeeper"], "process.roles: 'zookeeper' is not one of broker, controller"),
    ],
)  # fmt: skip
def test_contradiction_between_roles_and_other_properties_is_a_fault(
    text: str, assignments: list[str], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        of_process(text, *assignments)
    assert str(caught.value).startswith(message)
