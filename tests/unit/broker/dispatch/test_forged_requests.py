"""Requests between nodes on a listener for clients: each version of each of them is refused, without an effect."""

from __future__ import annotations

import asyncio
import hashlib
import random
import struct
from typing import TYPE_CHECKING, Any

from odradek.broker.dispatch.table import API_TABLE
from odradek.broker.requests.listener import CLIENT, UNAUTHENTICATED
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from odradek.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from odradek.protocol.messages.fetch import FetchRequest
from odradek.protocol.messages.list_offsets import ListOffsetsRequest
from odradek.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from odradek.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from odradek.protocol.schema import field_rows
from tests.support.hostile_attack import is_refused
from tests.support.hostile_forged import FORGED, Victim
from tests.support.node_cluster import CLUSTER_ID, NodeCluster
from tests.support.ports import free_ports
from tests.support.raw_client import ConnectionLost, RawClient

if TYPE_CHECKING:
    from pathlib import Path

    from odradek.protocol.schema import Message, Struct

ALSO_OF_CLIENTS = {
    FetchRequest,
    ListOffsetsRequest,
    OffsetForLeaderEpochRequest,
    AddPartitionsToTxnRequest,
    WriteTxnMarkersRequest,
}
"""Requests that clients send, too. A replica id, a version or the markers make them requests of a node."""
ROUNDS = 4
"""Requests of each builder and version. Their epochs, offsets and flags are generated."""
FIRST_OF_NODES: dict[type[Message], int] = {AddPartitionsToTxnRequest: 4, OffsetForLeaderEpochRequest: 3}
"""First version with several transactions, and first version with a replica id."""
REPLICA_STATE_MIN_VERSION = 15
TOPIC = "t"


def versions_of(request: Message) -> range:
    """Return the served versions in which `request` is a request of a node."""
    api = next(api for api in API_TABLE if api.key == request.API_KEY)
    first, last = api.min_version, api.max_version
    first = FIRST_OF_NODES.get(type(request), first)
    if isinstance(request, FetchRequest) and request.replica_id >= 0:
        last = REPLICA_STATE_MIN_VERSION - 1
    elif isinstance(request, FetchRequest):
        first = REPLICA_STATE_MIN_VERSION
    return range(first, last + 1)


def fit(request: Struct, version: int) -> None:
    """Reset the fields of a request that `version` does not have."""
    for row in field_rows(type(request)):
        value = getattr(request, row.name)
        if not row.in_version(version):
            setattr(request, row.name, getattr(type(request)(), row.name))
        elif row.struct is not None:
            for element in value if row.is_array else [value]:
                fit(element, version)


def contents(directory: Path) -> dict[str, str]:
    """Return the digests of all logs and of the state of the quorum, which have each durable effect of a request."""
    files = sorted(path for path in directory.rglob("*") if path.suffix == ".log" or path.name == "quorum-state")
    return {str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def separate(directory: Path) -> NodeCluster:
    """Return a cluster of one node with a listener for clients and one for nodes, without a secret."""
    nodes = NodeCluster(directory, 1)
    (port,) = free_ports(1)
    nodes.settings |= {
        "inter.broker.listener.name": "INTERNAL",
        "controller.quorum.voters": f"1@127.0.0.1:{port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{nodes.port(1)},INTERNAL://127.0.0.1:{port}",
    }
    return nodes


async def refusal(port: int, request: Message, version: int) -> bool:
    """Send a request in the name of a broker. Return True if the node closes the connection or reports an error."""
    client = await RawClient.connect("127.0.0.1", port, client_id="broker-1-raft")
    try:
        response: Any = await client.call(request, version, timeout=30)
    except ConnectionLost:
        return True
    finally:
        client.close()
    return is_refused(response)


def test_forged_requests_cover_each_request_of_nodes() -> None:
    rng, victim = random.Random(1), Victim((1,), CLUSTER_ID)
    forged: dict[int, set[int]] = {}
    for build in FORGED:
        request = build(victim, rng)
        forged.setdefault(request.API_KEY, set()).update(versions_of(request))
    of_nodes = {api for api in API_TABLE if not {CLIENT, UNAUTHENTICATED} & set(api.listeners)}
    expected = {
        api.key: set(range(api.min_version, api.max_version + 1))
        for api in API_TABLE
        if api in of_nodes or api.request in ALSO_OF_CLIENTS
    }
    for kind, first in FIRST_OF_NODES.items():
        expected[kind.API_KEY] -= set(range(first))
    assert forged == expected


async def test_each_version_of_each_request_of_nodes_is_refused_on_a_listener_for_clients(tmp_path: Path) -> None:
    nodes = separate(tmp_path)
    try:
        await nodes.start()
        await nodes.create(TOPIC, [1])
        await nodes.produce(TOPIC, b"v")
        node = nodes.nodes[1]
        topic = node.metadata.image.topic(TOPIC)
        assert topic is not None
        victim, rng = Victim((1,), CLUSTER_ID, {TOPIC: (topic.topic_id, 1)}), random.Random(1)
        before, offset = contents(tmp_path), node.metadata.image.offset
        served = []
        for build in FORGED:
            for version in versions_of(build(victim, rng)):
                for _ in range(ROUNDS):
                    request = build(victim, rng)
                    fit(request, version)
                    if not await refusal(nodes.port(1), request, version):
                        served.append((version, request))
        assert served == []
        assert (contents(tmp_path), node.metadata.image.offset) == (before, offset)
        assert len(node.broker.context.fetch_sessions) == 0
        assert await nodes.produce(TOPIC, b"w") is ErrorCode.NONE
    finally:
        await nodes.stop()


async def test_large_request_of_a_node_closes_a_connection_for_clients_before_its_body(tmp_path: Path) -> None:
    nodes = separate(tmp_path)
    try:
        await nodes.start()
        size = nodes.nodes[1].config.sasl_server_max_receive_size + 1
        for api in API_TABLE:
            if {CLIENT, UNAUTHENTICATED} & set(api.listeners):
                continue
            reader, writer = await asyncio.open_connection("127.0.0.1", nodes.port(1))
            writer.write(struct.pack(">ihhih", size, api.key, api.max_version, 1, -1))
            async with asyncio.timeout(30):
                assert await reader.read(1) == b"", api.name
            writer.close()
    finally:
        await nodes.stop()


async def test_served_request_of_a_node_is_found(tmp_path: Path) -> None:
    """On the listener for nodes, the comparisons of the test above find a forged allocation of producer ids."""
    nodes = separate(tmp_path)
    try:
        await nodes.start()
        image = nodes.nodes[1].metadata.image
        endpoint = image.brokers[1].endpoint("INTERNAL")
        assert endpoint is not None
        before = contents(tmp_path)
        request = AllocateProducerIdsRequest(1, image.brokers[1].epoch)
        assert not await refusal(endpoint.port, request, 0)
        assert contents(tmp_path) != before
        await nodes.until(1, lambda newer: newer.offset > image.offset)
    finally:
        await nodes.stop()
