"""OffsetCommit: v2-10 (v0-1 went with Kafka 4.0).

Behavior:
* Topics and partitions that do not exist are answered each by itself; the others are committed, all or none of them,
  and what the group says to that is said of them alone.
* The topic id goes into the record with every version: offsets of a topic that is deleted and made anew do not come
  back.

Version notes:
* v2-4 a retention of the client's own · v6 leader epoch · v7 static members (KIP-345) · v8 flexible · v9 members of the
  consumer protocol (KIP-848) · v10 topic ids instead of names (KIP-848)
"""

from asyncio import Future
from collections.abc import Awaitable, Hashable
from dataclasses import replace
from typing import Final

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.coordinators.group_requests import (
    allowed_topics,
    answers_of,
    ask_each,
    caller_of,
    check_group,
    joined,
    now_or_later,
    split_existing,
    topic_error,
)
from odradek.broker.requests.api import Api
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

TOPIC_IDS_MIN_VERSION: Final = 10


def handle(
    context: BrokerRequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    check_group(context, AclOperation.READ, request.group_id)
    by_id = context.api_version >= TOPIC_IDS_MIN_VERSION
    image = context.node.metadata.image
    if by_id:
        for topic in request.topics:
            found = image.topic_by_id(topic.topic_id)
            topic.name = "" if found is None else found.name
    allowed = allowed_topics(context, AclOperation.READ, [topic.name for topic in request.topics])
    refused: list[OffsetCommitResponseTopic] = []
    wanted: list[OffsetCommitRequestTopic] = []
    for topic in request.topics:
        nameless = by_id and not topic.name
        error = (
            ErrorCode.UNKNOWN_TOPIC_ID if nameless else topic_error(context.node.metadata.image, allowed, topic.name)
        )
        if error is not ErrorCode.NONE:
            refused.append(_refused(topic, topic.partitions, error))
            continue
        if not by_id:
            named = image.topic(topic.name)
            topic.topic_id = ZERO_UUID if named is None else named.topic_id
        there, others = split_existing(context.node.metadata.image, topic.name, topic.partitions)
        if others:
            refused.append(_refused(topic, others, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        if there:
            wanted.append(replace(topic, partitions=there))
    if not wanted:
        return OffsetCommitResponse(topics=joined(refused, (), _key))
    caller, groups = caller_of(context), context.broker.groups
    if wanted == request.topics:
        return now_or_later(groups.commit_offsets(request, caller))
    asked = ask_each([replace(request, topics=wanted)], lambda asking: groups.commit_offsets(asking, caller))
    return _merged(context, asked, refused)


def refuse(
    context: BrokerRequestContext, request: OffsetCommitRequest, error: ErrorCode, message: str | None
) -> OffsetCommitResponse:
    return OffsetCommitResponse(topics=[_refused(topic, topic.partitions, error) for topic in request.topics])


async def _merged(
    context: BrokerRequestContext,
    asked: list[tuple[OffsetCommitRequest, Future[OffsetCommitResponse] | Refusal]],
    refused: list[OffsetCommitResponseTopic],
) -> OffsetCommitResponse:
    (response,) = await answers_of(
        context, asked, lambda request, error, message: refuse(context, request, error, message)
    )
    return OffsetCommitResponse(topics=joined(refused, response.topics, _key))


def _key(topic: OffsetCommitResponseTopic) -> Hashable:
    return topic.name, topic.topic_id


def _refused(
    topic: OffsetCommitRequestTopic, partitions: list[OffsetCommitRequestPartition], error: ErrorCode
) -> OffsetCommitResponseTopic:
    answers = [OffsetCommitResponsePartition(partition.partition_index, error) for partition in partitions]
    return OffsetCommitResponseTopic(topic.name, topic.topic_id, answers)


API: Final = Api(
    key=8,
    min_version=2,
    max_version=10,
    request=OffsetCommitRequest,
    response=OffsetCommitResponse,
    handle=handle,
    refuse=refuse,
    acl="READ on the group and on each topic",
)
