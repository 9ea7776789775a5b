"""Brokers, topics and partition leaders, as a Metadata response describes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from odradek.client.errors import NotFound, refused
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from odradek.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker that is registered and not fenced, with the address of its listener for clients."""

    node_id: int
    host: str
    port: int
    rack: str | None


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition with its replicas as node ids. `leader` is NO_LEADER if it has none."""

    index: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic with its partitions by index. `error_code` is NONE if the topic exists."""

    name: str
    topic_id: UUID
    internal: bool
    partitions: Mapping[int, Partition]
    error_code: int

    def check(self) -> None:
        """Raise NotFound if the topic does not exist, Refused if the broker cannot describe it.

        A topic without leaders can be described.
        """
        if self.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise NotFound(
                f"topic {self.name} does not exist", "list the topics with: odradek topics list", code=self.error_code
            )
        if self.error_code not in {ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE}:
            raise refused(self.error_code, f"topic {self.name}")

    def partition(self, index: int) -> Partition:
        """Return a partition. Raise NotFound if the topic has no partition of that index."""
        if index not in self.partitions:
            problem = f"topic {self.name} has no partition {index}; it has {len(self.partitions)}"
            raise NotFound(problem, code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return self.partitions[index]


@dataclass(frozen=True, slots=True)
class Metadata:
    """Content of a Metadata response.

    Attributes:
        brokers: Brokers by node id.
        controller_id: Node id of a broker that serves controller requests.
        topics: The requested topics by name.
    """

    brokers: Mapping[int, Broker]
    controller_id: int
    topics: Mapping[str, Topic]


def metadata_request(topics: Sequence[str] | None) -> MetadataRequest:
    """Return a request for the named topics, or for all topics if `topics` is None. It never creates a topic."""
    wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
    return MetadataRequest(topics=wanted, allow_auto_topic_creation=False)


def metadata_of(response: MetadataResponse) -> Metadata:
    """Convert a Metadata response. Topics are in the order of their names, partitions in the order of their indexes."""
    brokers = sorted(response.brokers, key=lambda broker: broker.node_id)
    topics = sorted(response.topics, key=lambda topic: topic.name or "")
    return Metadata(
        {broker.node_id: Broker(broker.node_id, broker.host, broker.port, broker.rack) for broker in brokers},
        response.controller_id,
        {topic.name or "": _topic(topic) for topic in topics},
    )


def _topic(topic: MetadataResponseTopic) -> Topic:
    partitions = {
        row.partition_index: Partition(
            row.partition_index, row.leader_id, row.leader_epoch, tuple(row.replica_nodes), tuple(row.isr_nodes)
        )
        for row in sorted(topic.partitions, key=lambda row: row.partition_index)
    }
    return Topic(topic.name or "", topic.topic_id, topic.is_internal, partitions, topic.error_code)
