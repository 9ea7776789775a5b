"""The internal topic of a coordinator in the metadata image (broker/coordinators/image_ports.py)."""

from __future__ import annotations

from uuid import UUID

from odradek.broker.coordinators.image_ports import CoordinatorTopic
from odradek.cluster.metadata.cache import MetadataCache
from odradek.cluster.metadata.records import (
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
    encode_record,
)
from odradek.cluster.raft.batches import LogBatch
from odradek.protocol.internal_topics import TRANSACTION_STATE

TOPIC_ID = UUID(int=1 << 80)


def commit(metadata: MetadataCache, *records: MetadataRecord) -> None:
    first = metadata.image.offset + 1
    values = tuple((None, encode_record(record)) for record in records)
    metadata.on_committed([LogBatch(first, first + len(records) - 1, 1, values, 0, 0)])


def partition(index: int, leader: int, leader_epoch: int) -> PartitionRecord:
    return PartitionRecord(
        partition_id=index,
        topic_id=TOPIC_ID,
        replicas=[1, 2],
        isr=[1, 2],
        leader=leader,
        leader_epoch=leader_epoch,
        partition_epoch=0,
    )


def test_leaders_and_highest_epoch_follow_the_image() -> None:
    metadata = MetadataCache()
    topic = CoordinatorTopic(TRANSACTION_STATE, metadata, 50)
    assert (topic.partitions(), topic.leaders(), topic.leader_epoch_max()) == (50, (), 0)

    created = TopicRecord(name=TRANSACTION_STATE, topic_id=TOPIC_ID)
    commit(metadata, created, partition(0, 1, leader_epoch=4), partition(1, 2, leader_epoch=7))
    assert (topic.leader_epoch_max(), topic.partitions(), topic.leaders()) == (7, 2, (1, 2))
    assert [topic.leads(2, shard) for shard in range(3)] == [False, True, False]

    commit(metadata, *(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=2) for _ in range(4)))
    assert (topic.leader_epoch_max(), topic.leaders()) == (8, (2, 2))

    commit(metadata, RemoveTopicRecord(topic_id=TOPIC_ID))
    assert (topic.leader_epoch_max(), topic.leaders()) == (0, ())
