"""Encode and decode the records of a consumer group (types 3 to 8 and 16 of `__consumer_offsets`) as Kafka 4.4 does.

Topics are sorted by id, and partitions by number. Kafka writes them in the order of its hash maps, which readers do not
use.
"""

from collections.abc import Iterable, Mapping
from typing import Final
from uuid import UUID

from odradek.coordinator.group.modern.member import ClassicMember, Member, Partitions
from odradek.coordinator.group.records import to_record
from odradek.protocol.records.consumer_group_current_member_assignment import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    TopicPartitions,
)
from odradek.protocol.records.consumer_group_member_metadata import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
)
from odradek.protocol.records.consumer_group_metadata import ConsumerGroupMetadataKey, ConsumerGroupMetadataValue
from odradek.protocol.records.consumer_group_partition_metadata import ConsumerGroupPartitionMetadataKey
from odradek.protocol.records.consumer_group_regular_expression import (
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
)
from odradek.protocol.records.consumer_group_target_assignment_member import (
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    TopicPartition,
)
from odradek.protocol.records.consumer_group_target_assignment_metadata import (
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from odradek.runtime.shard import ShardRecord

LOWEST_EPOCH: Final = 0
"""Minimum epoch of a partition in a record without epochs (before Kafka 4.3)."""


def group_record(group_id: str, epoch: int, metadata_hash: int) -> ShardRecord:
    return to_record(
        ConsumerGroupMetadataKey(group_id=group_id),
        ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def group_tombstone(group_id: str) -> ShardRecord:
    return to_record(ConsumerGroupMetadataKey(group_id=group_id), None)


def partition_metadata_tombstone(group_id: str) -> ShardRecord:
    return to_record(ConsumerGroupPartitionMetadataKey(group_id=group_id), None)


def member_record(group_id: str, member: Member) -> ShardRecord:
    classic = member.classic
    return to_record(
        ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id),
        ConsumerGroupMemberMetadataValue(
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=list(member.topics),
            subscribed_topic_regex=member.regex,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            server_assignor=member.assignor,
            classic_member_metadata=None
            if classic is None
            else ClassicMemberMetadata(
                session_timeout_ms=classic.session_timeout_ms,
                supported_protocols=[
                    ClassicProtocol(name=name, metadata=metadata) for name, metadata in classic.protocols
                ],
            ),
        ),
    )


def classic_member(value: ConsumerGroupMemberMetadataValue) -> ClassicMember | None:
    metadata = value.classic_member_metadata
    if metadata is None:
        return None
    protocols: dict[str, bytes] = {}
    for protocol in metadata.supported_protocols:  # a record of a hostile client can name one twice
        protocols.setdefault(protocol.name, bytes(protocol.metadata))
    return ClassicMember(metadata.session_timeout_ms, tuple(protocols.items()))


def member_tombstone(group_id: str, member_id: str) -> ShardRecord:
    return to_record(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None)


def target_metadata_record(group_id: str, epoch: int, timestamp_ms: int) -> ShardRecord:
    return to_record(
        ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms),
    )


def target_metadata_tombstone(group_id: str) -> ShardRecord:
    return to_record(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None)


def target_assignment_record(group_id: str, member_id: str, target: Mapping[bytes, Iterable[int]]) -> ShardRecord:
    return to_record(
        ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=[
                TopicPartition(topic_id=UUID(bytes=topic_id), partitions=sorted(target[topic_id]))
                for topic_id in sorted(target)
            ]
        ),
    )


def target_of(value: ConsumerGroupTargetAssignmentMemberValue) -> dict[bytes, frozenset[int]]:
    return {topic.topic_id.bytes: frozenset(topic.partitions) for topic in value.topic_partitions}


def target_assignment_tombstone(group_id: str, member_id: str) -> ShardRecord:
    return to_record(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None)


def current_assignment_record(group_id: str, member: Member) -> ShardRecord:
    return to_record(
        ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id),
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=member.epoch,
            previous_member_epoch=member.previous_epoch,
            state=int(member.state),
            assigned_partitions=_topics(member.assigned),
            partitions_pending_revocation=_topics(member.revoking),
        ),
    )


def current_assignment_tombstone(group_id: str, member_id: str) -> ShardRecord:
    return to_record(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None)


def _topics(partitions: Partitions) -> list[TopicPartitions]:
    topics = []
    for topic_id in sorted(partitions):
        epochs = sorted(partitions[topic_id].items())
        topics.append(
            TopicPartitions(
                topic_id=UUID(bytes=topic_id),
                partitions=[partition for partition, _ in epochs],
                assignment_epochs=[epoch for _, epoch in epochs],
            )
        )
    return topics


def partitions_of(topics: list[TopicPartitions], member_epoch: int) -> dict[bytes, dict[int, int]]:
    """Return topic id -> partition -> epoch. In records before Kafka 4.3, all partitions have the member's epoch."""
    partitions: dict[bytes, dict[int, int]] = {}
    for topic in topics:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = [max(member_epoch, LOWEST_EPOCH)] * len(topic.partitions)
        partitions[topic.topic_id.bytes] = dict(zip(topic.partitions, epochs, strict=True))
    return partitions


def regex_record(group_id: str, regex: str, topics: Iterable[str], version: int, timestamp_ms: int) -> ShardRecord:
    return to_record(
        ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex),
        ConsumerGroupRegularExpressionValue(topics=sorted(topics), version=version, timestamp=timestamp_ms),
    )


def regex_tombstone(group_id: str, regex: str) -> ShardRecord:
    return to_record(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), None)
