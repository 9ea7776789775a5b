"""The state of a whole cluster: brokers, controller, partitions, groups and open transactions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from odradek.client.admin.groups import groups_with_lag
from odradek.client.admin.log_dirs import log_dirs, offline_partitions
from odradek.client.admin.topics import partitions_with_offsets, topics_named
from odradek.client.admin.transactions import open_transactions
from odradek.client.errors import ClientError
from odradek.client.network.fan_out import FanOut
from odradek.client.network.metadata import TopicPartition
from odradek.protocol.errors import ErrorCode
from odradek.protocol.internal_topics import CLUSTER_METADATA
from odradek.protocol.messages.describe_cluster import DescribeClusterRequest
from odradek.protocol.messages.describe_quorum import DescribeQuorumRequest, RequestPartitionData, RequestTopicData

if TYPE_CHECKING:
    from collections.abc import Iterable

    from odradek.client.admin.groups import GroupLag
    from odradek.client.admin.topics import PartitionDescription
    from odradek.client.admin.transactions import TransactionDescription
    from odradek.client.network.cluster import Cluster


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    """A registered broker, fenced or not, with the address of its listener for clients.

    `log_bytes` is the size of all its logs. `offline_log_dirs` are its log directories that failed.
    `offline_partitions` are those whose replicas it does not serve, as `topic-partition`. None: the broker did not
    return its log directories.
    """

    node_id: int
    host: str
    port: int
    rack: str | None
    fenced: bool
    log_bytes: int | None = None
    offline_log_dirs: list[str] | None = None
    offline_partitions: list[str] | None = None


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """State of a cluster, from the brokers that responded.

    Attributes:
        cluster_id: Cluster id.
        controller: Node id of the active controller, or None if it is not known.
        voters: Node ids of the voters of the metadata log, or None if they are not known.
        brokers: All registered brokers.
        partitions: All partitions with their offsets.
        under_replicated: Partitions with a replica that is out of sync, or on a fenced or unreachable broker.
        groups: All groups with their lag.
        transactions: Open transactions that a coordinator returned.
        unreachable: Reason by node id, for each broker that did not respond.
    """

    cluster_id: str
    controller: int | None
    voters: list[int] | None
    brokers: list[BrokerDescription]
    partitions: list[PartitionDescription]
    under_replicated: list[str]
    groups: list[GroupLag]
    transactions: list[TransactionDescription]
    unreachable: dict[int, str]


async def cluster_status(cluster: Cluster) -> ClusterStatus:
    """Return the state of the cluster. Raise ClientError if no broker responds."""
    fan_out = FanOut(cluster, tolerant=True)
    cluster_id, brokers = await describe_brokers(cluster)
    partitions = await partitions_with_offsets(fan_out, await topics_named(cluster, None))
    transactions = await open_transactions(fan_out)
    groups = await groups_with_lag(fan_out, partitions)
    serving = {broker.node_id for broker in brokers if not broker.fenced} - set(fan_out.unreachable)
    behind = [row for row in partitions if not serving.intersection(row.isr).issuperset(row.replicas)]
    quorum = await describe_quorum(cluster)
    return ClusterStatus(
        cluster_id,
        None if quorum is None else quorum.leader,
        None if quorum is None else quorum.voters,
        await with_log_dirs(cluster, brokers, serving, partitions),
        partitions,
        [f"{row.topic}-{row.partition}" for row in behind],
        groups,
        transactions,
        fan_out.unreachable,
    )


async def describe_brokers(cluster: Cluster) -> tuple[str, list[BrokerDescription]]:
    """Return the cluster id, and all registered brokers by node id, fenced ones included."""
    response = await cluster.request_any(DescribeClusterRequest(include_fenced_brokers=True))
    return response.cluster_id, [
        BrokerDescription(broker.broker_id, broker.host, broker.port, broker.rack, broker.is_fenced)
        for broker in sorted(response.brokers, key=lambda broker: broker.broker_id)
    ]


async def with_log_dirs(
    cluster: Cluster,
    brokers: Iterable[BrokerDescription],
    serving: set[int],
    partitions: Iterable[PartitionDescription],
) -> list[BrokerDescription]:
    """Return the brokers with the size of their logs, and with what is offline on those that serve requests."""
    found = await log_dirs(cluster, serving)
    assigned: dict[int, list[TopicPartition]] = {}
    for row in partitions:
        for node_id in row.replicas:
            assigned.setdefault(node_id, []).append(TopicPartition(row.topic, row.partition))
    offline = await offline_partitions(cluster, found, assigned)
    return [
        replace(
            broker,
            log_bytes=directories.log_bytes,
            offline_log_dirs=directories.offline,
            offline_partitions=[str(key) for key in offline.get(broker.node_id, ())],
        )
        if (directories := found.get(broker.node_id)) is not None
        else broker
        for broker in brokers
    ]


@dataclass(frozen=True, slots=True)
class Quorum:
    """Leader of the metadata log, or None if there is none, and its voters."""

    leader: int | None
    voters: list[int]


async def describe_quorum(cluster: Cluster) -> Quorum | None:
    """Return the quorum of the metadata log. Return None if no majority of voters responds, or if it is refused."""
    metadata_log = RequestTopicData(CLUSTER_METADATA, [RequestPartitionData(0)])
    try:
        response = await cluster.request_any(DescribeQuorumRequest([metadata_log]))
    except ClientError:
        return None
    if response.error_code != ErrorCode.NONE:
        return None
    partition = response.topics[0].partitions[0]
    if partition.error_code != ErrorCode.NONE:
        return None
    voters = sorted(voter.replica_id for voter in partition.current_voters)
    return Quorum(partition.leader_id if partition.leader_id >= 0 else None, voters)


async def active_controller(cluster: Cluster) -> int | None:
    """Return the node id of the leader of the metadata log. Return None if there is none, or if none is known."""
    quorum = await describe_quorum(cluster)
    return None if quorum is None else quorum.leader
