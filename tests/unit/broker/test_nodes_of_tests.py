"""What tests of several nodes wait for is true of all of them."""

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
from tests.support.several_nodes import Nodes

TOPIC_ID = UUID(int=7)


class Lagging:
    """The metadata of two nodes, each as far as the test has let it come."""

    def __init__(self, directory: Path) -> None:
        self.nodes = Nodes(directory, 2)
        self.log: list[MetadataRecord] = []
        self.caches = {1: MetadataCache(), 2: MetadataCache()}
        made: Any = {node_id: SimpleNamespace(metadata=cache) for node_id, cache in self.caches.items()}
        self.nodes.nodes = made

    def hear(self, *node_ids: int) -> None:
        for node_id in node_ids:
            cache = self.caches[node_id]
            for offset in range(cache.image.offset + 1, len(self.log)):
                cache.on_committed([LogBatch(offset, offset, 1, ((None, encode_record(self.log[offset])),))])


async def test_a_node_that_lags_behind_is_not_asked_what_was_true_before(tmp_path: Path) -> None:
    lagging = Lagging(tmp_path)
    partition = PartitionRecord(partition_id=0, topic_id=TOPIC_ID, replicas=[1, 2], isr=[1, 2], leader=1)
    lagging.log += [TopicRecord(name="t", topic_id=TOPIC_ID), partition]
    lagging.hear(1, 2)
    lagging.log.append(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, isr=[1]))
    lagging.hear(2)
    waiting = asyncio.ensure_future(lagging.nodes.until_in_sync("t", [1, 2]))
    await asyncio.sleep(0)
    lagging.log.append(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, isr=[2, 1]))
    lagging.hear(2)
    for _ in range(20):
        await asyncio.sleep(0)
    assert not waiting.done()
    lagging.hear(1)
    await waiting
    lagging.nodes.nodes.clear()
    await lagging.nodes.stop()
