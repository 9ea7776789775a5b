"""Nodes of one cluster that use TLS among themselves, and present certificates to each other."""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import structlog

from odradek.broker.quorum.peers import Channel
from odradek.broker.tls.transport import TlsTransport
from odradek.protocol.errors import ErrorCode
from odradek.protocol.sasl.cluster_secret import ClusterSecret, parse_secret
from tests.support.certificates import Issued, issue
from tests.support.node_cluster import NodeCluster
from tests.support.tls_rig import AUTHORITY, NODE, client_side

TIMEOUT_S = 60


def secret() -> ClusterSecret:
    return parse_secret(b"x" * 32, "secret", random.Random(5).getrandbits)


def cluster(folder: Path, count: int) -> NodeCluster:
    """Return nodes with a single listener, which requires client certificates."""
    nodes = NodeCluster(folder, count)
    nodes.tls = client_side(issue("client", AUTHORITY))
    (folder / "authority.pem").write_text(AUTHORITY.pem)
    nodes.settings |= {
        "inter.broker.listener.name": "SSL",
        "ssl.client.auth": "required",
        "ssl.keystore.type": "PEM",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "authority.pem"),
    }
    return nodes


def make(nodes: NodeCluster, node_id: int, certificate: Issued = NODE, **settings: Any) -> Any:
    path = nodes.directory / f"node-{node_id}.pem"
    path.write_text(certificate.chain_pem + certificate.key_pem())
    listeners = f"SSL://127.0.0.1:{nodes.port(node_id)}"
    return nodes.make(node_id, secret=secret(), listeners=listeners, ssl_keystore_location=str(path), **settings)


async def until_logged(logs: list[Any], holds: Callable[[Any], bool]) -> Any:
    async with asyncio.timeout(TIMEOUT_S):
        while (found := next((entry for entry in logs if holds(entry)), None)) is None:
            await asyncio.sleep(0.01)
    return found


async def test_nodes_replicate_over_tls_with_client_certificates(tmp_path: Path) -> None:
    nodes = cluster(tmp_path, 3)
    try:
        await nodes.start_made({node_id: make(nodes, node_id) for node_id in nodes.ids}, ())
        await nodes.create("t", [1, 2, 3])
        assert await nodes.produce("t", b"v") is ErrorCode.NONE
        assert await nodes.values("t") == [b"v"]
        for node in nodes.nodes.values():
            connections = list(node.quorum.peers._connections.values())
            assert connections
            assert all(isinstance(each._transport, TlsTransport) for each in connections if not each.ended)
    finally:
        await nodes.stop()


@pytest.mark.full
async def test_controller_and_brokers_apart_use_the_tls_of_each_others_listeners(tmp_path: Path) -> None:
    """The brokers have no listener CONTROLLER, and the controller has no listener SSL."""
    nodes = cluster(tmp_path, 3)
    nodes.voters = f"1@127.0.0.1:{nodes.port(1)}"
    nodes.settings |= {
        "controller.quorum.voters": nodes.voters,
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:SSL,SSL:SSL",
    }
    try:
        (tmp_path / "controller.pem").write_text(NODE.chain_pem + NODE.key_pem())
        brokers = {node_id: make(nodes, node_id, process_roles="broker") for node_id in (2, 3)}
        controller = nodes.make(
            1,
            secret=secret(),
            process_roles="controller",
            listeners=f"CONTROLLER://127.0.0.1:{nodes.port(1)}",
            ssl_keystore_location=str(tmp_path / "controller.pem"),
        )
        await nodes.start_made({1: controller, **brokers}, ())
        await nodes.create("t", [2, 3])
        assert await nodes.produce("t", b"v") is ErrorCode.NONE
        assert await nodes.values("t") == [b"v"]
        for node in brokers.values():
            assert isinstance(node.quorum.peers._connections[1, Channel.RAFT_FETCH]._transport, TlsTransport)
    finally:
        await nodes.stop()


@pytest.mark.parametrize(
    ("certificate", "trusts_itself", "reason"),
    [
        (
            issue("node", issue("foreign", ca=True), hosts=["127.0.0.1"]),
            True,
            "certificate verification failed",
        ),
        pytest.param(
            issue("node", AUTHORITY, hosts=["another.example"]), False, "IP address mismatch", marks=pytest.mark.full
        ),
    ],
    ids=["another authority", "another host"],
)
async def test_node_with_a_certificate_that_is_not_accepted_stays_outside(
    tmp_path: Path, certificate: Issued, trusts_itself: bool, reason: str
) -> None:
    nodes = cluster(tmp_path, 3)
    settings: dict[str, Any] = {}
    if trusts_itself:  # a node refuses to start with a certificate that it does not trust
        both = tmp_path / "both.pem"
        both.write_text(AUTHORITY.pem + certificate.chain_pem)
        settings["ssl_truststore_location"] = str(both)
    with structlog.testing.capture_logs() as logs:
        made = {1: make(nodes, 1), 2: make(nodes, 2)}
        other = make(nodes, 3, certificate, **settings)
        starting = asyncio.get_running_loop().create_task(other.start())
        try:
            await nodes.start_made(made, ())
            failed = await until_logged(
                logs, lambda entry: entry["event"] == "authentication to a node failed" and entry["node"] == 3
            )
            assert f"TLS with 127.0.0.1:{nodes.port(3)} failed: " in failed["reason"]
            assert reason in failed["reason"]
            assert not any(entry["event"] == "broker failure declared" for entry in logs)
        finally:
            starting.cancel()
            await asyncio.wait([starting])
            await nodes.stop()


@pytest.mark.full
async def test_host_name_is_not_verified_if_the_property_is_empty(tmp_path: Path) -> None:
    nodes = cluster(tmp_path, 2)
    elsewhere = issue("node", AUTHORITY, hosts=["another.example"])
    nodes.tls = client_side(issue("client", AUTHORITY))
    nodes.tls.check_hostname = False
    try:
        settings = {"ssl.endpoint.identification.algorithm": ""}
        nodes.settings |= settings
        await nodes.start_made({node_id: make(nodes, node_id, elsewhere) for node_id in nodes.ids}, ())
        await nodes.create("t", [1, 2])
        assert await nodes.produce("t", b"v") is ErrorCode.NONE
    finally:
        await nodes.stop()
