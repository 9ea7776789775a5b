"""Topics: the list with search and pages, and one topic with its partitions and configurations."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Final

from odradek.client.admin.configs import ConfigEntry, ConfigKind, describe_configs
from odradek.client.admin.topics import PartitionDescription, partitions_with_offsets
from odradek.client.errors import name_of
from odradek.client.network.fan_out import FanOut
from odradek.console.model.paging import Paging, paging_of
from odradek.console.model.parts import Part, read_part
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from odradek.protocol.special_values import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from odradek.client.network.cluster import Cluster
    from odradek.client.network.metadata import Metadata, Topic
    from odradek.protocol.schema import Message

TOPICS_PER_PAGE: Final = 50
PARTITIONS_PER_PAGE: Final = 100
SEARCH_CHARACTERS_MAX: Final = 249
"""Maximum characters of a search: those of a topic name."""

Sizes = dict[tuple[str, int], int]
"""Largest size of a replica in bytes, by topic and partition."""


class TopicOrder(Enum):
    """Order of the list of topics. The values are in the addresses of pages."""

    NAME = "name"
    PARTITIONS = "partitions"
    PROBLEMS = "problems"


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic in the list.

    Attributes:
        name: Name of the topic.
        internal: The topic is one of the cluster's own.
        partitions: Number of partitions.
        replication_factor: Largest number of replicas of a partition.
        leaderless: Partitions without leader.
        under_replicated: Partitions with replicas out of sync.
        offsets: Offsets from log start to high watermark in all partitions. None: a leader did not return them.
        size: Bytes of the largest replica of each partition, in total. None: not all brokers returned them.
        error: The reason why the cluster does not describe the topic. Empty if it does.
    """

    name: str
    internal: bool
    partitions: int
    replication_factor: int
    leaderless: int
    under_replicated: int
    offsets: int | None = None
    size: int | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class TopicsPage:
    """Content of a page of the list of topics. `unreachable` has the reason by node id of each failed broker."""

    rows: list[TopicRow]
    paging: Paging
    unreachable: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """A partition with its offsets, and its size in bytes. The size is None if no broker returned it."""

    partition: PartitionDescription
    size: int | None

    @property
    def records(self) -> int | None:
        """Return the number of offsets from the log start to the high watermark."""
        start, high = self.partition.log_start, self.partition.high_watermark
        return None if start is None or high is None else high - start

    @property
    def unstable(self) -> int | None:
        """Return the number of offsets between the last stable offset and the high watermark."""
        stable, high = self.partition.last_stable_offset, self.partition.high_watermark
        return None if stable is None or high is None else max(0, high - stable)


@dataclass(frozen=True, slots=True)
class TopicPage:
    """Content of the page of a topic."""

    topic: Topic
    rows: Part[list[PartitionRow]]
    paging: Paging
    unreachable: Mapping[int, str]


def topic_rows(topics: Iterable[Topic], search: str, *, internal: bool, order: TopicOrder) -> list[TopicRow]:
    """Return the topics whose names contain the search, in any case of its letters."""
    wanted = search.lower()
    rows = [_row(topic) for topic in topics if wanted in topic.name.lower() and (internal or not topic.internal)]
    match order:
        case TopicOrder.NAME:
            return sorted(rows, key=lambda row: row.name)
        case TopicOrder.PARTITIONS:
            return sorted(rows, key=lambda row: (-row.partitions, row.name))
        case TopicOrder.PROBLEMS:
            return sorted(rows, key=lambda row: (-row.leaderless, -row.under_replicated, row.name))


def _row(topic: Topic) -> TopicRow:
    partitions = topic.partitions.values()
    return TopicRow(
        topic.name,
        topic.internal,
        len(partitions),
        max((len(partition.replicas) for partition in partitions), default=0),
        sum(partition.leader == NO_LEADER for partition in partitions),
        sum(len(partition.isr) < len(partition.replicas) for partition in partitions),
        error="" if topic.error_code in {ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE} else name_of(topic.error_code),
    )


async def read_topics(
    cluster: Cluster, metadata: Metadata, search: str, *, internal: bool, order: TopicOrder, page: int
) -> TopicsPage:
    """Read a page of the list of topics. Offsets and sizes are requested only for the topics of the page."""
    rows = topic_rows(metadata.topics.values(), search[:SEARCH_CHARACTERS_MAX], internal=internal, order=order)
    paging = paging_of(len(rows), page, TOPICS_PER_PAGE)
    shown = rows[paging.first : paging.last]
    topics = [metadata.topics[row.name] for row in shown]
    fan_out = FanOut(cluster, tolerant=True)
    described, sizes = await asyncio.gather(
        read_part(partitions_with_offsets(fan_out, topics)), read_part(read_sizes(fan_out, topics))
    )
    offsets = _sums((row.topic, PartitionRow(row, None).records) for row in described.value or ())
    bytes_of = _sums(
        (topic.name, (sizes.value or {}).get((topic.name, index))) for topic in topics for index in topic.partitions
    )
    rows = [replace(row, offsets=offsets.get(row.name), size=bytes_of.get(row.name)) for row in shown]
    return TopicsPage(rows, paging, fan_out.unreachable)


def _sums(values: Iterable[tuple[str, int | None]]) -> dict[str, int | None]:
    """Add up values by name. The sum is None if one of its values is not known."""
    sums: dict[str, int | None] = {}
    for name, value in values:
        before = sums.get(name, 0)
        sums[name] = None if before is None or value is None else before + value
    return sums


async def read_sizes(fan_out: FanOut, topics: Sequence[Topic]) -> Sizes:
    """Return the size of the largest replica of each partition, from the brokers that respond."""
    by_broker: dict[int, list[DescribableLogDirTopic]] = {}
    for topic in topics:
        hosted: dict[int, list[int]] = {}
        for partition in topic.partitions.values():
            for node_id in partition.replicas:
                hosted.setdefault(node_id, []).append(partition.index)
        for node_id, indexes in hosted.items():
            by_broker.setdefault(node_id, []).append(DescribableLogDirTopic(topic.name, indexes))
    requests: dict[int, Message] = {
        node_id: DescribeLogDirsRequest(topics=wanted) for node_id, wanted in by_broker.items()
    }
    sizes: Sizes = {}
    for response in (await fan_out.request_each(requests)).values():
        for found in (found for result in response.results for found in result.topics):
            for partition in found.partitions:
                key = found.name, partition.partition_index
                sizes[key] = max(sizes.get(key, 0), partition.partition_size)
    return sizes


async def read_topic(cluster: Cluster, name: str, page: int) -> TopicPage:
    """Read a topic with a page of its partitions. Raise ClientError if the cluster does not describe the topic."""
    topic = await cluster.topic(name, refresh=True)
    indexes = list(topic.partitions)
    paging = paging_of(len(indexes), page, PARTITIONS_PER_PAGE)
    shown = replace(topic, partitions={index: topic.partitions[index] for index in indexes[paging.first : paging.last]})
    fan_out = FanOut(cluster, tolerant=True)
    described, sizes = await asyncio.gather(
        read_part(partitions_with_offsets(fan_out, [shown])), read_part(read_sizes(fan_out, [shown]))
    )
    if described.value is None:
        return TopicPage(topic, Part(error=described.error), paging, fan_out.unreachable)
    found = sizes.value or {}
    rows = [PartitionRow(row, found.get((row.topic, row.partition))) for row in described.value]
    return TopicPage(topic, Part(rows), paging, fan_out.unreachable)


async def read_configs(cluster: Cluster, name: str) -> list[ConfigEntry]:
    """Return all configurations of a topic: first those that were set for it."""
    entries = await describe_configs(cluster, ConfigKind.TOPIC, name, defaults=True)
    return sorted(entries, key=lambda entry: (entry.source != "topic", entry.source == "default", entry.name))
