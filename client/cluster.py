"""The whole cluster at a glance, and the wait for it to be whole."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from odradek.client import groups, topics, transactions
from odradek.client.client import Cluster, Failed
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.describe_cluster import DescribeClusterRequest
from odradek.protocol.messages.describe_quorum import DescribeQuorumRequest, RequestPartitionData, RequestTopicData

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from odradek.protocol.messages.metadata import MetadataResponse

    Enough = Callable[[int], int]

METADATA_TOPIC = "__cluster_metadata"
IN_SYNC_TIMEOUT_S = 120.0
SHOWN_MAX = 5
IN_SYNC_INTERVAL_S = 0.05
"""Between two questions: nothing in the protocol tells a client that a replica has caught up."""


def status(cluster: Cluster) -> dict[str, Any]:
    """Brokers, controller, partitions, groups and open transactions; ``unanswered`` brokers are left out, not waited for.

    A replica on a broker that does not answer, or is fenced, is behind, whatever the metadata says. ``transactions`` is None when none is known
    and somebody who may know of one did not answer.
    """
    brokers = described_brokers(cluster)
    rows = topics.partitions(cluster, None)
    transactions_found = transactions.open_transactions(cluster)
    there = {broker.node_id for broker in cluster.metadata.brokers} - set(cluster.unanswered)
    behind = [row for row in rows if not there.intersection(row["isr"]).issuperset(row["replicas"])]
    return {
        "controller": controller(cluster),
        "brokers": brokers,
        "partitions": rows,
        "under_replicated": [f"{row['topic']}-{row['partition']}" for row in behind],
        "groups": groups.with_lag(cluster, rows),
        "transactions": transactions_found or (None if cluster.unanswered else []),
        "unanswered": sorted(cluster.unanswered),
    }


def described_brokers(cluster: Cluster) -> list[dict[str, Any]]:
    """Every registered broker, fenced ones included."""
    answer = cluster.any().call(DescribeClusterRequest(include_fenced_brokers=True))
    return [
        {
            "node_id": broker.broker_id,
            "host": broker.host,
            "port": broker.port,
            "rack": broker.rack,
            "fenced": broker.is_fenced,
        }
        for broker in sorted(answer.brokers, key=lambda broker: broker.broker_id)
    ]


def controller(cluster: Cluster) -> int | None:
    """The active controller, which is the leader of the metadata log; None when there is none that is known."""
    metadata_log = RequestTopicData(METADATA_TOPIC, [RequestPartitionData(0)])
    try:
        answer = cluster.any().call(DescribeQuorumRequest([metadata_log]))
    except Failed:
        return None  # no majority, so nobody can say
    if answer.error_code != ErrorCode.NONE:
        return None
    partition = answer.topics[0].partitions[0]
    return partition.leader_id if partition.error_code == ErrorCode.NONE and partition.leader_id >= 0 else None


def wait_whole(bootstrap: str, brokers: int, enough: Enough) -> dict[str, Any]:
    """Wait until so many brokers are unfenced and every partition has a leader and ``enough`` replicas in sync.

    Raises:
        Failed: it takes too long; the message says what is missing.
    """
    deadline = time.monotonic() + IN_SYNC_TIMEOUT_S
    while True:
        try:
            cluster = Cluster(bootstrap)
            try:
                lacking = what_lacks(cluster.refresh(None), brokers, enough)
                if not lacking:
                    return {"controller": controller(cluster)}
            finally:
                cluster.close()
        except Failed as failed:
            lacking = [str(failed)]
        if time.monotonic() > deadline:
            shown = ", ".join(lacking[:SHOWN_MAX])
            raise Failed(f"not in sync within {IN_SYNC_TIMEOUT_S:.0f} s: {shown}")
        time.sleep(IN_SYNC_INTERVAL_S)


def all_of(replicas: int) -> int:
    """Of so many replicas, all have to be in sync."""
    return replicas


def most_of(replicas: int) -> int:
    """Enough for writes, where min.insync.replicas is what it should be: two of three."""
    return (replicas + 1) // 2


def what_lacks(metadata: MetadataResponse, brokers: int, enough: Enough) -> list[str]:
    """What keeps the cluster from being whole, in words; metadata names brokers that are not fenced."""
    lacking: list[str] = []
    if len(metadata.brokers) < brokers:
        there = [broker.node_id for broker in metadata.brokers]
        lacking.append(f"only {len(there)} of {brokers} brokers serve ({shown(sorted(there))})")
    for topic in metadata.topics:
        for partition in topic.partitions:
            missing = [node_id for node_id in partition.replica_nodes if node_id not in partition.isr_nodes]
            if len(partition.isr_nodes) < enough(len(partition.replica_nodes)) or partition.leader_id < 0:
                reason = f"lacks {shown(missing)}" if missing else "has no leader"
                lacking.append(f"{topic.name}-{partition.partition_index} {reason}")
    return lacking


def shown(node_ids: Sequence[int]) -> str:
    return ", ".join(str(node_id) for node_id in node_ids) or "none"
