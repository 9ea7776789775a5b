"""OffsetFetch: fetch committed offsets of groups.

Behavior:
* Each group has its own result. A topic need not exist: the coordinator returns an offset for as long as it stores it.
* With `RequireStable`, a partition with a pending offset of an open transaction has the error UNSTABLE_OFFSET_COMMIT
  (KIP-447).
* Up to v7, the error of a group is also the error of each requested partition. aiokafka reads only those, and
  takes a response without partitions as "no offset was committed" (decision 0066).

Errors:
* Per group: GROUP_AUTHORIZATION_FAILED, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS; for members of the consumer
  protocol UNKNOWN_MEMBER_ID and STALE_MEMBER_EPOCH.
* Per partition: TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_ID, UNSTABLE_OFFSET_COMMIT.

Version notes:
* v0 was removed in Kafka 4.0. v2 can request all topics of a group, and has an error for the whole group. v5 has leader
  epochs (KIP-320). v6 is flexible. v7 has `RequireStable` (KIP-447). v8 has several groups (KIP-709).
* v9 is for members of the consumer protocol, too (KIP-848). v10 has topic ids instead of names (KIP-848).
"""

from asyncio import Future
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.coordinators.group_requests import allowed_topics, caller_of, request_each, responses_of
from odradek.broker.requests.api import Api, Ordered
from odradek.broker.requests.slices import collect_charged
from odradek.broker.requests.splitting import Splitting
from odradek.cluster.authorizer import AclOperation, ResourceType
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from odradek.protocol.primitives import ZERO_UUID
from odradek.protocol.schema import replace_fields
from odradek.protocol.special_values import NO_COMMITTED_OFFSET

GROUP_ERROR_MIN_VERSION: Final = 2
MANY_GROUPS_MIN_VERSION: Final = 8
TOPIC_IDS_MIN_VERSION: Final = 10
BY_GROUP: Final = Splitting(
    ("groups", "topics", "partition_indexes"), ("groups", "topics", "partitions"), hashed=attrgetter("group_id")
)
BY_TOPIC: Final = Splitting(("topics", "partition_indexes"), ("topics", "partitions"))


@dataclass(slots=True)
class _GroupRequest:
    """One group of a request: the topics to fetch, and the results of the topics that are refused."""

    group: OffsetFetchRequestGroup
    refused: list[OffsetFetchResponseTopics] = field(default_factory=list)


_Pending = list[tuple[_GroupRequest, "Future[OffsetFetchResponseGroup] | Refusal"]]


def handle(
    context: BrokerRequestContext, request: OffsetFetchRequest
) -> Awaitable[OffsetFetchResponse] | Ordered[OffsetFetchResponse]:
    group_requests = [_GroupRequest(group) for group in _groups(context, request)]
    names = [group_request.group.group_id for group_request in group_requests]
    allowed = dict.fromkeys(context.split_allowed(AclOperation.DESCRIBE, ResourceType.GROUP, names)[0])
    caller = caller_of(context)

    def fetch(group_request: _GroupRequest) -> Future[OffsetFetchResponseGroup]:
        if group_request.group.group_id not in allowed:
            raise Refusal(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        _prepare(context, group_request)
        return context.broker.groups.fetch_offsets(group_request.group, caller, require_stable=request.require_stable)

    if all(group_request.group.topics is not None for group_request in group_requests):
        return _respond(context, request_each(group_requests, fetch))

    async def fetch_each(some: Sequence[_GroupRequest]) -> list[OffsetFetchResponseGroup]:
        return await _results(context, request_each(some, fetch))

    return _collect_all(context, group_requests, allowed, fetch_each)


def refuse(
    context: BrokerRequestContext, request: OffsetFetchRequest, error: ErrorCode, message: str | None
) -> OffsetFetchResponse:
    groups = _groups(context, request)
    return _response(context, [_group_error(context, group, error) for group in groups])


def _groups(context: BrokerRequestContext, request: OffsetFetchRequest) -> Sequence[OffsetFetchRequestGroup]:
    if context.api_version >= MANY_GROUPS_MIN_VERSION:
        return request.groups
    topics = request.topics
    return [
        OffsetFetchRequestGroup(
            request.group_id,
            topics=None
            if topics is None
            else [OffsetFetchRequestTopics(topic.name, ZERO_UUID, topic.partition_indexes) for topic in topics],
        )
    ]


def _prepare(context: BrokerRequestContext, group_request: _GroupRequest) -> None:
    """Move the topics that the client may not describe, or with an unknown id, to `refused`.

    Set the names of the rest.
    """
    requested = group_request.group.topics
    if requested is None:
        return
    by_id = context.api_version >= TOPIC_IDS_MIN_VERSION
    image = context.node.metadata.image
    if by_id:
        for topic in requested:
            topic_image = image.topic_by_id(topic.topic_id)
            topic.name = "" if topic_image is None else topic_image.name
    allowed = allowed_topics(context, AclOperation.DESCRIBE, (topic.name for topic in requested), by_id=by_id)
    kept: list[OffsetFetchRequestTopics] = []
    for topic in requested:
        if by_id and not topic.name:
            group_request.refused.append(_topic_error(topic, ErrorCode.UNKNOWN_TOPIC_ID))
        elif topic.name not in allowed:
            group_request.refused.append(_topic_error(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        else:
            kept.append(topic)
    group_request.group = replace_fields(group_request.group, topics=kept)


def _collect_all(
    context: BrokerRequestContext,
    group_requests: Sequence[_GroupRequest],
    allowed: Mapping[str, None],
    fetch_each: Callable[[Sequence[_GroupRequest]], Awaitable[list[OffsetFetchResponseGroup]]],
) -> Ordered[OffsetFetchResponse]:
    """Respond to a request for all offsets of at least one group."""
    groups = context.broker.groups

    def bytes_max(group_request: _GroupRequest) -> int:
        group = group_request.group
        if group.topics is not None or group.group_id not in allowed:
            return 0
        return groups.fetched_bytes_max(group.group_id)

    if context.api_version >= MANY_GROUPS_MIN_VERSION:

        def many(results: list[OffsetFetchResponseGroup]) -> OffsetFetchResponse:
            return OffsetFetchResponse(groups=results)

        return collect_charged(context, OffsetFetchResponse, group_requests, bytes_max, fetch_each, many)

    error = 0

    async def fetch_topics(some: Sequence[_GroupRequest]) -> list[OffsetFetchResponseTopic]:
        nonlocal error
        response = _response(context, await fetch_each(some))
        error = response.error_code
        return response.topics

    def one(topics: list[OffsetFetchResponseTopic]) -> OffsetFetchResponse:
        return OffsetFetchResponse(topics=topics, error_code=error)

    return collect_charged(context, OffsetFetchResponse, group_requests, bytes_max, fetch_topics, one)


async def _respond(context: BrokerRequestContext, pending: _Pending) -> OffsetFetchResponse:
    return _response(context, await _results(context, pending))


async def _results(context: BrokerRequestContext, pending: _Pending) -> list[OffsetFetchResponseGroup]:
    results = await responses_of(
        context, pending, lambda group_request, error, _message: _group_error(context, group_request.group, error)
    )
    for (group_request, _), result in zip(pending, results, strict=True):
        if result.error_code == ErrorCode.NONE:
            topics = _visible_topics(context, result.topics) if group_request.group.topics is None else result.topics
            result.topics = [*topics, *group_request.refused]
    return results


def _visible_topics(
    context: BrokerRequestContext, topics: list[OffsetFetchResponseTopics]
) -> list[OffsetFetchResponseTopics]:
    """Return the topics of a group that the client may describe; from v10, only existing topics, with their ids."""
    names = list(dict.fromkeys(topic.name for topic in topics))
    allowed = dict.fromkeys(context.permitted(AclOperation.DESCRIBE, ResourceType.TOPIC, names))
    visible = [topic for topic in topics if topic.name in allowed]
    if context.api_version < TOPIC_IDS_MIN_VERSION:
        return visible
    image = context.node.metadata.image
    known = [(topic, image.topic(topic.name)) for topic in visible]
    return [
        replace_fields(topic, topic_id=topic_image.topic_id) for topic, topic_image in known if topic_image is not None
    ]


def _topic_error(topic: OffsetFetchRequestTopics, error: ErrorCode) -> OffsetFetchResponseTopics:
    partitions = [
        OffsetFetchResponsePartitions(index, NO_COMMITTED_OFFSET, error_code=error) for index in topic.partition_indexes
    ]
    return OffsetFetchResponseTopics(topic.name, topic.topic_id, partitions)


def _group_error(
    context: BrokerRequestContext, group: OffsetFetchRequestGroup, error: ErrorCode
) -> OffsetFetchResponseGroup:
    if context.api_version >= MANY_GROUPS_MIN_VERSION:
        return OffsetFetchResponseGroup(group.group_id, error_code=error)
    topics = [_topic_error(topic, error) for topic in group.topics or ()]
    return OffsetFetchResponseGroup(group.group_id, topics, error)


def _response(context: BrokerRequestContext, results: Sequence[OffsetFetchResponseGroup]) -> OffsetFetchResponse:
    if context.api_version >= MANY_GROUPS_MIN_VERSION:
        return OffsetFetchResponse(groups=list(results))
    result = results[0]
    topics = [
        OffsetFetchResponseTopic(
            topic.name,
            [
                OffsetFetchResponsePartition(
                    partition.partition_index,
                    partition.committed_offset,
                    partition.committed_leader_epoch,
                    partition.metadata,
                    partition.error_code,
                )
                for partition in topic.partitions
            ],
        )
        for topic in result.topics
    ]
    # A response of v1 has no error for the whole group.
    error = result.error_code if context.api_version >= GROUP_ERROR_MIN_VERSION else 0
    return OffsetFetchResponse(topics=topics, error_code=error)


def _splitting(version: int) -> Splitting:
    return BY_GROUP if version >= MANY_GROUPS_MIN_VERSION else BY_TOPIC


API: Final = Api(
    key=9,
    min_version=1,
    max_version=10,
    request=OffsetFetchRequest,
    response=OffsetFetchResponse,
    handle=handle,
    refuse=refuse,
    splitting=_splitting,
    acl="DESCRIBE on each group and on each topic",
)
