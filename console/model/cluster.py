"""The cluster: brokers with their partitions and disks, the controller, partitions that need attention."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from odradek.client.admin.status import BrokerDescription, Quorum, describe_brokers, describe_quorum
from odradek.client.errors import check, name_of
from odradek.console.model.parts import Part, read_part
from odradek.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from odradek.protocol.special_values import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Mapping, Sequence

    from odradek.client.network.cluster import Cluster
    from odradek.client.network.metadata import Metadata, Topic

ATTENTION_MAX: Final = 50
"""Maximum partitions without leader or with replicas out of sync that a page shows."""


@dataclass(frozen=True, slots=True)
class LogDirectory:
    """A log directory of a broker. The sizes of its file system are None if the broker does not return them."""

    path: str
    log_bytes: int
    total_bytes: int | None
    usable_bytes: int | None
    error: str = ""


@dataclass(frozen=True, slots=True)
class BrokerRow:
    """A registered broker.

    Attributes:
        broker: Address, rack, and whether it is fenced.
        leaders: Partitions that it leads.
        replicas: Partitions of which it has a replica.
        out_of_sync: Replicas of it that are not in sync.
        directories: Its log directories.
    """

    broker: BrokerDescription
    leaders: int
    replicas: int
    out_of_sync: int
    directories: Part[list[LogDirectory]]

    @property
    def log_bytes(self) -> int | None:
        """Return the size of all logs of the broker, or None if it is not known."""
        rows = self.directories.value
        return None if rows is None else sum(row.log_bytes for row in rows)


@dataclass(frozen=True, slots=True)
class Attention:
    """A partition without leader, or with replicas out of sync."""

    topic: str
    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]

    @property
    def missing(self) -> tuple[int, ...]:
        """Return the replicas that are not in sync."""
        return tuple(node_id for node_id in self.replicas if node_id not in self.isr)


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of topics and partitions. Internal topics are included."""

    topics: int
    partitions: int
    leaderless: int
    under_replicated: int


@dataclass(frozen=True, slots=True)
class ClusterPage:
    """Content of the page of the cluster.

    Attributes:
        cluster_id: Id of the cluster. Empty if no broker responded.
        brokers: All registered brokers, fenced ones included.
        quorum: Leader and voters of the metadata log. The value is None if they are not known.
        counts: Numbers of topics and partitions.
        attention: The first partitions that need attention.
    """

    cluster_id: str
    brokers: Part[list[BrokerRow]]
    quorum: Part[Quorum | None]
    counts: Part[Counts]
    attention: list[Attention]


async def read_cluster(cluster: Cluster, all_topics: Awaitable[Metadata]) -> ClusterPage:
    """Read the page of the cluster. `all_topics` returns the metadata of all topics."""
    described, quorum, metadata = await asyncio.gather(
        read_part(describe_brokers(cluster)), read_part(describe_quorum(cluster)), read_part(all_topics)
    )
    topics = [] if metadata.value is None else list(metadata.value.topics.values())
    rows: Part[list[BrokerRow]] = Part(error=described.error)
    if described.value is not None:
        brokers = described.value[1]
        directories = await asyncio.gather(*(_directories_of(cluster, broker) for broker in brokers))
        rows = Part(broker_rows(brokers, directories, topics))
    counts: Part[Counts] = Part(error=metadata.error)
    if metadata.value is not None:
        counts = Part(counts_of(topics))
    cluster_id = "" if described.value is None else described.value[0]
    return ClusterPage(cluster_id, rows, quorum, counts, attention_of(topics)[:ATTENTION_MAX])


async def _directories_of(cluster: Cluster, broker: BrokerDescription) -> Part[list[LogDirectory]]:
    if broker.fenced:
        return Part(error="the broker is fenced")
    return await read_part(read_directories(cluster, broker.node_id))


async def read_directories(cluster: Cluster, node_id: int) -> list[LogDirectory]:
    """Read the log directories of a broker. Raise ClientError if it does not return them."""
    response = await cluster.request(node_id, DescribeLogDirsRequest(topics=None))
    check(response.error_code, f"log directories of broker {node_id}")
    return [
        LogDirectory(
            result.log_dir,
            sum(partition.partition_size for topic in result.topics for partition in topic.partitions),
            result.total_bytes if result.total_bytes >= 0 else None,
            result.usable_bytes if result.usable_bytes >= 0 else None,
            "" if result.error_code == 0 else name_of(result.error_code),
        )
        for result in response.results
    ]


def broker_rows(
    brokers: Sequence[BrokerDescription], directories: Sequence[Part[list[LogDirectory]]], topics: Iterable[Topic]
) -> list[BrokerRow]:
    """Count the partitions of each broker."""
    leaders: dict[int, int] = {}
    replicas: dict[int, int] = {}
    out_of_sync: dict[int, int] = {}
    for partition in (partition for topic in topics for partition in topic.partitions.values()):
        leaders[partition.leader] = leaders.get(partition.leader, 0) + 1
        for node_id in partition.replicas:
            replicas[node_id] = replicas.get(node_id, 0) + 1
            if node_id not in partition.isr:
                out_of_sync[node_id] = out_of_sync.get(node_id, 0) + 1

    def count(counts: Mapping[int, int], broker: BrokerDescription) -> int:
        return counts.get(broker.node_id, 0)

    return [
        BrokerRow(broker, count(leaders, broker), count(replicas, broker), count(out_of_sync, broker), of_broker)
        for broker, of_broker in zip(brokers, directories, strict=True)
    ]


def counts_of(topics: Sequence[Topic]) -> Counts:
    """Count topics and partitions."""
    partitions = [partition for topic in topics for partition in topic.partitions.values()]
    return Counts(
        len(topics),
        len(partitions),
        sum(partition.leader == NO_LEADER for partition in partitions),
        sum(len(partition.isr) < len(partition.replicas) for partition in partitions),
    )


def attention_of(topics: Iterable[Topic]) -> list[Attention]:
    """Return the partitions that need attention: first those without leader."""
    found = [
        Attention(
            topic.name,
            partition.index,
            None if partition.leader == NO_LEADER else partition.leader,
            partition.replicas,
            partition.isr,
        )
        for topic in topics
        for partition in topic.partitions.values()
        if partition.leader == NO_LEADER or len(partition.isr) < len(partition.replicas)
    ]
    return sorted(found, key=lambda row: row.leader is not None)
