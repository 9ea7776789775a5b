"""The embedded protocol of consumers: what members of the classic protocol say in their metadata and are assigned.

An int16 version, and then the message in it. A version that is newer than ours is read as our newest: fields are only
ever added at the end.
"""

from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from odradek.coordinator.group.modern.state import Assignment
from odradek.coordinator.group.ports import Topics
from odradek.protocol.codec import decode_prefix, encode
from odradek.protocol.errors import Malformed
from odradek.protocol.records.consumer_protocol_assignment import ConsumerProtocolAssignment, TopicPartition
from odradek.protocol.records.consumer_protocol_subscription import ConsumerProtocolSubscription
from odradek.protocol.schema import Message

M = TypeVar("M", bound=Message)

VERSION_BYTES: Final = 2


def version_of(metadata: bytes) -> int:
    """The version that a member writes, or our newest where that is older. Raises Malformed."""
    if len(metadata) < VERSION_BYTES:
        raise Malformed("consumer protocol: no version")
    version = int.from_bytes(metadata[:VERSION_BYTES], "big", signed=True)
    if version < ConsumerProtocolSubscription.MIN_VERSION:
        raise Malformed(f"consumer protocol: version {version}")
    return min(version, ConsumerProtocolSubscription.MAX_VERSION)


def _read(message: type[M], data: bytes) -> M:
    return decode_prefix(message, version_of(data), data, VERSION_BYTES)[0]


def subscription_of(metadata: bytes) -> ConsumerProtocolSubscription:
    """Raises Malformed."""
    return _read(ConsumerProtocolSubscription, metadata)


def assignment_of(data: bytes) -> ConsumerProtocolAssignment:
    """Raises Malformed."""
    return _read(ConsumerProtocolAssignment, data)


def by_topic_id(names: Iterable[tuple[str, Iterable[int]]], topics: Topics) -> dict[bytes, frozenset[int]]:
    """Topics that do not exist are left out."""
    found = {}
    for name, partitions in names:
        topic = topics.by_name(name)
        if topic is not None:
            found[topic.topic_id] = frozenset(partitions)
    return found


def written_assignment(assignment: Assignment | Mapping[bytes, Iterable[int]], topics: Topics, version: int) -> bytes:
    """As a member that writes `version` reads it; topics that do not exist any more are left out."""
    assigned = []
    for topic_id in sorted(assignment):
        topic = topics.by_id(topic_id)
        if topic is not None:
            assigned.append(TopicPartition(topic=topic.name, partitions=sorted(assignment[topic_id])))
    message = ConsumerProtocolAssignment(assigned_partitions=assigned)
    return version.to_bytes(VERSION_BYTES, "big") + encode(message, version)
