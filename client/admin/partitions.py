"""Partitions: add to a topic, move between brokers, elect leaders, delete records."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final, TypeVar

from odradek.client.errors import NotFound, check, refused
from odradek.client.network.fan_out import FanOut
from odradek.client.network.metadata import TopicPartition
from odradek.client.network.settings import BROKER_TIMEOUT_MS
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from odradek.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from odradek.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from odradek.client.network.cluster import Cluster
    from odradek.protocol.schema import Message

T = TypeVar("T")
HIGH_WATERMARK: Final = -1
"""Offset that stands for the high watermark: all records are deleted."""


class ElectionType(IntEnum):
    """Rule by which a leader is elected: the preferred replica, or any replica if no replica in sync is left."""

    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A partition whose replicas are moved. `replicas` are all present ones, by node id."""

    topic: str
    partition: int
    replicas: list[int]
    adding: list[int]
    removing: list[int]


async def partitions_of(cluster: Cluster, scope: Mapping[str, Sequence[int]]) -> list[TopicPartition]:
    """Return the partitions of a scope, in which an empty list means all partitions of a topic. Raise NotFound."""
    found = []
    for name, indexes in scope.items():
        topic = await cluster.topic(name, refresh=True)
        found += [TopicPartition(name, topic.partition(index).index) for index in indexes or topic.partitions]
    return found


async def add_partitions(cluster: Cluster, topic: str, count: int, *, validate_only: bool = False) -> None:
    """Increase the number of partitions of a topic to `count`. Raise Refused."""
    wanted = CreatePartitionsTopic(name=topic, count=count, assignments=None)
    request = CreatePartitionsRequest(topics=[wanted], timeout_ms=BROKER_TIMEOUT_MS, validate_only=validate_only)
    result = (await cluster.request_any(request)).results[0]
    check(result.error_code, f"partitions were not added to {topic}", result.error_message)


async def reassign_partitions(cluster: Cluster, replicas: Mapping[TopicPartition, Sequence[int] | None]) -> None:
    """Begin to move partitions to these replicas, by node id. None cancels a reassignment. Raise Refused."""
    topics = [
        ReassignableTopic(
            name=name,
            partitions=[
                ReassignablePartition(partition_index=index, replicas=None if nodes is None else list(nodes))
                for index, nodes in rows.items()
            ],
        )
        for name, rows in _by_topic(replicas).items()
    ]
    response = await cluster.request_any(
        AlterPartitionReassignmentsRequest(topics=topics, timeout_ms=BROKER_TIMEOUT_MS)
    )
    check(response.error_code, "the partitions were not reassigned", response.error_message)
    for topic in response.responses:
        for row in topic.partitions:
            what = f"{topic.name}-{row.partition_index} was not reassigned"
            check(row.error_code, what, row.error_message)


async def list_reassignments(cluster: Cluster) -> list[Reassignment]:
    """Return the partitions whose replicas are being moved. Raise Refused."""
    response = await cluster.request_any(ListPartitionReassignmentsRequest(topics=None, timeout_ms=BROKER_TIMEOUT_MS))
    check(response.error_code, "the reassignments were not listed", response.error_message)
    return [
        Reassignment(
            topic.name,
            row.partition_index,
            list(row.replicas),
            list(row.adding_replicas),
            list(row.removing_replicas),
        )
        for topic in sorted(response.topics, key=lambda topic: topic.name)
        for row in sorted(topic.partitions, key=lambda row: row.partition_index)
    ]


async def elect_leaders(
    cluster: Cluster, partitions: Iterable[TopicPartition] | None, election: ElectionType = ElectionType.PREFERRED
) -> list[TopicPartition]:
    """Elect the leaders of partitions, or of all if `partitions` is None. Return those with a new leader.

    Raises:
        Refused: A leader cannot be elected.
    """
    wanted = None
    if partitions is not None:
        rows = _by_topic(dict.fromkeys(partitions))
        wanted = [TopicPartitions(topic=name, partitions=list(indexes)) for name, indexes in rows.items()]
    request = ElectLeadersRequest(election_type=election, topic_partitions=wanted, timeout_ms=BROKER_TIMEOUT_MS)
    response = await cluster.request_any(request)
    check(response.error_code, "no leader was elected")
    elected = []
    for result in response.replica_election_results:
        for row in result.partition_result:
            partition = TopicPartition(result.topic, row.partition_id)
            if row.error_code == ErrorCode.NONE:
                elected.append(partition)
            elif row.error_code != ErrorCode.ELECTION_NOT_NEEDED:
                raise refused(row.error_code, f"no leader of {partition} was elected", row.error_message)
    return sorted(elected)


async def delete_records(cluster: Cluster, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Delete the records before an offset of each partition. Return the new log start offsets.

    HIGH_WATERMARK deletes all committed records.

    Raises:
        NotFound: A topic or a partition does not exist.
        Refused: A leader refuses.
    """
    by_leader: dict[int, dict[TopicPartition, int]] = {}
    topics = {name: await cluster.topic(name, refresh=True) for name in _by_topic(offsets)}
    for key, offset in offsets.items():
        leader = topics[key.topic].partition(key.partition).leader
        if leader < 0:
            raise NotFound(f"{key} has no leader", "start its brokers", code=ErrorCode.LEADER_NOT_AVAILABLE)
        by_leader.setdefault(leader, {})[key] = offset
    requests: dict[int, Message] = {leader: _deletion(rows) for leader, rows in by_leader.items()}
    responses = await FanOut(cluster).request_each(requests)
    deleted = {}
    for response in responses.values():
        for topic in response.topics:
            for row in topic.partitions:
                key = TopicPartition(topic.name, row.partition_index)
                what = f"records of {key} were not deleted"
                if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    remedy = f"see the offsets of the log: odradek topics describe {topic.name}"
                    raise refused(row.error_code, what, remedy=remedy)
                check(row.error_code, what)
                deleted[key] = row.low_watermark
    return dict(sorted(deleted.items()))


def _deletion(offsets: Mapping[TopicPartition, int]) -> DeleteRecordsRequest:
    topics = [
        DeleteRecordsTopic(name=name, partitions=[DeleteRecordsPartition(*row) for row in rows.items()])
        for name, rows in _by_topic(offsets).items()
    ]
    return DeleteRecordsRequest(topics=topics, timeout_ms=BROKER_TIMEOUT_MS)


def _by_topic(rows: Mapping[TopicPartition, T]) -> dict[str, dict[int, T]]:
    found: dict[str, dict[int, T]] = {}
    for key, value in rows.items():
        found.setdefault(key.topic, {})[key.partition] = value
    return found
