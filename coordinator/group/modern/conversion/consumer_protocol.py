"""Convert between assignments by topic id and the embedded consumer protocol of classic members."""

from collections.abc import Iterable, Mapping

from odradek.coordinator.group.modern.state import Assignment
from odradek.coordinator.group.ports import Topics
from odradek.protocol.consumer_protocol import encode_assignment
from odradek.protocol.records.consumer_protocol_assignment import ConsumerProtocolAssignment, TopicPartition


def partitions_by_topic_id(names: Iterable[tuple[str, Iterable[int]]], topics: Topics) -> dict[bytes, frozenset[int]]:
    """Return the partitions by topic id. Topics and partitions that do not exist are omitted."""
    partitions_by_id = {}
    for name, partitions in names:
        topic = topics.by_name(name)
        if topic is not None:
            partitions_by_id[topic.topic_id] = frozenset(
                partition for partition in partitions if 0 <= partition < topic.partitions
            )
    return partitions_by_id


def encode_member_assignment(
    assignment: Assignment | Mapping[bytes, Iterable[int]], topics: Topics, version: int
) -> bytes:
    """Encode an assignment in the `version` of the member's subscription. Topics that do not exist are omitted."""
    assigned = []
    for topic_id in sorted(assignment):
        topic = topics.by_id(topic_id)
        if topic is not None:
            assigned.append(TopicPartition(topic=topic.name, partitions=sorted(assignment[topic_id])))
    message = ConsumerProtocolAssignment(assigned_partitions=assigned)
    return encode_assignment(message, version)
