"""NodeCluster.until_in_sync (tests.support.node_cluster) waits until every node has the newest metadata."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from odradek.cluster.metadata.cache import MetadataCache
from odradek.cluster.metadata.records import (
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
    encode_record,
)
from odradek.cluster.raft.batches import LogBatch
from tests.support.node_cluster import NodeCluster

TOPIC_ID = UUID(int=7)


class LaggingNodes:
    """Two fake nodes with metadata caches. `replicate` brings the caches of the named nodes to the end of the log."""

    def __init__(self, directory: Path) -> None:
        self.nodes = NodeCluster(directory, 2)
        self.log: list[MetadataRecord] = []
        self.caches = {1: MetadataCache(), 2: MetadataCache()}
        fake_nodes: Any = {node_id: SimpleNamespace(metadata=cache) for node_id, cache in self.caches.items()}
        self.nodes.nodes = fake_nodes

    def replicate(self, *node_ids: int) -> None:
        for node_id in node_ids:
            cache = self.caches[node_id]
            for offset in range(cache.image.offset + 1, len(self.log)):
                cache.on_committed([LogBatch(offset, offset, 1, ((None, encode_record(self.log[offset])),))])


async def test_until_in_sync_ignores_the_older_image_of_a_lagging_node(tmp_path: Path) -> None:
    lagging = LaggingNodes(tmp_path)
    partition = PartitionRecord(partition_id=0, topic_id=TOPIC_ID, replicas=[1, 2], isr=[1, 2], leader=1)
    lagging.log += [TopicRecord(name="t", topic_id=TOPIC_ID), partition]
    lagging.replicate(1, 2)
    lagging.log.append(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, isr=[1]))
    lagging.replicate(2)
    waiting = asyncio.ensure_future(lagging.nodes.until_in_sync("t", [1, 2]))
    await asyncio.sleep(0)
    lagging.log.append(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, isr=[2, 1]))
    lagging.replicate(2)
    for _ in range(20):
        await asyncio.sleep(0)
    assert not waiting.done()
    lagging.replicate(1)
    await waiting
    lagging.nodes.nodes.clear()
    await lagging.nodes.stop()
