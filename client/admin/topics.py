"""Topics: list, describe with offsets, create, delete."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from odradek.client.admin.offsets import EARLIEST, LATEST, IsolationLevel, ReplicaId, fetch_offsets
from odradek.client.errors import NotFound, check
from odradek.client.network.fan_out import FanOut, gathered
from odradek.client.network.settings import BROKER_TIMEOUT_MS
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from odradek.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from odradek.client.network.cluster import Cluster
    from odradek.client.network.metadata import Topic

BROKER_DEFAULT: Final = -1
"""Number of partitions or replicas that stands for the default of the brokers."""


@dataclass(frozen=True, slots=True)
class TopicListing:
    """A topic without its partitions. `replication_factor` is the largest of its partitions."""

    name: str
    topic_id: UUID
    internal: bool
    partitions: int
    replication_factor: int


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """A partition with its replicas as node ids and its offsets. An offset is None if no leader returned it.

    `leader` is -1 if there is none. `log_end` counts records that are not committed yet; the other offsets are those of
    clients.
    """

    topic: str
    partition: int
    internal: bool
    leader: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    log_start: int | None
    last_stable_offset: int | None
    high_watermark: int | None
    log_end: int | None


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A topic that was created. The numbers are -1 if the broker did not return them."""

    name: str
    topic_id: UUID
    partitions: int
    replication_factor: int


async def list_topics(cluster: Cluster) -> list[TopicListing]:
    """Return all topics by name, internal ones included."""
    metadata = await cluster.fetch_metadata(None)
    return [
        TopicListing(
            topic.name,
            topic.topic_id,
            topic.internal,
            len(topic.partitions),
            max((len(partition.replicas) for partition in topic.partitions.values()), default=0),
        )
        for topic in metadata.topics.values()
    ]


async def describe_partitions(cluster: Cluster, names: Sequence[str] | None) -> list[PartitionDescription]:
    """Return the partitions of the named topics, or of all topics if `names` is None.

    Raises:
        NotFound: A topic does not exist.
        ClientError: A leader does not respond.
    """
    return await partitions_with_offsets(FanOut(cluster), await topics_named(cluster, names))


async def topics_named(cluster: Cluster, names: Sequence[str] | None) -> list[Topic]:
    """Fetch topics with their leaders, or all topics if `names` is None. Raise NotFound if one does not exist."""
    topics = list((await cluster.fetch_metadata(names)).topics.values())
    for topic in topics:
        topic.check()
    return topics


async def partitions_with_offsets(fan_out: FanOut, topics: Sequence[Topic]) -> list[PartitionDescription]:
    """Describe the partitions of topics with the offsets of those brokers that respond."""
    start, stable, high, end = await gathered(
        fetch_offsets(fan_out, topics, EARLIEST),
        fetch_offsets(fan_out, topics, LATEST, IsolationLevel.READ_COMMITTED),
        fetch_offsets(fan_out, topics, LATEST),
        fetch_offsets(fan_out, topics, LATEST, replica_id=ReplicaId.DEBUGGING),
    )
    return [
        PartitionDescription(
            topic.name,
            partition.index,
            topic.internal,
            partition.leader,
            partition.leader_epoch,
            list(partition.replicas),
            list(partition.isr),
            start.get((topic.name, partition.index)),
            stable.get((topic.name, partition.index)),
            high.get((topic.name, partition.index)),
            end.get((topic.name, partition.index)),
        )
        for topic in topics
        for partition in topic.partitions.values()
    ]


async def create_topic(
    cluster: Cluster,
    name: str,
    *,
    partitions: int = BROKER_DEFAULT,
    replication_factor: int = BROKER_DEFAULT,
    configs: Mapping[str, str] | None = None,
) -> CreatedTopic:
    """Create a topic with the given configuration, by Kafka's property names.

    Return when the broker that this client requests metadata from has the topic: other brokers learn of it later than
    the controller.

    Raises:
        NotFound: The topic was created, but that broker did not have it in time, or it was deleted meanwhile.
        Refused: The topic cannot be created.
    """
    rows = [CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()]
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=replication_factor, configs=rows)
    response = await cluster.request_controller(CreateTopicsRequest(topics=[topic], timeout_ms=BROKER_TIMEOUT_MS))
    created = response.topics[0]
    check(created.error_code, f"topic {name} was not created", created.error_message)
    await _wait_until_known(cluster, name)
    return CreatedTopic(name, created.topic_id, created.num_partitions, created.replication_factor)


async def _wait_until_known(cluster: Cluster, name: str) -> None:
    attempts = cluster.attempts()
    while True:
        try:
            await cluster.topic(name, refresh=True)
        except NotFound:
            if await attempts.prepare(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) is None:
                raise
        else:
            return


async def delete_topic(cluster: Cluster, name: str) -> UUID:
    """Delete a topic and return its id. Raise Refused if it cannot be deleted."""
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=BROKER_TIMEOUT_MS)
    deleted = (await cluster.request_controller(request)).responses[0]
    check(deleted.error_code, f"topic {name} was not deleted", deleted.error_message)
    topic_id: UUID = deleted.topic_id
    return topic_id
