"""Log directories of brokers: their size, those that failed, and the replicas that a broker does not serve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek.client.admin.topics import topics_named
from odradek.client.network.fan_out import FanOut
from odradek.client.network.metadata import TopicPartition
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from odradek.client.network.cluster import Cluster

Assigned = dict[int, list[TopicPartition]]
"""Partitions by the node id of each broker that has a replica."""


@dataclass(frozen=True, slots=True)
class LogDirs:
    """Log directories of one broker.

    Attributes:
        log_bytes: Size of all logs.
        offline: Directories that failed.
        replicas: Partitions whose replicas the broker serves. Those of a failed directory or log are absent.
    """

    log_bytes: int
    offline: list[str]
    replicas: frozenset[TopicPartition]


async def log_dirs(cluster: Cluster, node_ids: Iterable[int]) -> dict[int, LogDirs]:
    """Return the log directories by node id, without the brokers that do not return them."""
    fan_out = FanOut(cluster, tolerant=True)
    responses = await fan_out.request_each({node_id: DescribeLogDirsRequest(topics=None) for node_id in node_ids})
    return {node_id: _of(response) for node_id, response in responses.items() if not response.error_code}


def _of(response: DescribeLogDirsResponse) -> LogDirs:
    sizes = {
        TopicPartition(topic.name, partition.partition_index): partition.partition_size
        for result in response.results
        for topic in result.topics
        for partition in topic.partitions
    }
    offline = [result.log_dir for result in response.results if result.error_code == ErrorCode.KAFKA_STORAGE_ERROR]
    return LogDirs(sum(sizes.values()), offline, frozenset(sizes))


async def offline_partitions(cluster: Cluster, found: Mapping[int, LogDirs], assigned: Assigned) -> Assigned:
    """Return the partitions of `assigned` that the brokers do not serve, by node id.

    A topic that is created or deleted meanwhile is on some brokers only. The metadata and the log directories are
    therefore requested again, and only partitions that are absent both times count.
    """
    absent = _absent(found, assigned)
    if not absent:
        return {}
    topics = await topics_named(cluster, None)
    still_assigned: Assigned = {
        node_id: [
            TopicPartition(topic.name, index)
            for topic in topics
            for index, partition in topic.partitions.items()
            if node_id in partition.replicas
        ]
        for node_id in absent
    }
    again = _absent(await log_dirs(cluster, absent), still_assigned)
    both = {node_id: [key for key in keys if key in again.get(node_id, ())] for node_id, keys in absent.items()}
    return {node_id: keys for node_id, keys in both.items() if keys}


def _absent(found: Mapping[int, LogDirs], assigned: Assigned) -> Assigned:
    absent = {
        node_id: [key for key in assigned.get(node_id, ()) if key not in directories.replicas]
        for node_id, directories in found.items()
    }
    return {node_id: keys for node_id, keys in absent.items() if keys}
