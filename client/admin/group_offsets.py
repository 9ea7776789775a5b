"""Committed offsets of groups: fetch and commit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from odradek.client.errors import Refused, check
from odradek.client.network.cluster import CoordinatorType
from odradek.client.network.metadata import TopicPartition
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from odradek.protocol.special_values import NO_COMMITTED_OFFSET

if TYPE_CHECKING:
    from collections.abc import Sequence

    from odradek.client.network.cluster import Cluster
    from odradek.protocol.messages.offset_fetch import OffsetFetchResponseGroup

NAMES_VERSION_MAX: Final = 9
"""Last version of OffsetFetch and OffsetCommit with topic names.

A deleted topic has no id, which later versions require.
"""


class CommittedOffset(NamedTuple):
    """A committed offset of a group, with the metadata of the client. Pending offsets are left out."""

    offset: int
    metadata: str


@dataclass(frozen=True, slots=True)
class PlannedOffset:
    """A partition with its committed offset, or None if it has none, and its new offset."""

    topic: str
    partition: int
    committed: int | None
    new: int


async def committed_offsets(
    cluster: Cluster, group: str, *, require_stable: bool = False
) -> dict[TopicPartition, CommittedOffset]:
    """Return all committed offsets of a group. The result is empty if the group does not exist.

    With `require_stable`, wait for the end of transactions that change the offsets. Apache Kafka does not
    wait for a partition without a committed offset.
    """
    response = await cluster.request_coordinator(
        CoordinatorType.GROUP,
        group,
        OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group, topics=None)], require_stable=require_stable
        ),
        lambda response: (
            int(response.groups[0].error_code) or (_first_error(response.groups[0]) if require_stable else 0)
        ),
        version_max=NAMES_VERSION_MAX,
    )
    if response.groups[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return {}
    check(response.groups[0].error_code, f"offsets of group {group}")
    if require_stable:
        check(_first_error(response.groups[0]), f"offsets of group {group}")
    return committed_by_partition(response.groups[0])


def committed_by_partition(group: OffsetFetchResponseGroup) -> dict[TopicPartition, CommittedOffset]:
    """Return the offsets of one group of an OffsetFetch response."""
    return {
        TopicPartition(topic.name, row.partition_index): CommittedOffset(row.committed_offset, row.metadata or "")
        for topic in group.topics
        for row in topic.partitions
        if row.error_code == ErrorCode.NONE and row.committed_offset != NO_COMMITTED_OFFSET
    }


async def share_offsets(cluster: Cluster, group: str) -> dict[TopicPartition, CommittedOffset]:
    """Return the start offsets of a share group (KIP-932): all records before them are acknowledged or archived."""
    response = await cluster.request_coordinator(
        CoordinatorType.GROUP,
        group,
        DescribeShareGroupOffsetsRequest(groups=[DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)]),
        lambda response: int(response.groups[0].error_code),
    )
    check(response.groups[0].error_code, f"offsets of share group {group}", response.groups[0].error_message)
    return {
        TopicPartition(topic.topic_name, row.partition_index): CommittedOffset(row.start_offset, "")
        for topic in response.groups[0].topics
        for row in topic.partitions
        if row.error_code == ErrorCode.NONE and row.start_offset != NO_COMMITTED_OFFSET
    }


async def commit_offsets(cluster: Cluster, group: str, plan: Sequence[PlannedOffset]) -> None:
    """Commit the new offsets of a plan. Raise Refused if the group has members or a partition was refused."""
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for row in plan:
        partition = OffsetCommitRequestPartition(partition_index=row.partition, committed_offset=row.new)
        topics.setdefault(row.topic, []).append(partition)
    rows = [OffsetCommitRequestTopic(name=name, partitions=partitions) for name, partitions in topics.items()]
    response = await cluster.request_coordinator(
        CoordinatorType.GROUP,
        group,
        OffsetCommitRequest(group_id=group, topics=rows),
        _first_error,
        version_max=NAMES_VERSION_MAX,
    )
    for topic in response.topics:
        for partition in topic.partitions:
            key = TopicPartition(topic.name, partition.partition_index)
            if partition.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                problem = f"{key} was not reset: group {group} has members"
                raise Refused(problem, "stop its consumers first", code=partition.error_code)
            check(partition.error_code, f"{key} was not reset")


def _first_error(response: Any) -> int:
    codes = (partition.error_code for topic in response.topics for partition in topic.partitions)
    return next((int(code) for code in codes if code != ErrorCode.NONE), ErrorCode.NONE)
