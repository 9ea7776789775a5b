"""Nodes of one cluster authenticate to each other with the cluster secret."""

import asyncio
import random
import socket
import struct
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import structlog

from odradek.broker.config.properties import Config
from odradek.broker.dispatch.table import API_TABLE
from odradek.broker.network.limits import LOG_LINES_PER_SECOND
from odradek.broker.process.clock import SystemClock
from odradek.broker.quorum.peer_login import by_secret
from odradek.broker.quorum.peers import Channel, Peers
from odradek.broker.requests.listener import CONTROLLER
from odradek.cluster.authorizer import CLUSTER_NODE
from odradek.cluster.membership.messages import Codec, Ping, Rejected
from odradek.cluster.metadata.image import METADATA_TOPIC_ID
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from odradek.protocol.messages.alter_partition import AlterPartitionRequest
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from odradek.protocol.messages.begin_quorum_epoch import RequestPartitionData as BeginPartition
from odradek.protocol.messages.begin_quorum_epoch import RequestTopicData as BeginTopic
from odradek.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from odradek.protocol.messages.broker_registration import BrokerRegistrationRequest
from odradek.protocol.messages.controller_registration import ControllerRegistrationRequest
from odradek.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest
from odradek.protocol.messages.end_quorum_epoch import RequestPartitionData as EndPartition
from odradek.protocol.messages.end_quorum_epoch import RequestTopicData as EndTopic
from odradek.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from odradek.protocol.messages.fetch_snapshot import (
    FetchSnapshotRequest,
    RequestPartitionSnapshot,
    RequestSnapshotId,
    RequestTopicSnapshot,
)
from odradek.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from odradek.protocol.messages.produce import ProduceRequest
from odradek.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from odradek.protocol.messages.sasl_handshake import SaslHandshakeRequest
from odradek.protocol.messages.vote import VoteRequest, VoteResponse
from odradek.protocol.sasl.cluster_secret import MECHANISM, ClusterSecret, parse_secret
from odradek.protocol.sasl.mechanism import AuthenticationFailed
from odradek.protocol.schema import Message
from odradek.runtime.tasks import Tasks
from tests.support.node_cluster import CLUSTER_ID, NodeCluster
from tests.support.ports import free_ports
from tests.support.raw_client import ConnectionLost, RawClient, encode_request
from tests.support.vote import vote_request

SECRET = b"x" * 32
OTHER_SECRET = b"y" * 32


def secret(content: bytes = SECRET) -> ClusterSecret:
    return parse_secret(content, "secret", random.Random(5).getrandbits)


def vote() -> VoteRequest:
    return vote_request(CLUSTER_ID)


async def log_in(client: RawClient, using: ClusterSecret, node_id: int = 1, source: int = 2) -> None:
    login = using.login(source, node_id)
    response: Any = await client.call(login.request, 1)
    while (request := login.received(response)) is not None:
        response = await client.call(request, 2)


def separate(directory: Path, count: int) -> tuple[NodeCluster, list[int]]:
    """Return nodes with a listener for clients and one for brokers, and the ports for brokers."""
    nodes = NodeCluster(directory, count)
    inter_broker = free_ports(count)
    nodes.settings |= {
        "inter.broker.listener.name": "INTERNAL",
        "controller.quorum.voters": ",".join(
            f"{node_id}@127.0.0.1:{port}" for node_id, port in enumerate(inter_broker, 1)
        ),
    }
    return nodes, inter_broker


async def start(nodes: NodeCluster, inter_broker: list[int], secrets: "dict[int, ClusterSecret | None]") -> None:
    made = {}
    for node_id, used in secrets.items():
        listeners = f"PLAINTEXT://127.0.0.1:{nodes.port(node_id)},INTERNAL://127.0.0.1:{inter_broker[node_id - 1]}"
        made[node_id] = nodes.make(node_id, secret=used, listeners=listeners)
    await nodes.start_made(made, ())


async def test_nodes_with_the_same_secret_form_a_cluster(tmp_path: Path) -> None:
    nodes, inter_broker = separate(tmp_path, 3)
    try:
        await start(nodes, inter_broker, {node_id: secret() for node_id in nodes.ids})
        await nodes.create("t", [1, 2, 3])
        assert await nodes.produce("t", b"v") is ErrorCode.NONE
        sessions = [connection._session for connection in nodes.nodes[1].acceptor.connections]
        from_brokers = [one for one in sessions if one is not None and one.listener.name == "INTERNAL"]
        assert from_brokers
        assert {one.principal for one in from_brokers} == {CLUSTER_NODE}
        traffic = nodes.nodes[1].failure_detector.traffic
        async with asyncio.timeout(30):
            while not traffic.received:
                await asyncio.sleep(0.01)
            assert traffic.rejected == 0
            with socket.socket(type=socket.SOCK_DGRAM) as sender:
                sender.sendto(Codec(CLUSTER_ID).encode(Ping(2, 1, 9, 0, 1), 0, 1), ("127.0.0.1", inter_broker[0]))
            while not traffic.rejected:
                await asyncio.sleep(0.01)
    finally:
        await nodes.stop()


async def test_listener_for_brokers_serves_only_authenticated_connections(tmp_path: Path) -> None:
    nodes, inter_broker = separate(tmp_path, 1)
    try:
        await start(nodes, inter_broker, {1: secret()})
        requests = ((vote(), 2), (MetadataRequest(topics=[]), 12), (ApiVersionsRequest(), 0), (ProduceRequest(), 11))
        for request, version in requests:
            client = await RawClient.connect("127.0.0.1", inter_broker[0])
            with pytest.raises(ConnectionLost):
                await client.call(request, version)
        client = await RawClient.connect("127.0.0.1", inter_broker[0])
        await log_in(client, secret())
        assert (await client.call(vote(), 2)).topics[0].partitions
        with pytest.raises(ConnectionLost):
            await client.call(SaslHandshakeRequest(MECHANISM.name), 1)
        assert (await nodes.call(1, MetadataRequest(topics=[]), 12)).brokers
    finally:
        await nodes.stop()


def requests_of_node_2() -> tuple[tuple[Any, int], ...]:
    """Return each request that names a node, with the id 2, and its version."""
    raft = "__cluster_metadata"
    snapshot = RequestPartitionSnapshot(snapshot_id=RequestSnapshotId(1, 1), replica_directory_id=UUID(int=9))
    return (
        (vote(), 2),
        (BeginQuorumEpochRequest(CLUSTER_ID, 1, [BeginTopic(raft, [BeginPartition(leader_id=2)])]), 1),
        (EndQuorumEpochRequest(CLUSTER_ID, [EndTopic(raft, [EndPartition(leader_id=2)])]), 1),
        (FetchSnapshotRequest(CLUSTER_ID, 2, 1, [RequestTopicSnapshot(raft, [snapshot])]), 1),
        (fetch(METADATA_TOPIC_ID), 17),
        (fetch(UUID(int=9)), 17),
        (ListOffsetsRequest(2, topics=[ListOffsetsTopic("t", [ListOffsetsPartition(timestamp=-1)])]), 9),
        (OffsetForLeaderEpochRequest(2, [OffsetForLeaderTopic("t", [OffsetForLeaderPartition()])]), 4),
        (AlterPartitionRequest(broker_id=2), 3),
        (AllocateProducerIdsRequest(broker_id=2), 0),
        (BrokerHeartbeatRequest(broker_id=2), 1),
        (BrokerRegistrationRequest(broker_id=2, cluster_id=CLUSTER_ID, is_migrating_zk_broker=True), 4),
        (ControllerRegistrationRequest(controller_id=2), 0),
    )


async def test_node_cannot_act_as_another_node(tmp_path: Path) -> None:
    """Each request names node 2. A connection of node 3 is refused before the request has an effect."""
    nodes, inter_broker = separate(tmp_path, 1)
    try:
        await start(nodes, inter_broker, {1: secret()})
        for source in (2, 3):
            client = await RawClient.connect("127.0.0.1", inter_broker[0])
            await log_in(client, secret(), source=source)
            for request, version in requests_of_node_2():
                response = await client.call(request, version)
                refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED in errors_in(response)
                assert refused is (source == 3), (request, response)
    finally:
        await nodes.stop()


def fetch(topic_id: UUID) -> FetchRequest:
    """Return a fetch of replica 2, of version 17."""
    partition = FetchPartition(replica_directory_id=UUID(int=9))
    return FetchRequest(
        CLUSTER_ID, replica_state=ReplicaState(2, 1), session_epoch=-1, topics=[FetchTopic("", topic_id, [partition])]
    )


def errors_in(message: Any) -> list[int]:
    """Return all error codes of a response, also of its topics and partitions."""
    if isinstance(message, list):
        return [code for each in message for code in errors_in(each)]
    found: list[int] = []
    for name in getattr(message, "__slots__", ()):
        value = getattr(message, name)
        found += [value] if name == "error_code" else errors_in(value)
    return found


async def test_listener_for_controllers_serves_nodes_and_lists_their_apis(tmp_path: Path) -> None:
    nodes, inter_broker = separate(tmp_path, 3)
    controllers = free_ports(3)
    nodes.settings |= {
        "controller.listener.names": "CONTROLLERS",
        "controller.quorum.voters": ",".join(
            f"{node_id}@127.0.0.1:{port}" for node_id, port in enumerate(controllers, 1)
        ),
    }
    try:
        made = {}
        for node_id in nodes.ids:
            ports = {
                "PLAINTEXT": nodes.port(node_id),
                "INTERNAL": inter_broker[node_id - 1],
                "CONTROLLERS": controllers[node_id - 1],
            }
            listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())
            made[node_id] = nodes.make(node_id, secret=secret(), listeners=listeners)
        await nodes.start_made(made, ())
        await nodes.create("t", [1, 2, 3])
        assert await nodes.produce("t", b"v") is ErrorCode.NONE
        client = await RawClient.connect("127.0.0.1", controllers[0])
        await log_in(client, secret())
        response = await client.call(ApiVersionsRequest("test", "1"), 4)
        served = {api.key for api in API_TABLE if CONTROLLER in api.listeners}
        assert {row.api_key for row in response.api_keys} == served
        client.close()
    finally:
        await nodes.stop()


async def test_shared_listener_serves_clients_and_refuses_requests_of_unauthenticated_brokers(tmp_path: Path) -> None:
    nodes = NodeCluster(tmp_path, 1)
    try:
        await nodes.start_made({1: nodes.make(1, secret=secret())}, ())
        client = await nodes.client(1)
        assert (await client.call(MetadataRequest(topics=[]), 12)).brokers
        with pytest.raises(ConnectionLost):
            await client.call(vote(), 2)
        client = await nodes.client(1)
        await log_in(client, secret())
        assert (await client.call(vote(), 2)).topics[0].partitions
        assert (await client.call(MetadataRequest(topics=[]), 12)).brokers
        client.close()
    finally:
        await nodes.stop()


async def test_client_with_another_secret_or_an_illegal_request_is_refused(tmp_path: Path) -> None:
    nodes, inter_broker = separate(tmp_path, 1)
    try:
        await start(nodes, inter_broker, {1: secret()})
        client = await RawClient.connect("127.0.0.1", inter_broker[0])
        response = await client.call(SaslAuthenticateRequest(b"n,,n=cluster,r=x"), 2)
        assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE
        client = await RawClient.connect("127.0.0.1", inter_broker[0])
        response = await client.call(SaslHandshakeRequest("PLAIN"), 1)
        assert (response.error_code, response.mechanisms) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, [MECHANISM.name])
        client = await RawClient.connect("127.0.0.1", inter_broker[0])
        with pytest.raises(AuthenticationFailed, match=r"cluster.secret.file"):
            await log_in(client, secret(OTHER_SECRET))
        with pytest.raises(ConnectionLost):
            await client.call(vote(), 2)
    finally:
        await nodes.stop()


@pytest.mark.parametrize(("earlier", "later"), [("none", "accept"), ("accept", "login"), ("login", "required")])
async def test_nodes_of_two_successive_phases_of_a_rolling_change_form_a_cluster(
    tmp_path: Path, earlier: str, later: str
) -> None:
    nodes = NodeCluster(tmp_path, 3)
    inter_broker = free_ports(3)
    modes = {1: earlier, 2: later, 3: earlier}
    made = {}
    for node_id, mode in modes.items():
        client_port = nodes.port(node_id)
        moved = mode in {"login", "required"}
        ports = inter_broker if moved else nodes.ports
        made[node_id] = nodes.make(
            node_id,
            secret=None if mode == "none" else secret(),
            listeners=f"PLAINTEXT://127.0.0.1:{client_port},INTERNAL://127.0.0.1:{inter_broker[node_id - 1]}",
            inter_broker_listener_name="INTERNAL" if moved else "PLAINTEXT",
            odradek_inter_broker_authentication=mode,
            controller_quorum_voters=",".join(f"{voter}@127.0.0.1:{port}" for voter, port in enumerate(ports, 1)),
        )
    with structlog.testing.capture_logs() as logs:
        try:
            await nodes.start_made(made, ())
            await nodes.create("t", [2, 1, 3])
            assert await nodes.produce("t", b"v") is ErrorCode.NONE
            if later != "login":  # otherwise the nodes have different UDP ports
                traffic = nodes.nodes[2].failure_detector.traffic
                async with asyncio.timeout(30):
                    while traffic.received < 10:
                        await asyncio.sleep(0.01)
                assert not traffic.dropped[Rejected.FOREIGN]
            client = await nodes.client(2)
            if later == "required":
                with pytest.raises(ConnectionLost):
                    await client.call(vote(), 2)
            else:
                assert isinstance(await client.call(vote(), 2), VoteResponse)
            client.close()
            # A node that stops may close a connection before its first response, so its peers log a failed login.
            assert not [row for row in logs if row["event"].startswith("authentication")]
        finally:
            await nodes.stop()


DIFFERENT = (
    "the cluster secrets (cluster.secret.file) of the two nodes differ",
    "the password differs; set cluster.secret.file to the same secret on both nodes",
)
MISSING = (
    "set cluster.secret.file there",
    "set cluster.secret.file here",
    "a node of the cluster needs cluster.secret.file",
    "to authenticate nodes of the cluster, set cluster.secret.file on this node",
)


@pytest.mark.parametrize(("third", "reasons"), [(OTHER_SECRET, DIFFERENT), (None, MISSING)])
async def test_different_or_missing_secret_is_named_in_the_logs_of_both_nodes(
    tmp_path: Path, third: bytes | None, reasons: tuple[str, ...]
) -> None:
    nodes, inter_broker = separate(tmp_path, 3)
    with structlog.testing.capture_logs() as logs:
        try:
            await start(nodes, inter_broker, {1: secret(), 2: secret()})
            other = None if third is None else secret(third)
            listeners = f"PLAINTEXT://127.0.0.1:{nodes.port(3)},INTERNAL://127.0.0.1:{inter_broker[2]}"
            foreign_node = nodes.make(3, secret=other, listeners=listeners)
            starting = asyncio.ensure_future(foreign_node.start())
            async with asyncio.timeout(30):
                while not all(any(reason in str(row.get("reason")) for row in logs) for reason in reasons):
                    await asyncio.sleep(0.01)
            assert not starting.done()
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            failures = [row for row in logs if row["event"] == "authentication to a node failed"]
            assert {row["log_level"] for row in failures} == {"warning"}
        finally:
            await nodes.stop()


async def test_login_that_another_node_relays_is_refused_with_a_reason(tmp_path: Path) -> None:
    """A process that listens at the address of node 2 relays its logins to node 1. Node 1 refuses them."""
    nodes, inter_broker = separate(tmp_path, 2)
    reason = "the login is for another node: this is node 1, the login has 't=2,s=2'; check the address of each node"
    with structlog.testing.capture_logs() as logs:
        try:
            nodes.settings["controller.quorum.voters"] = f"1@127.0.0.1:{inter_broker[0]}"
            await start(nodes, inter_broker, {1: secret()})
            client = await RawClient.connect("127.0.0.1", inter_broker[0])
            with pytest.raises(AuthenticationFailed, match=reason):
                await log_in(client, secret(), node_id=2)
            with pytest.raises(ConnectionLost):
                await client.call(vote(), 2)
        finally:
            await nodes.stop()
    (row,) = [row for row in logs if row["event"] == "authentication of a node failed"]
    assert row["reason"].startswith(reason)
    assert "cluster.secret.file" not in row["reason"]


async def test_node_logs_the_address_at_which_another_node_received_its_login(tmp_path: Path) -> None:
    nodes, inter_broker = separate(tmp_path, 2)
    with structlog.testing.capture_logs() as logs:
        try:
            nodes.settings["controller.quorum.voters"] = f"1@127.0.0.1:{inter_broker[0]}"
            await start(nodes, inter_broker, {1: secret()})
            address = ("127.0.0.1", inter_broker[0])
            peers = Peers(
                3,
                lambda *_: address,
                SystemClock(),
                Tasks(lambda *_: None),
                lambda node, _: by_secret(secret(), 3, node),
            )
            with pytest.raises(ConnectionError, match="this is node 1, the login has 't=2,s=3'"):
                await peers.request(2, Channel.RAFT, vote(), 2, timeout_ms=30_000)
            peers.close()
        finally:
            await nodes.stop()
    (row,) = [row for row in logs if row["event"] == "authentication to a node failed"]
    assert row["node"] == 2
    assert f"that node 2 is at 127.0.0.1:{inter_broker[0]}" in row["reason"]


async def test_failed_logins_are_logged_with_the_address_and_without_the_messages(tmp_path: Path) -> None:
    nodes, inter_broker = separate(tmp_path, 1)
    attempts = 3 * LOG_LINES_PER_SECOND
    with structlog.testing.capture_logs() as logs:
        try:
            await start(nodes, inter_broker, {1: secret()})
            sent: list[bytes] = []
            for _ in range(attempts):
                client = await RawClient.connect("127.0.0.1", inter_broker[0])
                login = secret(OTHER_SECRET).login(2, 1)
                response: Any = await client.call(login.request, 1)
                with pytest.raises(AuthenticationFailed):
                    while (request := login.received(response)) is not None:
                        sent.append(bytes(request.auth_bytes))
                        response = await client.call(request, 2)
                client.close()
        finally:
            await nodes.stop()
    rows = [row for row in logs if row["event"] == "authentication of a node failed"]
    assert rows
    assert sum(1 + row.get("suppressed", 0) for row in rows) <= attempts
    assert len(rows) < attempts
    for row in rows:
        assert row["client"].startswith("127.0.0.1:")
        assert (row["listener"], row["log_level"]) == ("INTERNAL", "warning")
    proofs = [message.rpartition(b",p=")[2].decode() for message in sent]
    assert not [row for row in logs for proof in (*proofs, OTHER_SECRET.decode()) if proof in str(row)]


BEFORE_LOGIN_MAX = Config().sasl_server_max_receive_size


@pytest.mark.parametrize("request_class", [ProduceRequest, SaslAuthenticateRequest, VoteRequest])
async def test_larger_frame_before_the_login_closes_the_connection(
    tmp_path: Path, request_class: type[Message]
) -> None:
    nodes, inter_broker = separate(tmp_path, 1)
    try:
        await start(nodes, inter_broker, {1: secret()})
        reader, writer = await asyncio.open_connection("127.0.0.1", inter_broker[0])
        writer.write(struct.pack(">ihhih", BEFORE_LOGIN_MAX + 1, request_class.API_KEY, 1, 1, -1))
        async with asyncio.timeout(30):
            assert await reader.read(1) == b""
        writer.close()
    finally:
        await nodes.stop()


async def test_frame_limit_before_the_login_ends_with_the_login(tmp_path: Path) -> None:
    nodes, inter_broker = separate(tmp_path, 1)
    try:
        await start(nodes, inter_broker, {1: secret()})
        client = await RawClient.connect("127.0.0.1", inter_broker[0])
        await client.call(SaslHandshakeRequest(MECHANISM.name), 1)
        spare = BEFORE_LOGIN_MAX - (len(encode_request(SaslAuthenticateRequest(b""), 1, 1, client.client_id)) - 4)
        response = await client.call(SaslAuthenticateRequest(bytes(spare)), 1)
        assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        client = await RawClient.connect("127.0.0.1", inter_broker[0])
        await log_in(client, secret())
        names = [MetadataRequestTopic(name=chr(97 + number) * 30_000) for number in range(20)]
        assert len(encode_request(MetadataRequest(topics=names), 9, 1, client.client_id)) > BEFORE_LOGIN_MAX
        assert len((await client.call(MetadataRequest(topics=names), 9)).topics) == len(names)
        client.close()
    finally:
        await nodes.stop()


@pytest.mark.parametrize("content", [b"", b"short", b" " * 40, b"x" * 31 + b"\n"])
def test_short_secret_is_refused_with_a_remedy(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"cluster.secret.file: secret has \d+ bytes, at least 32 are needed; make"):
        secret(content)
