"""The state of a whole cluster: brokers, controller, partitions, groups and open transactions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek.client.admin.groups import groups_with_lag
from odradek.client.admin.topics import partitions_with_offsets, topics_named
from odradek.client.admin.transactions import open_transactions
from odradek.client.errors import ClientError
from odradek.client.network.fan_out import FanOut
from odradek.protocol.errors import ErrorCode
from odradek.protocol.internal_topics import CLUSTER_METADATA
from odradek.protocol.messages.describe_cluster import DescribeClusterRequest
from odradek.protocol.messages.describe_quorum import DescribeQuorumRequest, RequestPartitionData, RequestTopicData

if TYPE_CHECKING:
    from odradek.client.admin.groups import GroupLag
    from odradek.client.admin.topics import PartitionDescription
    from odradek.client.admin.transactions import TransactionDescription
    from odradek.client.network.cluster import Cluster


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    """A registered broker, fenced or not, with the address of its listener for clients."""

    node_id: int
    host: str
    port: int
    rack: str | None
    fenced: bool


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """State of a cluster, from the brokers that responded.

    Attributes:
        controller: Node id of the active controller, or None if it is not known.
        brokers: All registered brokers.
        partitions: All partitions with their offsets.
        under_replicated: Partitions with a replica that is out of sync, or on a fenced or unreachable broker.
        groups: All groups with their lag.
        transactions: Open transactions that a coordinator returned.
        unreachable: Reason by node id, for each broker that did not respond.
    """

    controller: int | None
    brokers: list[BrokerDescription]
    partitions: list[PartitionDescription]
    under_replicated: list[str]
    groups: list[GroupLag]
    transactions: list[TransactionDescription]
    unreachable: dict[int, str]


async def cluster_status(cluster: Cluster) -> ClusterStatus:
    """Return the state of the cluster. Raise ClientError if no broker responds."""
    fan_out = FanOut(cluster, tolerant=True)
    brokers = await describe_brokers(cluster)
    partitions = await partitions_with_offsets(fan_out, await topics_named(cluster, None))
    transactions = await open_transactions(fan_out)
    groups = await groups_with_lag(fan_out, partitions)
    serving = {broker.node_id for broker in brokers if not broker.fenced} - set(fan_out.unreachable)
    behind = [row for row in partitions if not serving.intersection(row.isr).issuperset(row.replicas)]
    return ClusterStatus(
        await active_controller(cluster),
        brokers,
        partitions,
        [f"{row.topic}-{row.partition}" for row in behind],
        groups,
        transactions,
        fan_out.unreachable,
    )


async def describe_brokers(cluster: Cluster) -> list[BrokerDescription]:
    """Return all registered brokers by node id, fenced ones included."""
    response = await cluster.request_any(DescribeClusterRequest(include_fenced_brokers=True))
    return [
        BrokerDescription(broker.broker_id, broker.host, broker.port, broker.rack, broker.is_fenced)
        for broker in sorted(response.brokers, key=lambda broker: broker.broker_id)
    ]


async def active_controller(cluster: Cluster) -> int | None:
    """Return the node id of the leader of the metadata log. Return None if there is none, or if none is known."""
    metadata_log = RequestTopicData(CLUSTER_METADATA, [RequestPartitionData(0)])
    try:
        response = await cluster.request_any(DescribeQuorumRequest([metadata_log]))
    except ClientError:
        return None  # without a majority of the voters, there is no leader
    if response.error_code != ErrorCode.NONE:
        return None
    partition = response.topics[0].partitions[0]
    return partition.leader_id if partition.error_code == ErrorCode.NONE and partition.leader_id >= 0 else None
