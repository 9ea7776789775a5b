"""Extreme integers in requests in the name of another node, to each node of a cluster with one shared listener.

The nodes raise no unexpected exception, the cluster serves afterwards, and no epoch leaves its bound.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Final

import pytest

from odradek.broker.dispatch.table import API_TABLE
from odradek.broker.requests.listener import BROKER, CONTROLLER
from odradek.cluster.raft.epoch_limits import EPOCH_JUMP_MAX
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from tests.support.extreme_integers import Case, Facts, cases, random_case
from tests.support.node_cluster import CLUSTER_ID, NodeCluster
from tests.support.raw_client import ConnectionLost, RawClient

if TYPE_CHECKING:
    from pathlib import Path

TIMEOUT_S: Final = 30
RANDOM_CASES: Final = 50
"""Requests with several extreme values per API."""
NODES: Final = 3


def facts(nodes: NodeCluster, node_id: int) -> Facts:
    """Return facts for requests to a node in the name of the next one."""
    claimed = node_id % NODES + 1
    image = nodes.nodes[node_id].metadata.image
    target = image.topic("target")
    assert target is not None
    return Facts(
        cluster_id=CLUSTER_ID,
        topic="target",
        topic_id=target.topic_id,
        group="g",
        member_id="m",
        generation=1,
        transactional_id="x",
        producer_id=5,
        producer_epoch=0,
        broker_epoch=image.brokers[claimed].epoch,
        incarnation_id=image.brokers[claimed].incarnation_id,
        node_id=node_id,
        claimed_id=claimed,
    )


async def send(nodes: NodeCluster, node_id: int, client: RawClient | None, case: Case) -> RawClient:
    """Send one case, and a small request after it. Fail if neither a response nor the end arrives."""
    if client is None or not client.is_open:
        client = await nodes.client(node_id)
    first = client.send(case.request, case.version)
    second = client.send(ApiVersionsRequest("extreme", "1"), 3)
    try:
        async with asyncio.timeout(TIMEOUT_S):
            await first
            await second
    except ConnectionLost:
        client.close()
    except TimeoutError:
        pytest.fail(f"no response and no end of the connection: {case.label}")
    assert not nodes.unexpected, (case.label, nodes.unexpected)
    return client


@pytest.mark.full
async def test_extreme_integers_in_the_name_of_another_node_leave_the_cluster_healthy(tmp_path: Path) -> None:
    nodes = NodeCluster(tmp_path, NODES)
    rng = random.Random(14)
    try:
        await nodes.start()
        await nodes.create("target", nodes.ids)
        for node_id in nodes.ids:
            for api in API_TABLE:
                if not {BROKER, CONTROLLER} & set(api.listeners):
                    continue
                known = facts(nodes, node_id)
                client = None
                for case in cases(api.request, api.max_version, known):
                    client = await send(nodes, node_id, client, case)
                for _ in range(RANDOM_CASES):
                    case = random_case(api.request, api.max_version, known, rng)
                    client = await send(nodes, node_id, client, case)
                if client is not None:
                    client.close()
            async with asyncio.timeout(TIMEOUT_S):
                while await nodes.produce("target", b"x") is not ErrorCode.NONE:
                    await asyncio.sleep(0.05)
            await nodes.until_in_sync("target", nodes.ids)
        epochs = [node.metadata.image.epoch for node in nodes.nodes.values()]
        assert max(epochs) < NODES * (EPOCH_JUMP_MAX + 1_000)
    finally:
        await nodes.stop()
