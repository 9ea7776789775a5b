"""A node whose clients use TLS."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog

from odradek.broker.config.properties import Config
from odradek.broker.node import CannotStartError, Node
from odradek.broker.process.clock import SystemClock
from odradek.broker.process.env import Env
from odradek.broker.tls import certificates
from odradek.cluster.authorizer import ANONYMOUS, Principal
from odradek.cluster.controller.messages.settings import ConfigOperation
from odradek.cluster.metadata.image import RESOURCE_BROKER, RESOURCE_TOPIC
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.describe_cluster import DescribeClusterRequest
from odradek.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from odradek.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.security_protocol import SecurityProtocol
from odradek.storage.disk.os_disk import OsDisk
from tests.support.broker_context import config
from tests.support.certificates import issue
from tests.support.raw_client import RawClient
from tests.support.tls_rig import AUTHORITY, NODE, client_side

ALICE = issue("alice", AUTHORITY)
OTHER_NAMES = ("ssl.allow.dn.changes=true", "ssl.allow.san.changes=true")


def node_config(folder: Path, *assignments: str) -> Config:
    """Return a configuration with the listener SSL for clients, and PLAINTEXT for brokers."""
    key, authority = folder / "node.pem", folder / "authority.pem"
    key.write_text(NODE.chain_pem + NODE.key_pem())
    authority.write_text(AUTHORITY.pem)
    return config(
        f"log.dirs={folder}/data",
        "listeners=SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "inter.broker.listener.name=PLAINTEXT",
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={key}",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={authority}",
        *assignments,
    )


@asynccontextmanager
async def running(folder: Path, *assignments: str) -> AsyncIterator[Node]:
    node = Node(node_config(folder, *assignments), Env(OsDisk(), SystemClock(), random.Random(7), "boot"))
    try:
        async with asyncio.timeout(60):
            await node.start()
            yield node
    finally:
        await node.stop()


def ports(node: Node) -> dict[str, int]:
    return {listener.name: listener.port for listener in node.listeners}


def principals(node: Node) -> dict[str, Principal]:
    """Return the principal of each connection by the name of its listener."""
    sessions = (connection._session for connection in node.acceptor.connections)
    return {session.listener.name: session.principal for session in sessions if session is not None}


@pytest.mark.parametrize(
    ("client", "rules", "principal"),
    [
        (ALICE, "DEFAULT", Principal("User", "CN=alice")),
        (ALICE, "RULE:CN=(.*?)/$1/U", Principal("User", "ALICE")),
        (None, "RULE:CN=(.*?)/$1/U", ANONYMOUS),
    ],
)
async def test_client_certificate_decides_the_principal(
    tmp_path: Path, client: object, rules: str, principal: Principal
) -> None:
    settings = ("ssl.client.auth=requested", f"ssl.principal.mapping.rules={rules}")
    async with running(tmp_path, *settings) as node:
        connection = await RawClient.connect(
            "127.0.0.1", ports(node)["SSL"], tls=client_side(ALICE if client else None)
        )
        await connection.call(MetadataRequest(topics=[]), 12)
        assert principals(node)["SSL"] == principal
        connection.close()


async def test_metadata_has_the_addresses_of_the_listener_of_the_connection(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        registered = node.metadata.image.brokers[node.config.node_id].endpoints
        assert {endpoint.name: endpoint.security_protocol for endpoint in registered} == {
            "SSL": SecurityProtocol.SSL,
            "PLAINTEXT": SecurityProtocol.PLAINTEXT,
        }
        for name, tls in (("SSL", client_side()), ("PLAINTEXT", None)):
            connection = await RawClient.connect("127.0.0.1", ports(node)[name], tls=tls)
            metadata = await connection.call(MetadataRequest(topics=[]), 12)
            cluster = await connection.call(DescribeClusterRequest(), 0)
            assert [broker.port for broker in (*metadata.brokers, *cluster.brokers)] == [ports(node)[name]] * 2
            connection.close()


async def test_certificate_that_no_rule_matches_is_refused(tmp_path: Path) -> None:
    settings = ("ssl.client.auth=required", "ssl.principal.mapping.rules=RULE:CN=bob/bob/")
    with structlog.testing.capture_logs() as logs:
        async with running(tmp_path, *settings) as node:
            connection = await RawClient.connect("127.0.0.1", ports(node)["SSL"], tls=client_side(ALICE))
            with pytest.raises(ConnectionError):
                await connection.call(MetadataRequest(topics=[]), 12)
            assert not principals(node)
            state = node.acceptor._state
            assert state is not None
            assert state.failed_handshakes.total() == 1
    reasons = [entry["reason"] for entry in logs if entry["event"].startswith("connection closed: client certificate")]
    assert reasons == ["no rule of ssl.principal.mapping.rules matches the subject 'CN=alice'"]


async def test_certificate_does_not_decide_the_principal_of_a_listener_with_sasl(tmp_path: Path) -> None:
    settings = (
        "listener.security.protocol.map=SSL:SASL_SSL,PLAINTEXT:PLAINTEXT",
        "sasl.enabled.mechanisms=SCRAM-SHA-256",
        "listener.name.ssl.ssl.client.auth=required",
        "ssl.principal.mapping.rules=RULE:CN=bob/bob/",
    )
    async with running(tmp_path, *settings) as node:
        connection = await RawClient.connect("127.0.0.1", ports(node)["SSL"], tls=client_side(ALICE))
        assert (await connection.call(ApiVersionsRequest("test", "1"), 4)).api_keys
        assert principals(node)["SSL"] == ANONYMOUS
        connection.close()


async def test_limits_of_connections_apply_before_the_handshake(tmp_path: Path) -> None:
    async with running(tmp_path, "max.connections.per.ip=1") as node:
        connection = await RawClient.connect("127.0.0.1", ports(node)["SSL"], tls=client_side())
        with pytest.raises(OSError):
            await RawClient.connect("127.0.0.1", ports(node)["SSL"], tls=client_side())
        state = node.acceptor._state
        assert state is not None
        assert state.failed_handshakes.total() == 0
        assert await connection.call(MetadataRequest(topics=[]), 12)
        connection.close()


async def test_failed_handshakes_are_logged_with_their_reason_and_counted(tmp_path: Path) -> None:
    with structlog.testing.capture_logs() as logs:
        async with running(tmp_path, "ssl.client.auth=required") as node:
            connection = await RawClient.connect("127.0.0.1", ports(node)["SSL"], tls=client_side())
            with pytest.raises(ConnectionError):
                await connection.call(MetadataRequest(topics=[]), 12)
            state = node.acceptor._state
            assert state is not None
            assert state.failed_handshakes.total() == 1
    failed = [entry for entry in logs if entry["event"] == "TLS handshake failed"]
    assert [(entry["reason"], entry["listener"]) for entry in failed] == [("peer did not return a certificate", "SSL")]


async def test_missing_file_fails_the_start_with_property_problem_and_listener(tmp_path: Path) -> None:
    with pytest.raises(CannotStartError, match=r"^ssl\.keystore\.location: /absent cannot be read .*\(listener SSL\)$"):
        async with running(tmp_path, "ssl.keystore.location=/absent"):
            pass


async def peer_name(port: int, **arguments: Any) -> str:
    """Return the host name in the certificate of the node, from a new connection."""
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client_side(), **arguments)
    certificate = writer.get_extra_info("peercert")
    writer.close()
    return str(certificate["subject"][0][0][1])


async def logged(logs: list[Any], event: str) -> Any:
    async with asyncio.timeout(60):
        while (found := next((entry for entry in logs if entry["event"] == event), None)) is None:
            await asyncio.sleep(0.01)
    return found


async def test_changed_file_is_used_for_new_connections_and_keeps_existing_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificates, "CHECK_INTERVAL_S", 0.05)
    with structlog.testing.capture_logs() as logs:
        async with running(tmp_path, *OTHER_NAMES) as node:
            port = ports(node)["SSL"]
            existing = await RawClient.connect("127.0.0.1", port, tls=client_side())
            assert await peer_name(port) == "node"
            (tmp_path / "node.pem").write_text("half written")
            refused = await logged(logs, "changed TLS settings refused")
            assert "node.pem has no certificate" in refused["reason"]
            assert await peer_name(port) == "node"
            renewed = issue("renewed", AUTHORITY, hosts=["127.0.0.1"])
            (tmp_path / "node.pem").write_text(renewed.chain_pem + renewed.key_pem())
            await logged(logs, "TLS settings replaced")
            assert await peer_name(port) == "renewed"
            assert await existing.call(MetadataRequest(topics=[]), 12)
            existing.close()
    assert len([entry for entry in logs if entry["event"] == "changed TLS settings refused"]) == 1


async def alter(node: Node, name: str, *changes: tuple[str, ConfigOperation, str | None]) -> tuple[ErrorCode, str]:
    """Change the configuration of broker `name`, and return the result."""
    connection = await RawClient.connect("127.0.0.1", ports(node)["PLAINTEXT"])
    configs = [AlterableConfig(key, operation, value) for key, operation, value in changes]
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(RESOURCE_BROKER, name, configs)])
    response = (await connection.call(request, 1)).responses[0]
    connection.close()
    return ErrorCode(response.error_code), response.error_message or ""


SET, DELETE = ConfigOperation.SET, ConfigOperation.DELETE
LOCATION = "listener.name.ssl.ssl.keystore.location"


async def test_dynamic_configuration_replaces_the_certificate_and_its_removal_restores_it(tmp_path: Path) -> None:
    renewed = issue("renewed", AUTHORITY, hosts=["127.0.0.1"])
    path = tmp_path / "renewed.pem"
    path.write_text(renewed.chain_pem + renewed.key_pem("secret"))
    password = "listener.name.ssl.ssl.key.password"
    with structlog.testing.capture_logs() as logs:
        async with running(tmp_path, *OTHER_NAMES) as node:
            port, own = ports(node)["SSL"], str(node.config.node_id)
            error, _ = await alter(node, own, (LOCATION, SET, str(path)), (password, SET, "secret"))
            assert error is ErrorCode.NONE
            await logged(logs, "TLS settings replaced")
            assert await peer_name(port) == "renewed"
            connection = await RawClient.connect("127.0.0.1", port, tls=client_side())
            resource = DescribeConfigsResource(RESOURCE_BROKER, own, [LOCATION, password])
            described = await connection.call(DescribeConfigsRequest([resource], include_synonyms=True), 4)
            assert [(each.name, each.value, each.is_sensitive) for each in described.results[0].configs] == [
                (LOCATION, str(path), False),
                (password, None, True),
            ]
            connection.close()
            logs.clear()
            assert (await alter(node, own, (LOCATION, DELETE, None), (password, DELETE, None)))[0] is ErrorCode.NONE
            await logged(logs, "TLS settings replaced")
            assert await peer_name(port) == "node"


async def test_invalid_dynamic_configuration_is_refused_before_it_is_stored(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        own = str(node.config.node_id)
        error, message = await alter(node, own, (LOCATION, SET, "/absent"))
        assert error is ErrorCode.INVALID_REQUEST
        assert message.startswith("Invalid config value for this broker: ssl.keystore.location: /absent cannot be read")
        assert not node.metadata.image.config(RESOURCE_BROKER, own)
        assert await peer_name(ports(node)["SSL"]) == "node"


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2)])
async def test_other_resources_of_a_request_with_an_invalid_certificate_are_changed(
    tmp_path: Path, order: tuple[int, ...]
) -> None:
    async with running(tmp_path) as node:
        own = str(node.config.node_id)
        resources = [
            AlterConfigsResource(RESOURCE_BROKER, own, [AlterableConfig(LOCATION, SET, "/absent")]),
            AlterConfigsResource(RESOURCE_BROKER, "", [AlterableConfig("log.retention.ms", SET, "777")]),
            AlterConfigsResource(RESOURCE_TOPIC, "absent", [AlterableConfig("retention.ms", SET, "777")]),
        ]
        errors = [ErrorCode.INVALID_REQUEST, ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        connection = await RawClient.connect("127.0.0.1", ports(node)["PLAINTEXT"])
        request = IncrementalAlterConfigsRequest([resources[place] for place in order])
        response = await connection.call(request, 1)
        connection.close()
        assert [(each.resource_name, each.error_code) for each in response.responses] == [
            (resources[place].resource_name, errors[place]) for place in order
        ]
        image = node.metadata.image
        assert image.config(RESOURCE_BROKER, "")["log.retention.ms"] == "777"
        assert not image.config(RESOURCE_BROKER, own)


REFUSED = (
    ("", LOCATION, ErrorCode.INVALID_REQUEST, "at default cluster level, broker id must be specified"),
    ("1", "ssl.keystore.location", ErrorCode.INVALID_REQUEST, "dynamically updated only per-listener"),
    ("1", "listener.name.ssl.num.partitions", ErrorCode.INVALID_REQUEST, "Not a number of type INT"),
    ("1", "listener.name.ssl.ssl.client.auth", ErrorCode.INVALID_REQUEST, "is not one of required, requested"),
    ("1", "listener.name.ssl.ssl.keystore.type", ErrorCode.INVALID_REQUEST, "is not one of JKS, PKCS12, PEM"),
)
"""Broker, property, and the error and a part of the message with which the value x is refused."""


async def test_other_dynamic_configurations_of_listeners_are_refused(tmp_path: Path) -> None:
    async with running(tmp_path, "node.id=1") as node:
        for broker, name, error, message in REFUSED:
            found, text = await alter(node, broker, (name, SET, "x"))
            assert found is error
            assert message in text


async def test_client_authentication_of_a_running_broker_can_be_changed(tmp_path: Path) -> None:
    with structlog.testing.capture_logs() as logs:
        async with running(tmp_path) as node:
            setting = "listener.name.ssl.ssl.client.auth"
            assert (await alter(node, str(node.config.node_id), (setting, SET, "required")))[0] is ErrorCode.NONE
            await logged(logs, "TLS settings replaced")
            connection = await RawClient.connect("127.0.0.1", ports(node)["SSL"], tls=client_side())
            with pytest.raises(ConnectionError):
                await connection.call(MetadataRequest(topics=[]), 12)


async def test_end_of_the_validity_is_logged_once_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificates, "CHECK_INTERVAL_S", 0.01)
    with structlog.testing.capture_logs() as logs:
        async with running(tmp_path) as node:  # certificates of tests are valid for two days
            assert await peer_name(ports(node)["SSL"]) == "node"
            replaced = issue("node", AUTHORITY, hosts=["localhost", "127.0.0.1"])
            (tmp_path / "node.pem").write_text(replaced.chain_pem + replaced.key_pem())
            await logged(logs, "TLS settings replaced")
    expiry = [entry for entry in logs if entry["event"] == "certificate expires"]
    assert [(entry["listener"], entry["at"]) for entry in expiry] == [
        ("SSL", NODE.certificate.not_valid_after_utc.isoformat(timespec="minutes"))
    ]
