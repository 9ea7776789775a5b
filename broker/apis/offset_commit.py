"""OffsetCommit: commit offsets of a group.

Behavior:
* The coordinator commits the offsets of all existing partitions, or none of them. Partitions that do not exist have
  their own error and do not prevent the commit of the others.
* The stored record contains the topic id in every version. If a topic is deleted and created again, the offsets of the
  former topic are not used.

Errors:
* GROUP_AUTHORIZATION_FAILED. Per partition: TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION or UNKNOWN_TOPIC_ID,
  then the error of the group coordinator (UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, STALE_MEMBER_EPOCH,
  OFFSET_METADATA_TOO_LARGE and others).

Version notes:
* v0 and v1 were removed in Kafka 4.0.
* v2 to v4 have a retention time per commit. v6 has leader epochs (KIP-320). v7 has static members (KIP-345). v8 is
  flexible.
* v9 is for members of the consumer protocol, too (KIP-848). v10 has topic ids instead of names (KIP-848).
"""

from asyncio import Future
from collections.abc import Awaitable, Hashable
from typing import Final

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.coordinators.group_requests import (
    allowed_topics,
    caller_of,
    check_group,
    merge_topics,
    request_each,
    responses_of,
    result_or_future,
    split_existing,
    topic_error,
)
from odradek.broker.requests.api import Api, split_by
from odradek.cluster.authorizer import AclOperation
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from odradek.protocol.primitives import ZERO_UUID
from odradek.protocol.schema import replace_fields

TOPIC_IDS_MIN_VERSION: Final = 10


def handle(
    context: BrokerRequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    check_group(context, AclOperation.READ, request.group_id)
    by_id = context.api_version >= TOPIC_IDS_MIN_VERSION
    image = context.node.metadata.image
    if by_id:
        for topic in request.topics:
            topic_image = image.topic_by_id(topic.topic_id)
            topic.name = "" if topic_image is None else topic_image.name
    allowed = allowed_topics(context, AclOperation.READ, (topic.name for topic in request.topics), by_id=by_id)
    refused: list[OffsetCommitResponseTopic] = []
    accepted: list[OffsetCommitRequestTopic] = []
    for topic in request.topics:
        unknown_id = by_id and not topic.name
        error = (
            ErrorCode.UNKNOWN_TOPIC_ID if unknown_id else topic_error(context.node.metadata.image, allowed, topic.name)
        )
        if error is not ErrorCode.NONE:
            refused.append(_refused(topic, topic.partitions, error))
            continue
        if not by_id:
            topic_image = image.topic(topic.name)
            topic.topic_id = ZERO_UUID if topic_image is None else topic_image.topic_id
        existing, missing = split_existing(context.node.metadata.image, topic.name, topic.partitions)
        if missing:
            refused.append(_refused(topic, missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        if existing:
            accepted.append(replace_fields(topic, partitions=existing))
    if not accepted:
        return OffsetCommitResponse(topics=merge_topics(refused, (), _key))
    caller, groups = caller_of(context), context.broker.groups
    if accepted == request.topics:
        return result_or_future(groups.commit_offsets(request, caller))
    pending = request_each(
        [replace_fields(request, topics=accepted)], lambda reduced: groups.commit_offsets(reduced, caller)
    )
    return _merged(context, pending, refused)


def refuse(
    context: BrokerRequestContext, request: OffsetCommitRequest, error: ErrorCode, message: str | None
) -> OffsetCommitResponse:
    return OffsetCommitResponse(topics=[_refused(topic, topic.partitions, error) for topic in request.topics])


async def _merged(
    context: BrokerRequestContext,
    pending: list[tuple[OffsetCommitRequest, Future[OffsetCommitResponse] | Refusal]],
    refused: list[OffsetCommitResponseTopic],
) -> OffsetCommitResponse:
    (response,) = await responses_of(
        context, pending, lambda request, error, message: refuse(context, request, error, message)
    )
    return OffsetCommitResponse(topics=merge_topics(refused, response.topics, _key))


def _key(topic: OffsetCommitResponseTopic) -> Hashable:
    return topic.name, topic.topic_id


def _refused(
    topic: OffsetCommitRequestTopic, partitions: list[OffsetCommitRequestPartition], error: ErrorCode
) -> OffsetCommitResponseTopic:
    results = [OffsetCommitResponsePartition(partition.partition_index, error) for partition in partitions]
    return OffsetCommitResponseTopic(topic.name, topic.topic_id, results)


API: Final = Api(
    key=8,
    min_version=2,
    max_version=10,
    request=OffsetCommitRequest,
    response=OffsetCommitResponse,
    handle=handle,
    refuse=refuse,
    splitting=split_by(("topics", "partitions"), ("topics", "partitions")),
    acl="READ on the group and on each topic",
)
