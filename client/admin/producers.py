"""Producers of partitions: list them with their clients, and remove those that fill a partition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from odradek.client.admin.client_fields import client_fields
from odradek.client.admin.offsets import partitions_by_leader
from odradek.client.admin.topics import topics_named
from odradek.client.errors import ClientError, check, refused
from odradek.client.network.fan_out import FanOut, PartialResult
from odradek.client.network.metadata import TopicPartition
from odradek.protocol.errors import ErrorCode
from odradek.protocol.extensions import (
    COUNT,
    EXPIRE_TAG,
    EXPIRED_PRODUCER,
)
from odradek.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from odradek.client.network.cluster import Cluster
    from odradek.protocol.messages.describe_producers import ProducerState
    from odradek.protocol.schema import Message

EXPIRED_PER_REQUEST: Final = 10_000
"""Maximum producers that a broker removes per request."""


@dataclass(frozen=True, slots=True)
class ProducerListing:
    """A producer that the leader of a partition keeps, to detect duplicates.

    `client_id` and `address` are those of the client that has added the producer. They are None if the leader does not
    know them: it was elected or started later. `idle_ms` is None if the broker is not an Odradek broker.
    `transaction_start` is the first offset of the open transaction in the partition, or None if none is open.
    """

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    open_transaction: bool
    client_id: str | None
    address: str | None
    idle_ms: int | None
    transaction_start: int | None = None


async def list_producers(cluster: Cluster, topic: str, partition: int | None = None) -> PartialResult[ProducerListing]:
    """Return the producers of all partitions of a topic, or of one, that their leaders keep; longest idle first.

    A leader that refuses a partition counts as unreachable. Raise NotFound if the topic does not exist.
    """
    fan_out = FanOut(cluster, tolerant=True)
    requests: dict[int, Message] = {}
    for leader, led in partitions_by_leader(await topics_named(cluster, [topic])).items():
        indexes = [index for index in led[topic] if partition in {None, index}]
        if indexes:
            requests[leader] = DescribeProducersRequest(topics=[TopicRequest(topic, indexes)])
    rows = [
        _listing(topic, described.partition_index, state)
        for leader, response in (await fan_out.request_each(requests)).items()
        for described in response.topics[0].partitions
        if not fan_out.tolerates(leader, described.error_code)
        for state in described.active_producers
    ]
    rows.sort(key=lambda row: (row.partition, -(row.idle_ms or 0), row.producer_id))
    return PartialResult(rows, fan_out.unreachable)


async def producers_by_partition(
    cluster: Cluster, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, list[ProducerListing]]:
    """Return the producers that the leader of each partition keeps. A partition without a producer has an empty list.

    Raise Refused or ConnectionLost if a partition has no leader that responds in time.
    """
    attempts = cluster.attempts()
    found: dict[TopicPartition, list[ProducerListing]] = {}
    while missing := [key for key in partitions if key not in found]:
        failure: int | ClientError = ErrorCode.LEADER_NOT_AVAILABLE
        try:
            for leader, led in await _by_leader(cluster, missing):
                response = await cluster.request(leader, DescribeProducersRequest(topics=led))
                for topic in response.topics:
                    for described in topic.partitions:
                        if described.error_code != ErrorCode.NONE:
                            failure = described.error_code
                            continue
                        key = TopicPartition(topic.name, described.partition_index)
                        found[key] = [_listing(*key, state) for state in described.active_producers]
        except ClientError as error:
            failure = error
        if len(found) < len(set(partitions)) and await attempts.prepare(failure) is None:
            if isinstance(failure, ClientError):
                raise failure
            raise refused(failure, f"the producers of {', '.join(map(str, missing))} were not described")
    return found


async def _by_leader(cluster: Cluster, partitions: Collection[TopicPartition]) -> list[tuple[int, list[TopicRequest]]]:
    topics = await topics_named(cluster, sorted({key.topic for key in partitions}))
    found = []
    for leader, led in partitions_by_leader(topics).items():
        wanted = {name: [index for index in indexes if (name, index) in partitions] for name, indexes in led.items()}
        if any(wanted.values()):
            found.append((leader, [TopicRequest(name, indexes) for name, indexes in wanted.items() if indexes]))
    return found


def _listing(topic: str, partition: int, state: ProducerState) -> ProducerListing:
    client_id, address, idle_ms = client_fields(state.unknown_tagged_fields)
    return ProducerListing(
        topic,
        partition,
        state.producer_id,
        state.producer_epoch,
        state.last_sequence,
        state.last_timestamp,
        state.current_txn_start_offset >= 0,
        client_id,
        address,
        idle_ms,
        state.current_txn_start_offset if state.current_txn_start_offset >= 0 else None,
    )


async def expire_producers(cluster: Cluster, producers: Sequence[ProducerListing]) -> int:
    """Remove listed producers from their partitions. Return the number of producers removed.

    A producer stays if it has an open transaction, or was used since it was listed. A later batch of a removed producer
    is accepted with any sequence number, also if it is a retry of a batch that was written. Raise ClientError if the
    leader does not support the removal, as Kafka's brokers.
    """
    by_partition: dict[tuple[str, int], list[ProducerListing]] = {}
    for row in producers:
        if not row.open_transaction:
            by_partition.setdefault((row.topic, row.partition), []).append(row)
    removed = 0
    for (topic, partition), rows in by_partition.items():
        leader = (await topics_named(cluster, [topic]))[0].partition(partition).leader
        for data in _encoded(rows):
            request = DescribeProducersRequest(topics=[TopicRequest(topic, [partition], ((EXPIRE_TAG, data),))])
            described = (await cluster.request(leader, request)).topics[0].partitions[0]
            check(described.error_code, f"{topic}-{partition}: the producers were not removed")
            count = dict(described.unknown_tagged_fields).get(EXPIRE_TAG)
            if count is None:
                raise ClientError(f"broker {leader} cannot remove producers", "only Odradek brokers can remove them")
            removed += COUNT.unpack(count)[0]
    return removed


def _encoded(rows: Sequence[ProducerListing]) -> Iterator[bytes]:
    for first in range(0, len(rows), EXPIRED_PER_REQUEST):
        yield b"".join(
            EXPIRED_PRODUCER.pack(row.producer_id, row.producer_epoch, row.last_sequence)
            for row in rows[first : first + EXPIRED_PER_REQUEST]
        )
