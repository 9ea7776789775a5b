"""Offsets of partitions: log start, high watermark, last stable offset, and by timestamp."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final

from odradek.client.errors import ClientError, ConnectionLost, Unreachable, refused
from odradek.client.network.fan_out import FanOut, gathered
from odradek.client.network.metadata import TopicPartition
from odradek.client.network.settings import BROKER_TIMEOUT_MS
from odradek.protocol import special_values
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.protocol.special_values import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from odradek.client.network.cluster import Cluster
    from odradek.client.network.metadata import Topic
    from odradek.protocol.schema import Message

EARLIEST: Final = special_values.EARLIEST
"""Timestamp that stands for the log start offset."""
LATEST: Final = special_values.LATEST
"""Timestamp that stands for the end: the high watermark or, with READ_COMMITTED, the last stable offset."""

Offsets = dict[tuple[str, int], int]
"""Offset by topic and partition."""


class IsolationLevel(IntEnum):
    """Visibility of transactional records.

    READ_COMMITTED ends before the first open transaction and omits aborted records.
    """

    READ_UNCOMMITTED = special_values.READ_UNCOMMITTED
    READ_COMMITTED = special_values.READ_COMMITTED


class ReplicaId(IntEnum):
    """Kind of the requester.

    DEBUGGING returns the log end offset of the leader, whether the records are committed or not.
    """

    CONSUMER = special_values.CONSUMER_REPLICA_ID
    DEBUGGING = special_values.DEBUGGING_REPLICA_ID


async def list_offsets(
    cluster: Cluster,
    names: Sequence[str],
    timestamp: int,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> Offsets:
    """Return one offset of each partition of the topics. Partitions without a leader are omitted.

    `timestamp` is EARLIEST, LATEST, or milliseconds since 1970: then the offset of the first record that is not older,
    or -1 if there is none. Raise NotFound if a topic does not exist, ClientError if a leader does not respond.
    """
    topics = [await cluster.topic(name, refresh=True) for name in names]
    return await fetch_offsets(FanOut(cluster), topics, timestamp, isolation)


async def fetch_offsets(
    fan_out: FanOut,
    topics: Sequence[Topic],
    timestamp: int,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    *,
    replica_id: ReplicaId = ReplicaId.CONSUMER,
) -> Offsets:
    """Return one offset of each partition that has a leader. Send one ListOffsets request per leader."""
    requests: dict[int, Message] = {
        leader: _request(
            {name: [(index, timestamp) for index in indexes] for name, indexes in led.items()}, isolation, replica_id
        )
        for leader, led in partitions_by_leader(topics).items()
    }
    found: Offsets = {}
    for response in (await fan_out.request_each(requests)).values():
        for topic in response.topics:
            for partition in topic.partitions:
                if partition.error_code == ErrorCode.NONE:
                    found[topic.name, partition.partition_index] = partition.offset
    return found


async def ends_of_partitions(
    fan_out: FanOut, topics: Sequence[Topic]
) -> dict[tuple[str, int], tuple[int | None, int | None]]:
    """Return last stable offset and high watermark of each partition that has a leader. None: it is unknown."""
    stable, high = await gathered(
        fetch_offsets(fan_out, topics, LATEST, IsolationLevel.READ_COMMITTED), fetch_offsets(fan_out, topics, LATEST)
    )
    return {key: (stable.get(key), high.get(key)) for key in sorted(stable.keys() | high.keys())}


async def offsets_of_partitions(
    cluster: Cluster,
    timestamps: Mapping[TopicPartition, int],
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> dict[TopicPartition, int]:
    """Return one offset of each partition. A partition whose leader cannot respond is retried under the retry policy.

    The values of `timestamps` are those of `list_offsets`.

    Raises:
        NotFound: A topic or a partition does not exist.
        Refused: A partition has no leader, or the leader refuses, for longer than the retry policy allows.
        ClientError: A leader does not respond.
    """
    found: dict[TopicPartition, int] = {}
    attempts = cluster.attempts()
    while True:
        missing = {key: timestamp for key, timestamp in timestamps.items() if key not in found}
        if not missing:
            return found
        failures = await _find(cluster, missing, isolation, found)
        if failures:
            key, failure = next(iter(failures.items()))
            if await attempts.prepare(failure) is None:
                raise failure if isinstance(failure, ClientError) else refused(failure, f"offset of {key}")


async def _find(
    cluster: Cluster,
    timestamps: Mapping[TopicPartition, int],
    isolation: IsolationLevel,
    found: dict[TopicPartition, int],
) -> dict[TopicPartition, int | ClientError]:
    """Add the offsets of partitions to `found`. Return the failures of the others."""
    topics = {name: await cluster.topic(name, refresh=True) for name in dict.fromkeys(key.topic for key in timestamps)}
    failures: dict[TopicPartition, int | ClientError] = {}
    wanted: dict[int, dict[str, list[tuple[int, int]]]] = {}
    for key, timestamp in timestamps.items():
        leader = topics[key.topic].partition(key.partition).leader
        if leader == NO_LEADER:
            failures[key] = ErrorCode.LEADER_NOT_AVAILABLE
        else:
            wanted.setdefault(leader, {}).setdefault(key.topic, []).append((key.partition, timestamp))

    async def query(leader: int) -> None:
        led = wanted[leader]
        try:
            response = await cluster.request(leader, _request(led, isolation, ReplicaId.CONSUMER))
        except (Unreachable, ConnectionLost) as error:
            failures.update({TopicPartition(name, index): error for name, rows in led.items() for index, _ in rows})
            return
        for topic in response.topics:
            for row in topic.partitions:
                key = TopicPartition(topic.name, row.partition_index)
                if row.error_code == ErrorCode.NONE:
                    found[key] = row.offset
                else:
                    failures[key] = row.error_code

    await gathered(*map(query, wanted))
    return failures


def _request(
    wanted: Mapping[str, Sequence[tuple[int, int]]], isolation: IsolationLevel, replica_id: ReplicaId
) -> ListOffsetsRequest:
    """Return a request for partition indexes and timestamps by topic."""
    return ListOffsetsRequest(
        replica_id=replica_id,
        isolation_level=isolation,
        timeout_ms=BROKER_TIMEOUT_MS,
        topics=[
            ListOffsetsTopic(
                name=name,
                partitions=[
                    ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index, timestamp in rows
                ],
            )
            for name, rows in wanted.items()
        ],
    )


def partitions_by_leader(topics: Sequence[Topic]) -> Mapping[int, Mapping[str, Sequence[int]]]:
    """Return the partition indexes by leader and topic. Partitions without a leader are omitted."""
    by_leader: dict[int, dict[str, list[int]]] = {}
    for topic in topics:
        for partition in topic.partitions.values():
            if partition.leader != NO_LEADER:
                by_leader.setdefault(partition.leader, {}).setdefault(topic.name, []).append(partition.index)
    return by_leader
