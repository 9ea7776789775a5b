"""A voter with a replaced disk or a damaged metadata log fetches the log from the other voters (decision 0040)."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from odradek.cluster.raft.messages import Standing
from odradek.cluster.raft.quorum_state import FILE_NAME, STANDING
from odradek.protocol.internal_topics import CLUSTER_METADATA
from tests.support.node_cluster import NodeCluster

if TYPE_CHECKING:
    from pathlib import Path


def log_of(nodes: NodeCluster, node_id: int) -> Path:
    return nodes.directory / f"node-{node_id}" / f"{CLUSTER_METADATA}-0" / f"{0:020d}.log"


async def restart_and_verify(nodes: NodeCluster, lost: int, log: Path, committed: bytes) -> None:
    """Start node `lost`, verify that its log has the `committed` bytes again, and stop the controller.

    The remaining nodes must elect another controller.
    """
    assert not log.exists() or not log.read_bytes().startswith(committed)
    await nodes.start([lost])
    await nodes.create("after", [lost])
    core = nodes.nodes[lost].quorum.raft.core
    assert core.standing is Standing.ORDINARY
    assert {"before", "after"} <= set(nodes.nodes[lost].metadata.image.topics)
    state = (nodes.directory / f"node-{lost}" / f"{CLUSTER_METADATA}-0" / FILE_NAME).read_text()
    assert STANDING not in state
    assert log.read_bytes().startswith(committed)
    await nodes.nodes.pop(nodes.controller).stop()
    remaining = sorted(nodes.nodes)
    await nodes.create("final", remaining)
    assert nodes.leader("final") in remaining


async def test_voter_with_a_replaced_disk_recovers_the_metadata_log(tmp_path: Path) -> None:
    nodes = NodeCluster(tmp_path, 3)
    await nodes.start()
    await nodes.create("before", [1, 2, 3])
    lost = next(node_id for node_id in nodes.ids if node_id != nodes.controller)
    await nodes.nodes.pop(lost).stop()
    log = log_of(nodes, lost)
    committed = log.read_bytes()
    shutil.rmtree(tmp_path / f"node-{lost}")
    await restart_and_verify(nodes, lost, log, committed)
    await nodes.stop()


async def test_voter_with_a_damaged_metadata_log_recovers_it(tmp_path: Path) -> None:
    nodes = NodeCluster(tmp_path, 3)
    await nodes.start()
    await nodes.create("before", [1, 2, 3])
    lost = next(node_id for node_id in nodes.ids if node_id != nodes.controller)
    await nodes.nodes.pop(lost).stop()
    log = log_of(nodes, lost)
    committed = log.read_bytes()
    damaged = bytearray(committed)
    damaged[len(damaged) // 2] ^= 0x20
    log.write_bytes(damaged)
    await restart_and_verify(nodes, lost, log, committed)
    await nodes.stop()
