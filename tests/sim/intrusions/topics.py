"""Attempts of the hostile tenant on the topics of other tenants."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from odradek.protocol.messages import (
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_producers,
    describe_topic_partitions,
    fetch,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
)
from tests.sim.checkers.isolation import MARK
from tests.sim.intrusions.attempt import BY_ID, ID, TIMEOUT_MS, TOPIC, Attempt, Target
from tests.sim.options.tenants import MALLORY_ID, MALLORY_TOPIC
from tests.sim.workloads.encode import TRANSACTIONAL, encode_batch

if TYPE_CHECKING:
    from odradek.protocol.schema import Message


def _batch(target: Target, *, transactional: bool) -> bytes:
    if not transactional:
        return encode_batch([(None, MARK)], timestamp=0)
    return encode_batch(
        [(None, MARK)],
        timestamp=0,
        producer_id=target.producer_id,
        producer_epoch=target.producer_epoch,
        base_sequence=0,
        attributes=TRANSACTIONAL,
    )


def _produce(target: Target, transactional_id: str | None, topic: str) -> "Message":
    batch = _batch(target, transactional=transactional_id is not None)
    data = [produce.PartitionProduceData(0, batch)]
    return produce.ProduceRequest(
        transactional_id, -1, TIMEOUT_MS, [produce.TopicProduceData(topic, partition_data=data)]
    )


def _produce_to_two(target: Target) -> "Message":
    """Return a request whose first batch is for a topic of its sender."""
    data = [produce.PartitionProduceData(0, _batch(target, transactional=True))]
    topics = [produce.TopicProduceData(name, partition_data=data) for name in (MALLORY_TOPIC, target.topic)]
    return produce.ProduceRequest(target.transactional_id, -1, TIMEOUT_MS, topics)


def _produce_by_id(target: Target) -> "Message":
    data = [produce.PartitionProduceData(0, _batch(target, transactional=False))]
    topic = produce.TopicProduceData(topic_id=target.topic_id, partition_data=data)
    return produce.ProduceRequest(None, -1, TIMEOUT_MS, [topic])


def _fetch(target: Target) -> "Message":
    rows = [fetch.FetchTopic(target.topic, target.topic_id, [fetch.FetchPartition(partition_max_bytes=100_000)])]
    return fetch.FetchRequest(max_bytes=100_000, topics=rows)


def _list_offsets(target: Target) -> "Message":
    rows = [list_offsets.ListOffsetsTopic(target.topic, [list_offsets.ListOffsetsPartition(timestamp=-1)])]
    return list_offsets.ListOffsetsRequest(-1, 0, rows)


def _leader_epoch(target: Target) -> "Message":
    rows = [offset_for_leader_epoch.OffsetForLeaderPartition(0, -1, 0)]
    topics = [offset_for_leader_epoch.OffsetForLeaderTopic(target.topic, rows)]
    return offset_for_leader_epoch.OffsetForLeaderEpochRequest(-1, topics)


def _describe_producers(target: Target) -> "Message":
    return describe_producers.DescribeProducersRequest([describe_producers.TopicRequest(target.topic, [0])])


def _delete_records(target: Target) -> "Message":
    rows = [delete_records.DeleteRecordsTopic(target.topic, [delete_records.DeleteRecordsPartition(0, -1)])]
    return delete_records.DeleteRecordsRequest(rows, TIMEOUT_MS)


def _delete_topic(state: delete_topics.DeleteTopicState) -> "Message":
    return delete_topics.DeleteTopicsRequest([state], timeout_ms=TIMEOUT_MS)


def _create_partitions(target: Target) -> "Message":
    topics = [create_partitions.CreatePartitionsTopic(target.topic, 9, None)]
    return create_partitions.CreatePartitionsRequest(topics, TIMEOUT_MS)


def _create_topic(_target: Target) -> "Message":
    return create_topics.CreateTopicsRequest([create_topics.CreatableTopic("bob-new", 1, -1)], TIMEOUT_MS)


ON_TOPICS: Final[Mapping[str, Attempt]] = {
    "Produce": Attempt(lambda t: _produce(t, None, t.topic), (9, 11), TOPIC),
    "Produce by topic id": Attempt(_produce_by_id, (13,), BY_ID, compared=False),
    "Produce with another transactional id": Attempt(
        lambda t: _produce(t, t.transactional_id, MALLORY_TOPIC), (11,), ID
    ),
    "Produce to two topics with another transactional id": Attempt(_produce_to_two, (11,), ID),
    "Produce in an own transaction": Attempt(lambda t: _produce(t, MALLORY_ID, t.topic), (11, 12), TOPIC),
    "Fetch": Attempt(_fetch, (4, 12), TOPIC),
    "Fetch by topic id": Attempt(_fetch, (13, 17), BY_ID, compared=False),
    "ListOffsets": Attempt(_list_offsets, (1, 5, 7), TOPIC),
    "OffsetForLeaderEpoch": Attempt(_leader_epoch, (4,), TOPIC),
    "DescribeProducers": Attempt(_describe_producers, (0,), TOPIC),
    "Metadata of all topics": Attempt(lambda _: metadata.MetadataRequest(None), (9, 12), None),
    "Metadata": Attempt(
        lambda t: metadata.MetadataRequest([metadata.MetadataRequestTopic(name=t.topic)]), (9, 12), TOPIC
    ),
    "Metadata by topic id": Attempt(
        lambda t: metadata.MetadataRequest([metadata.MetadataRequestTopic(t.topic_id, None)]),
        (12,),
        BY_ID,
        compared=False,
    ),
    "DescribeTopicPartitions": Attempt(
        lambda t: describe_topic_partitions.DescribeTopicPartitionsRequest(
            [describe_topic_partitions.TopicRequest(t.topic)]
        ),
        (0,),
        TOPIC,
    ),
    "DescribeTopicPartitions of all topics": Attempt(
        lambda _: describe_topic_partitions.DescribeTopicPartitionsRequest([]), (0,), None
    ),
    "DeleteRecords": Attempt(_delete_records, (2,), TOPIC),
    "DeleteTopics": Attempt(lambda t: _delete_topic(delete_topics.DeleteTopicState(t.topic)), (6,), TOPIC),
    "DeleteTopics by topic id": Attempt(
        lambda t: _delete_topic(delete_topics.DeleteTopicState(None, t.topic_id)), (6,), BY_ID, compared=False
    ),
    "CreatePartitions": Attempt(_create_partitions, (3,), TOPIC),
    "CreateTopics": Attempt(_create_topic, (7,), TOPIC),
}
"""Requests by name."""
