"""Several nodes of one cluster: requests during the start, discovery, forwarding and cluster ids."""

import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from odradek.broker.dispatch.table import API_TABLE
from odradek.broker.node import CannotStartError
from odradek.broker.requests.listener import CLIENT
from odradek.broker.topics.metadata_view import MetadataView
from odradek.protocol.connection import parse_request
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.envelope import EnvelopeRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.vote import RequestPartitionData, RequestTopicData, VoteRequest
from tests.support.node_cluster import CLUSTER_ID, NodeCluster
from tests.support.ports import free_ports
from tests.support.raw_client import ConnectionLost, encode_request

WITHIN_S = 30


@asynccontextmanager
async def cluster(directory: Path, count: int = 3, **settings: object) -> AsyncIterator[NodeCluster]:
    nodes = NodeCluster(directory, count, **settings)  # type: ignore[arg-type]
    try:
        await nodes.start()
        yield nodes
    finally:
        await nodes.stop()


def vote(cluster_id: str = CLUSTER_ID, epoch: int = 0) -> VoteRequest:
    partition = RequestPartitionData(replica_id=2, replica_epoch=epoch, pre_vote=True)
    return VoteRequest(cluster_id, 1, [RequestTopicData("__cluster_metadata", [partition])])


async def test_started_node_has_itself_in_its_metadata(tmp_path: Path) -> None:
    """Its first Metadata response would have no broker otherwise, and librdkafka would wait for one indefinitely."""
    nodes = NodeCluster(tmp_path, 2, voters=1)
    try:
        await nodes.start()
        view = MetadataView(nodes.nodes[2].metadata.image, "PLAINTEXT")
        assert view.endpoint(2) is not None
    finally:
        await nodes.stop()


async def test_every_node_knows_all_brokers_and_one_controller(tmp_path: Path) -> None:
    async with cluster(tmp_path) as nodes:
        assert sum(node.quorum.controller.is_active for node in nodes.nodes.values()) <= 1
        for node_id in nodes.ids:
            await nodes.until(node_id, lambda image: len(list(image.active_brokers())) == 3)
            response = await nodes.call(node_id, MetadataRequest(topics=[]), 12)
            assert {(broker.node_id, broker.port) for broker in response.brokers} == {
                (broker_id, nodes.port(broker_id)) for broker_id in nodes.ids
            }
            assert response.cluster_id == CLUSTER_ID


async def test_every_node_forwards_controller_requests(tmp_path: Path) -> None:
    async with cluster(tmp_path) as nodes:
        for node_id in nodes.ids:
            topic = CreatableTopic(name=f"made-at-{node_id}", num_partitions=1, replication_factor=3)
            created = await nodes.call(node_id, CreateTopicsRequest(topics=[topic], timeout_ms=5_000), 7)
            assert [(topic.name, topic.error_code) for topic in created.topics] == [(f"made-at-{node_id}", 0)]
            repeated = await nodes.call(node_id, CreateTopicsRequest(topics=[topic], timeout_ms=5_000), 7)
            assert repeated.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS


async def test_observer_forwards_controller_requests(tmp_path: Path) -> None:
    async with cluster(tmp_path, 4, voters=3) as nodes:
        assert not nodes.nodes[4].quorum.controller.is_active
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        created = await nodes.call(4, CreateTopicsRequest(topics=[topic], timeout_ms=5_000), 7)
        assert created.topics[0].error_code == 0


async def test_envelope_with_another_request_is_invalid(tmp_path: Path) -> None:
    async with cluster(tmp_path) as nodes:
        request_bytes = encode_request(MetadataRequest(topics=[]), 12, 7, "c")[4:]
        response = await nodes.call(nodes.controller, EnvelopeRequest(request_bytes), 0)
        assert response.error_code == ErrorCode.INVALID_REQUEST
        response = await nodes.call(nodes.controller, EnvelopeRequest(b"\x00"), 0)
        assert response.error_code == ErrorCode.INVALID_REQUEST
        other_node = next(node_id for node_id in nodes.ids if node_id != nodes.controller)
        request_bytes = encode_request(CreateTopicsRequest(timeout_ms=1_000), 7, 7, "c")[4:]
        assert parse_request(request_bytes).correlation_id == 7
        response = await nodes.call(other_node, EnvelopeRequest(request_bytes), 0)
        assert response.error_code == ErrorCode.NOT_CONTROLLER


async def test_starting_node_serves_votes_delays_clients_and_can_be_stopped(tmp_path: Path) -> None:
    ports = free_ports(3)
    voters = ",".join(f"{voter}@127.0.0.1:{port}" for voter, port in enumerate(ports, 1))
    settings = {
        "log.dirs": str(tmp_path),
        "listeners": f"PLAINTEXT://127.0.0.1:{ports[0]}",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.quorum.voters": voters,
        "odradek.cluster.id": CLUSTER_ID,
        "odradek.inter.broker.authentication": "none",
    }
    arguments = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "odradek.broker", *arguments, "--stop-with-stdin"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            with connected(ports[0]) as client, connected(ports[0]) as waiting:
                waiting.sendall(encode_request(ApiVersionsRequest(), 0, 2, "c"))
                client.sendall(encode_request(vote(), 2, 1, "c"))
                assert int.from_bytes(client.recv(8)[4:8], "big") == 1
                # The other connection sent its request first and still waits.
                waiting.setblocking(False)
                with pytest.raises(BlockingIOError):
                    waiting.recv(1)
            out, _ = process.communicate(timeout=WITHIN_S)  # closes its standard input
        finally:
            process.kill()
    assert (process.returncode, out) == (0, b"")


def connected(port: int) -> socket.socket:
    """Return a connection to `port`; retry while the starting process does not listen yet."""
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=WITHIN_S)
        except ConnectionRefusedError:
            continue


async def test_quorum_requests_are_served_only_on_the_inter_broker_listener(tmp_path: Path) -> None:
    client, inter_broker = free_ports(2)
    nodes = NodeCluster(
        tmp_path,
        1,
        listeners=f"PLAINTEXT://127.0.0.1:{client},INTERNAL://127.0.0.1:{inter_broker}",
    )
    nodes.settings |= {
        "inter.broker.listener.name": "INTERNAL",
        "controller.quorum.voters": f"1@127.0.0.1:{inter_broker}",
    }
    try:
        await nodes.start()
        nodes.ports = [inter_broker]
        assert (await nodes.call(1, vote(), 2)).topics[0].partitions
        nodes.ports = [client]
        assert (await nodes.call(1, MetadataRequest(topics=[]), 12)).brokers
        inter_broker_apis = [api for api in API_TABLE if CLIENT not in api.listeners]
        assert [api.name for api in inter_broker_apis] == [
            "SaslHandshake",
            "SaslAuthenticate",
            "Vote",
            "BeginQuorumEpoch",
            "EndQuorumEpoch",
            "AlterPartition",
            "Envelope",
            "FetchSnapshot",
            "BrokerRegistration",
            "BrokerHeartbeat",
            "AllocateProducerIds",
            "ControllerRegistration",
        ]
        for api in inter_broker_apis:
            with pytest.raises(ConnectionLost):
                await nodes.call(1, api.request(), api.max_version)
        announced = {row.api_key for row in (await nodes.call(1, ApiVersionsRequest("a", "1"), 4)).api_keys}
        assert not announced & {api.key for api in inter_broker_apis}
    finally:
        await nodes.stop()


async def test_vote_with_another_cluster_id_is_refused(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1) as nodes:
        response = await nodes.call(1, vote("ZZZZZZZZZZZZZZZZZZZZZQ"), 2)
        assert response.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID


async def test_new_data_directory_without_cluster_id_cannot_start(tmp_path: Path) -> None:
    nodes = NodeCluster(tmp_path, 3)
    nodes.settings["odradek.cluster.id"] = ""
    try:
        with pytest.raises(CannotStartError, match=r"odradek.cluster.id is not set"):
            await nodes.start([1])
    finally:
        await nodes.stop()


async def test_node_with_another_cluster_id_cannot_start(tmp_path: Path) -> None:
    nodes = NodeCluster(tmp_path, 3)
    try:
        await nodes.start([1, 2])
        nodes.settings["odradek.cluster.id"] = "ZZZZZZZZZZZZZZZZZZZZZQ"
        foreign_node = nodes.make(3)
        with pytest.raises(
            CannotStartError, match=r"node [12] belongs to another cluster than ZZZ.*: correct odradek\.cl"
        ):
            await foreign_node.start()
        created = await nodes.call(1, CreateTopicsRequest(topics=[CreatableTopic("t", 1, 2)], timeout_ms=5_000), 7)
        assert created.topics[0].error_code == 0
    finally:
        await nodes.stop()
