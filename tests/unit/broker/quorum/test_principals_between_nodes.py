"""Nodes that authenticate to each other by their own principals: SASL credentials or client certificates."""

import asyncio
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import structlog

from odradek.broker.config.bootstrap_scram import parse_bootstrap_scram
from odradek.cluster.authorizer import Principal
from odradek.protocol.codec import encode, request_header_version
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.envelope import EnvelopeRequest
from odradek.protocol.messages.headers import RequestHeader
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.vote import VoteRequest
from odradek.protocol.sasl.cluster_secret import ClusterSecret, parse_secret
from odradek.protocol.sasl.login import Login
from odradek.protocol.sasl.mechanism import AuthenticationFailed
from odradek.protocol.sasl.plain import PlainClient
from tests.support.certificates import issue
from tests.support.node_cluster import NodeCluster
from tests.support.ports import free_ports
from tests.support.raw_client import ConnectionLost, RawClient
from tests.support.tls_rig import AUTHORITY, NODE, client_side
from tests.unit.broker.quorum.test_authentication import errors_in, requests_of_node_2, vote

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
USERS = ("admin", "node-1", "node-2", "node-3", "alice")
MAPPING = ";".join(f"{node_id}=User:node-{node_id}" for node_id in (1, 2, 3))
WAIT_S = 30


def secret() -> ClusterSecret:
    return parse_secret(b"x" * 32, "secret", random.Random(5).getrandbits)


def jaas(user: str) -> str:
    users = " ".join(f'user_{name}="of {name}"' for name in USERS)
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return f'{module} required username="{user}" password="of {user}" {users};'


async def by_plain(folder: Path, **settings: str) -> NodeCluster:
    """Start one node with one listener, for clients and nodes that log in by PLAIN."""
    nodes = NodeCluster(folder, 1)
    nodes.settings |= {
        "listener.security.protocol.map": "INTERNAL:SASL_PLAINTEXT",
        "inter.broker.listener.name": "INTERNAL",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "odradek.node.principals": MAPPING,
        "listener.name.internal.plain.sasl.jaas.config": jaas("node-1"),
        "connection.failed.authentication.delay.ms": "0",
    } | {name.replace("_", "."): value for name, value in settings.items()}
    listeners = f"INTERNAL://127.0.0.1:{nodes.port(1)}"
    await nodes.start_made({1: nodes.make(1, secret=secret(), listeners=listeners)}, ())
    return nodes


async def client_of(nodes: NodeCluster, user: str) -> RawClient:
    client = await nodes.client(1)
    await log_in(client, Login(PlainClient(user, f"of {user}")))
    return client


async def log_in(client: RawClient, login: Login) -> None:
    response: Any = await client.call(login.request, 1)
    while (request := login.received(response)) is not None:
        response = await client.call(request, 2)


async def test_principals_of_one_listener_are_nodes_or_clients(tmp_path: Path) -> None:
    nodes = await by_plain(tmp_path)
    try:
        await requests_must_name_the_node_of_their_principal(nodes)
        await client_has_no_request_of_nodes(nodes)
        with pytest.raises(AuthenticationFailed):
            await log_in(await nodes.client(1), secret().login(2, 1))
    finally:
        await nodes.stop()


async def requests_must_name_the_node_of_their_principal(nodes: NodeCluster) -> None:
    for user in ("node-2", "node-3"):
        client = await client_of(nodes, user)
        for request, version in requests_of_node_2():
            response = await client.call(request, version)
            refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED in errors_in(response)
            assert refused is (user == "node-3"), (request, response)
        client.close()


async def client_has_no_request_of_nodes(nodes: NodeCluster) -> None:
    alice, node = await client_of(nodes, "alice"), await client_of(nodes, "node-2")
    announced = [
        {row.api_key for row in (await client.call(ApiVersionsRequest("test", "1"), 4)).api_keys}
        for client in (alice, node)
    ]
    assert announced[0] == announced[1]
    assert VoteRequest.API_KEY not in announced[0]
    assert (await alice.call(MetadataRequest(topics=[]), 12)).brokers
    with pytest.raises(ConnectionLost):
        await alice.call(vote(), 2)
    assert (await node.call(vote(), 2)).topics[0].partitions
    node.close()


async def test_requests_of_a_node_need_cluster_action_of_its_principal(tmp_path: Path) -> None:
    settings = {"authorizer_class_name": AUTHORIZER, "super_users": "User:node-1;User:node-3"}
    nodes = await by_plain(tmp_path, **settings)
    header = encode(RequestHeader(3, 12, 0, "c"), request_header_version(3, 12))
    envelope = EnvelopeRequest(header + encode(MetadataRequest(topics=[]), 12), b"User:alice", b"\x7f\0\0\1")
    try:
        for user, expected in (
            ("node-2", ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
            ("node-3", ErrorCode.INVALID_REQUEST),  # the controller does not serve the API in the envelope
        ):
            client = await client_of(nodes, user)
            assert (await client.call(envelope, 0)).error_code == expected
            if user == "node-2":
                for request, version in requests_of_node_2():
                    assert ErrorCode.CLUSTER_AUTHORIZATION_FAILED in errors_in(await client.call(request, version))
            client.close()
    finally:
        await nodes.stop()


def with_tls(nodes: NodeCluster) -> None:
    nodes.tls = client_side(issue("client", AUTHORITY))
    (nodes.directory / "authority.pem").write_text(AUTHORITY.pem)
    nodes.settings |= {
        "ssl.keystore.type": "PEM",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(nodes.directory / "authority.pem"),
    }


def keystore(nodes: NodeCluster, node_id: int, name: str | None = None) -> str:
    """Write the certificate of a node, with its name as the subject, and return its path."""
    issued = NODE if name is None else issue(name, AUTHORITY, hosts=["127.0.0.1"])
    path = nodes.directory / f"node-{node_id}.pem"
    path.write_text(issued.chain_pem + issued.key_pem())
    return str(path)


def principals_of_nodes(nodes: NodeCluster, listener: str) -> set[Principal]:
    sessions = [connection._session for connection in nodes.nodes[1].acceptor.connections]
    return {
        one.principal for one in sessions if one is not None and one.listener.name == listener and one.authenticated
    }


async def produce(nodes: NodeCluster) -> None:
    await nodes.create("t", [1, 2, 3])
    assert await nodes.produce("t", b"v") is ErrorCode.NONE
    assert await nodes.values("t") == [b"v"]


@pytest.mark.full
async def test_nodes_form_a_cluster_by_their_certificates(tmp_path: Path) -> None:
    nodes = NodeCluster(tmp_path, 3)
    with_tls(nodes)
    nodes.settings |= {
        "inter.broker.listener.name": "SSL",
        "ssl.client.auth": "required",
        "odradek.inter.broker.authentication": "principal",
        "odradek.node.principals": MAPPING,
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/",
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:node-1;User:node-2;User:node-3;User:client",
    }
    made = {
        node_id: nodes.make(
            node_id,
            secret=secret(),
            listeners=f"SSL://127.0.0.1:{nodes.port(node_id)}",
            ssl_keystore_location=keystore(nodes, node_id, f"node-{node_id}"),
        )
        for node_id in nodes.ids
    }
    with structlog.testing.capture_logs() as logs:
        try:
            await nodes.start_made(made, ())
            await produce(nodes)
            expected = {Principal("User", f"node-{node_id}") for node_id in (2, 3)}
            assert principals_of_nodes(nodes, "SSL") - {Principal("User", "node-1")} == expected
            client = await nodes.client(1)
            with pytest.raises(ConnectionLost):  # a super user, but no node
                await client.call(vote(), 2)
            with pytest.raises(AuthenticationFailed):
                await log_in(await nodes.client(1), secret().login(2, 1))
        finally:
            await nodes.stop()
    assert not [row for row in logs if row["event"] == "authentication to a node failed"]


@pytest.mark.full
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
async def test_nodes_form_a_cluster_by_sasl_and_replace_connections_before_sessions_expire(
    tmp_path: Path, mechanism: str
) -> None:
    """Brokers use `mechanism`, and controllers PLAIN. All nodes have one principal, as is usual with Apache Kafka."""
    nodes = NodeCluster(tmp_path, 3)
    with_tls(nodes)
    controllers, internal = free_ports(3), free_ports(3)
    module = jaas("admin") if mechanism == "PLAIN" else jaas("admin").replace("plain.Plain", "scram.Scram")
    nodes.settings |= {
        "listener.security.protocol.map": "SSL:SSL,INTERNAL:SASL_SSL,CONTROLLERS:SASL_SSL",
        "inter.broker.listener.name": "INTERNAL",
        "controller.listener.names": "CONTROLLERS",
        "controller.quorum.voters": ",".join(f"{id_}@127.0.0.1:{port}" for id_, port in enumerate(controllers, 1)),
        "listener.name.internal.sasl.enabled.mechanisms": mechanism,
        "listener.name.controllers.sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": mechanism,
        "sasl.mechanism.controller.protocol": "PLAIN",
        f"listener.name.internal.{mechanism.lower()}.sasl.jaas.config": module,
        "listener.name.controllers.plain.sasl.jaas.config": jaas("admin"),
        "connections.max.reauth.ms": "1000",
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:admin;User:ANONYMOUS",
    }
    made = {}
    for node_id in nodes.ids:
        ports = {"SSL": nodes.port(node_id), "INTERNAL": internal[node_id - 1], "CONTROLLERS": controllers[node_id - 1]}
        made[node_id] = nodes.make(
            node_id,
            secret=secret(),
            listeners=",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
            ssl_keystore_location=keystore(nodes, node_id),
            bootstrap_scram=parse_bootstrap_scram(
                "SCRAM-SHA-512=[name=admin,password=of admin]", random.Random(7).getrandbits
            ),
        )
    try:
        await nodes.start_made(made, ())
        await produce(nodes)
        for listener in ("INTERNAL", "CONTROLLERS"):
            assert principals_of_nodes(nodes, listener) == {Principal("User", "admin")}
        before = logins(nodes)
        async with asyncio.timeout(WAIT_S):
            while any(count < before[name] + 4 for name, count in logins(nodes).items()):
                await asyncio.sleep(0.05)
        await produce_again(nodes)
        for node in nodes.nodes.values():
            assert not any(counts.expired or counts.failed for counts in node._authentication.counts.values())
            assert len(node.quorum.peers._retired) < 4
    finally:
        await nodes.stop()


def logins(nodes: NodeCluster) -> Counter[str]:
    """Return the number of successful logins on all nodes, by the name of the listener."""
    counts = [item for node in nodes.nodes.values() for item in node._authentication.counts.items()]
    return Counter({name: sum(each.successful for known, each in counts if known == name) for name, _ in counts})


async def produce_again(nodes: NodeCluster) -> None:
    assert await nodes.produce("t", b"w") is ErrorCode.NONE
    await nodes.until_in_sync("t", [1, 2, 3])


@pytest.mark.full
async def test_broker_alone_logs_in_at_a_controller_alone_by_its_principal(tmp_path: Path) -> None:
    nodes = NodeCluster(tmp_path, 2, voters=1)
    nodes.settings |= {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "odradek.node.principals": MAPPING,
    }
    try:
        for node_id, role, listener in ((1, "controller", "CONTROLLER"), (2, "broker", "PLAINTEXT")):
            nodes.settings["listener.name.controller.plain.sasl.jaas.config"] = jaas(f"node-{node_id}")
            listeners = f"{listener}://127.0.0.1:{nodes.port(node_id)}"
            nodes.make(
                node_id, secret=secret(), process_roles=role, listeners=listeners, sasl_enabled_mechanisms="PLAIN"
            )
        await nodes.start_made(dict(nodes.nodes), ())
        assert Principal("User", "node-2") in principals_of_nodes(nodes, "CONTROLLER")
        assert (await nodes.call(2, MetadataRequest(topics=[]), 12)).brokers
    finally:
        await nodes.stop()
