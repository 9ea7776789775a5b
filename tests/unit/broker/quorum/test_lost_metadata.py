"""A voter whose disk was replaced, or whose metadata rotted, is made whole by the others; nothing that was agreed is lost."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from odradek.cluster.raft.messages import Standing
from odradek.cluster.raft.quorum_state import FILE_NAME, STANDING
from odradek.protocol.internal_topics import CLUSTER_METADATA
from tests.support.several_nodes import Nodes

if TYPE_CHECKING:
    from pathlib import Path


def log_of(nodes: Nodes, node_id: int) -> Path:
    return nodes.directory / f"node-{node_id}" / f"{CLUSTER_METADATA}-0" / f"{0:020d}.log"


async def brought_up_again(nodes: Nodes, lost: int, log: Path, agreed: bytes) -> None:
    """Start the node, and let the others go on without the controller that they had. `agreed` was in its log once."""
    assert not log.exists() or not log.read_bytes().startswith(agreed)
    await nodes.start([lost])
    await nodes.create("after", [lost])
    core = nodes.nodes[lost].quorum.raft.core
    assert core.standing is Standing.ORDINARY
    assert {"before", "after"} <= set(nodes.nodes[lost].metadata.image.topics)
    state = (nodes.directory / f"node-{lost}" / f"{CLUSTER_METADATA}-0" / FILE_NAME).read_text()
    assert STANDING not in state
    assert log.read_bytes().startswith(agreed)
    await nodes.nodes.pop(nodes.controller).stop()
    rest = sorted(nodes.nodes)
    await nodes.create("at-last", rest)
    assert nodes.leader("at-last") in rest


async def test_a_voter_that_has_lost_its_disk(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, 3)
    await nodes.start()
    await nodes.create("before", [1, 2, 3])
    lost = next(node_id for node_id in nodes.ids if node_id != nodes.controller)
    await nodes.nodes.pop(lost).stop()
    log = log_of(nodes, lost)
    agreed = log.read_bytes()
    shutil.rmtree(tmp_path / f"node-{lost}")
    await brought_up_again(nodes, lost, log, agreed)
    await nodes.stop()


async def test_a_voter_whose_metadata_log_has_rotted(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path, 3)
    await nodes.start()
    await nodes.create("before", [1, 2, 3])
    lost = next(node_id for node_id in nodes.ids if node_id != nodes.controller)
    await nodes.nodes.pop(lost).stop()
    log = log_of(nodes, lost)
    agreed = log.read_bytes()
    rotten = bytearray(agreed)
    rotten[len(rotten) // 2] ^= 0x20
    log.write_bytes(rotten)
    await brought_up_again(nodes, lost, log, agreed)
    await nodes.stop()
