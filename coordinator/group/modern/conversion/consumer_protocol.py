"""Convert between assignments by topic id, as the coordinator keeps them, and the consumer protocol of members."""

from collections.abc import Iterable, Mapping

from odradek.coordinator.group.modern.state import Assignment
from odradek.coordinator.group.ports import Topics
from odradek.protocol.consumer_protocol import encode_assignment
from odradek.protocol.records.consumer_protocol_assignment import ConsumerProtocolAssignment, TopicPartition


def by_topic_id(names: Iterable[tuple[str, Iterable[int]]], topics: Topics) -> dict[bytes, frozenset[int]]:
    """Return the partitions by topic id. Topics that do not exist are omitted."""
    found = {}
    for name, partitions in names:
        topic = topics.by_name(name)
        if topic is not None:
            found[topic.topic_id] = frozenset(partitions)
    return found


def written_assignment(assignment: Assignment | Mapping[bytes, Iterable[int]], topics: Topics, version: int) -> bytes:
    """Encode an assignment in the `version` of the member's subscription. Topics that do not exist any more are omitted."""
    assigned = []
    for topic_id in sorted(assignment):
        topic = topics.by_id(topic_id)
        if topic is not None:
            assigned.append(TopicPartition(topic=topic.name, partitions=sorted(assignment[topic_id])))
    message = ConsumerProtocolAssignment(assigned_partitions=assigned)
    return encode_assignment(message, version)
