"""DescribeProducers: list the producer states of partitions (KIP-664).

Behavior:
* Each producer has its epoch, last sequence number, last timestamp, and the first offset of its open transaction if it
  has one. Operators use it to find the transaction that holds back the last stable offset.
* Every replica of the partition responds, not only the leader.
* Tagged fields have the client that has added the producer (unless it is unknown), and the time since its last batch.
* With a tagged field in the only topic of the request, the leader of its only partition removes the producers that the
  field names, if they have no open transaction and were not used meanwhile (`odradek producers expire`). Kafka ignores
  the field.

Errors:
* CLUSTER_AUTHORIZATION_FAILED for the removal of producers without CLUSTER_ACTION; INVALID_REQUEST for a removal from
  more than one partition, or of more than EXPIRED_MAX producers.
* Per partition: INVALID_TOPIC_EXCEPTION, TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION,
  NOT_LEADER_OR_FOLLOWER.
"""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.requests.api import Api, Ordered, split_by
from odradek.broker.requests.described_clients import described_client
from odradek.broker.requests.slices import collect_charged, large_work, turn
from odradek.broker.requests.splitting import ELEMENTS_PER_PART
from odradek.cluster.authorizer import AclOperation, ResourceType
from odradek.cluster.metadata import topic_names
from odradek.frozen import frozen_dataclass
from odradek.protocol.errors import ERRORS, ErrorCode, Refusal
from odradek.protocol.extensions import COUNT, EXPIRE_TAG, EXPIRED_PRODUCER
from odradek.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicRequest,
    TopicResponse,
)
from odradek.protocol.special_values import NO_LEADER_EPOCH
from odradek.storage.producers.state import ActiveProducer

EXPIRED_MAX: Final = 10_000
"""Maximum producers that one request removes. The removal of one takes about a microsecond."""


PRODUCER_BYTES: Final = 1_400
"""Maximum bytes of one producer in a response, in addition to its client: its objects, and its encoded form."""
CLIENT_CHARACTER_BYTES: Final = 12
"""Maximum bytes per character of the client id and address of a producer: three encoded copies in UTF-8."""
PARTITION_BYTES: Final = 2_000
"""Maximum bytes of one partition in a response, without its producers, and with a topic name of 249 characters."""


@frozen_dataclass(frozen=True, slots=True)
class _Described:
    """One partition of a request."""

    topic: TopicRequest
    index: int
    allowed: bool
    expired: list[tuple[int, int, int]] | None
    """Producers to remove (`_expired`)."""


def handle(context: BrokerRequestContext, request: DescribeProducersRequest) -> Ordered[DescribeProducersResponse]:
    items: list[_Described] = []
    for topic in request.topics:
        allowed = context.allowed(AclOperation.READ, ResourceType.TOPIC, topic.name)
        expired = _expired(context, topic)
        if expired is not None and (len(request.topics) > 1 or len(topic.partition_indexes) > 1):
            raise Refusal(ErrorCode.INVALID_REQUEST, "a request removes the producers of one partition")
        items += [_Described(topic, index, allowed, expired) for index in topic.partition_indexes]

    async def topics_of(some: Sequence[_Described]) -> list[TopicResponse]:
        topics: list[TopicResponse] = []
        for topic_request, described in groupby(some, attrgetter("topic")):
            topics.append(TopicResponse(topic_request.name, [await _partition(context, each) for each in described]))
        return topics

    return collect_charged(
        context,
        DescribeProducersResponse,
        items,
        partial(_bytes_max, context),
        topics_of,
        lambda topics: DescribeProducersResponse(topics=topics),
    )


def _bytes_max(context: BrokerRequestContext, described: _Described) -> int:
    """Return the maximum memory of one partition in the response, in bytes."""
    total = PARTITION_BYTES
    if described.allowed and described.expired is None:
        with suppress(Refusal):
            producers = context.broker.partitions.find(described.topic.name, described.index).log.producers
            total += PRODUCER_BYTES * len(producers.entries) + CLIENT_CHARACTER_BYTES * producers.client_characters
    return total


async def _partition(context: BrokerRequestContext, described: _Described) -> PartitionResponse:
    name, index = described.topic.name, described.index
    try:
        if not topic_names.is_valid(name):
            raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION)
        if not described.allowed:
            raise Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if described.expired is not None:
            return _expire(context, name, index, described.expired)
        return PartitionResponse(index, active_producers=await _producers(context, name, index))
    except Refusal as refusal:
        return _refused(index, refusal.error)


def refuse(
    context: BrokerRequestContext, request: DescribeProducersRequest, error: ErrorCode, message: str | None
) -> DescribeProducersResponse:
    topics = [
        TopicResponse(topic.name, [_refused(index, error) for index in topic.partition_indexes])
        for topic in request.topics
    ]
    return DescribeProducersResponse(topics=topics)


def _refused(index: int, error: ErrorCode) -> PartitionResponse:
    return PartitionResponse(index, error, ERRORS[error].message)


def _expired(context: BrokerRequestContext, topic: TopicRequest) -> list[tuple[int, int, int]] | None:
    """Return (producer id, epoch, last sequence) of the producers to remove; None if the request only describes."""
    data = dict(topic.unknown_tagged_fields).get(EXPIRE_TAG)
    if data is None:
        return None
    if not context.allowed_change_of_cluster(AclOperation.CLUSTER_ACTION, (f"producers of topic {topic.name}",)):
        raise Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if len(data) % EXPIRED_PRODUCER.size or len(data) > EXPIRED_MAX * EXPIRED_PRODUCER.size:
        raise Refusal(ErrorCode.INVALID_REQUEST)
    return list(EXPIRED_PRODUCER.iter_unpack(data))


def _expire(
    context: BrokerRequestContext, topic: str, index: int, expired: list[tuple[int, int, int]]
) -> PartitionResponse:
    partition = context.broker.partitions.find(topic, index)
    partition.check_leader(NO_LEADER_EPOCH)
    removed = partition.log.producers.remove_unused(expired)
    return PartitionResponse(index, unknown_tagged_fields=((EXPIRE_TAG, COUNT.pack(removed)),))


async def _producers(context: BrokerRequestContext, topic: str, index: int) -> list[Any]:
    """Return the producers that the partition has now, except those that are removed before their slice is built.

    With more than ELEMENTS_PER_PART, they are in their encoded form: so many objects would slow down the garbage
    collector.
    """
    partition = context.broker.partitions.find(topic, index)
    partition.check_readable()
    producers = partition.log.producers
    if len(producers.entries) <= ELEMENTS_PER_PART:
        return _states(context, producers.active())
    described: list[Any] = []
    ids = list(producers.entries)
    with large_work(context) as work:
        for start in range(0, len(ids), ELEMENTS_PER_PART):
            if start:
                await turn(work)
            states = _states(context, producers.active(ids[start : start + ELEMENTS_PER_PART]))
            if work is None:
                described += states
            elif states:
                described.append(await work.pack(DescribeProducersResponse, states))
    return described


def _states(context: BrokerRequestContext, producers: list[ActiveProducer]) -> list[ProducerState]:
    monotonic_ms = context.node.clock.monotonic_ms()
    return [
        ProducerState(
            state.producer_id,
            state.producer_epoch,
            state.last_sequence,
            state.last_timestamp,
            state.coordinator_epoch,
            state.current_txn_start_offset,
            described_client(None, state.client, max(0, monotonic_ms - state.seen_ms)),
        )
        for state in producers
    ]


API: Final = Api(
    key=DescribeProducersRequest.API_KEY,
    min_version=0,
    max_version=0,
    request=DescribeProducersRequest,
    response=DescribeProducersResponse,
    handle=handle,
    refuse=refuse,
    splitting=split_by(("topics", "partition_indexes"), ("topics", "partitions")),
    acl="READ on each topic",
)
