"""Topics and their partitions with offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from odradek.client.client import Cluster, Failed, Unaskable, check
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from odradek.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from odradek.protocol.messages.metadata import MetadataResponseTopic

TIMEOUT_MS = 30_000
CONSUMER, DEBUGGER = -1, -2
"""Who asks for offsets: the latter is told the end of the leader's log, whatever is committed."""
EARLIEST, LATEST = -2, -1
READ_UNCOMMITTED, READ_COMMITTED = 0, 1

Offsets = dict[tuple[str, int], int]


def listing(cluster: Cluster) -> list[dict[str, Any]]:
    return [
        {
            "name": topic.name,
            "topic_id": str(topic.topic_id),
            "internal": topic.is_internal,
            "partitions": len(topic.partitions),
            "replication_factor": max((len(partition.replica_nodes) for partition in topic.partitions), default=0),
        }
        for topic in sorted(cluster.refresh(None).topics, key=lambda topic: topic.name or "")
    ]


def named(cluster: Cluster, names: Sequence[str] | None) -> list[MetadataResponseTopic]:
    """Topics with their partitions; None means all. Raises Failed when one does not exist."""
    topics = cluster.refresh(names).topics
    for topic in topics:
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise Failed(f"topic {topic.name} does not exist; the topics that there are: odradek topics list")
        if topic.error_code != ErrorCode.LEADER_NOT_AVAILABLE:
            check(topic.error_code, f"topic {topic.name}")
    return sorted(topics, key=lambda topic: topic.name or "")


def offsets(
    cluster: Cluster, topics: list[MetadataResponseTopic], timestamp: int, isolation: int, asker: int = CONSUMER
) -> Offsets:
    """One kind of offset of every partition that has a leader: one request a leader."""
    by_leader: dict[int, list[ListOffsetsTopic]] = {}
    for topic in topics:
        leaders: dict[int, list[ListOffsetsPartition]] = {}
        for partition in topic.partitions:
            wanted = ListOffsetsPartition(partition_index=partition.partition_index, timestamp=timestamp)
            leaders.setdefault(partition.leader_id, []).append(wanted)
        for leader, partitions in leaders.items():
            by_leader.setdefault(leader, []).append(ListOffsetsTopic(name=topic.name or "", partitions=partitions))
    found: Offsets = {}
    for leader, asked in by_leader.items():
        if leader < 0:
            continue
        request = ListOffsetsRequest(replica_id=asker, isolation_level=isolation, topics=asked, timeout_ms=TIMEOUT_MS)
        answered = cluster.ask(leader, request)
        for answer in answered.topics if answered is not None else ():
            for partition in answer.partitions:
                if partition.error_code == ErrorCode.NONE:
                    found[answer.name, partition.partition_index] = partition.offset
    return found


def partitions(cluster: Cluster, names: Sequence[str] | None) -> list[dict[str, Any]]:
    """Every partition with leader, replicas, and the offsets that clients see; None where nobody leads it."""
    topics = named(cluster, names)
    start = offsets(cluster, topics, EARLIEST, READ_UNCOMMITTED)
    stable = offsets(cluster, topics, LATEST, READ_COMMITTED)
    high = offsets(cluster, topics, LATEST, READ_UNCOMMITTED)
    end = offsets(cluster, topics, LATEST, READ_UNCOMMITTED, DEBUGGER)
    return [
        {
            "topic": topic.name,
            "partition": partition.partition_index,
            "internal": topic.is_internal,
            "leader": partition.leader_id,
            "leader_epoch": partition.leader_epoch,
            "replicas": partition.replica_nodes,
            "isr": partition.isr_nodes,
            "log_start": start.get((topic.name or "", partition.partition_index)),
            "last_stable_offset": stable.get((topic.name or "", partition.partition_index)),
            "high_watermark": high.get((topic.name or "", partition.partition_index)),
            "log_end": end.get((topic.name or "", partition.partition_index)),
        }
        for topic in topics
        for partition in sorted(topic.partitions, key=lambda partition: partition.partition_index)
    ]


def create(cluster: Cluster, name: str, configs: Sequence[str], *, count: int, factor: int) -> dict[str, Any]:
    pairs = []
    for config in configs:
        key, equals, value = config.partition("=")
        if not equals:
            raise Unaskable(f"--config {config}: expected name=value")
        pairs.append(CreatableTopicConfig(name=key, value=value))
    topic = CreatableTopic(name=name, num_partitions=count, replication_factor=factor, configs=pairs)
    answer = cluster.controller().call(CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)).topics[0]
    check(answer.error_code, f"topic {name} was not created", answer.error_message)
    return {
        "name": name,
        "topic_id": str(answer.topic_id),
        "partitions": answer.num_partitions,
        "replication_factor": answer.replication_factor,
    }


def delete(cluster: Cluster, name: str) -> dict[str, Any]:
    state = DeleteTopicState(name=name)
    answer = cluster.controller().call(DeleteTopicsRequest(topics=[state], timeout_ms=TIMEOUT_MS)).responses[0]
    check(answer.error_code, f"topic {name} was not deleted", answer.error_message)
    return {"name": name, "topic_id": str(answer.topic_id)}
