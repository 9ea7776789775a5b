"""OffsetFetch: v1-10 (v0 went with Kafka 4.0).

Behavior:
* Groups are answered each by itself. Topics need not exist: what a group has committed is told for as long as it is
  kept.
* What is wrong with a whole group is said of each of its partitions, too, up to v7: aiokafka looks nowhere else, and
  takes an answer without partitions for a group that has committed nothing (decision 0066).
* With RequireStable a partition whose offset hangs on an open transaction is answered UNSTABLE_OFFSET_COMMIT (KIP-447).

Version notes:
* v2 all topics of a group, and an error for the whole group · v5 leader epoch · v6 flexible · v7 RequireStable · v8
  many groups (KIP-709) · v9 members of the consumer protocol (KIP-848) · v10 topic ids instead of names (KIP-848)
"""

from asyncio import Future
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.coordinators.group_requests import allowed_topics, answers_of, ask_each, caller_of
from odradek.broker.requests.api import Api
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

GROUP_ERROR_MIN_VERSION: Final = 2
MANY_GROUPS_MIN_VERSION: Final = 8
TOPIC_IDS_MIN_VERSION: Final = 10
NO_OFFSET: Final = -1


@dataclass(slots=True)
class _Wanted:
    """One group of a request, and its topics that are not looked up."""

    group: OffsetFetchRequestGroup
    refused: list[OffsetFetchResponseTopics] = field(default_factory=list)


def handle(context: BrokerRequestContext, request: OffsetFetchRequest) -> Awaitable[OffsetFetchResponse]:
    wanted = [_Wanted(group) for group in _groups(context, request)]
    names = [each.group.group_id for each in wanted]
    allowed = dict.fromkeys(context.split_allowed(AclOperation.DESCRIBE, ResourceType.GROUP, names)[0])
    caller = caller_of(context)

    def ask(each: _Wanted) -> Future[OffsetFetchResponseGroup]:
        if each.group.group_id not in allowed:
            raise Refusal(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        _prepare(context, each)
        return context.broker.groups.fetch_offsets(each.group, caller, require_stable=request.require_stable)

    return _answer(context, ask_each(wanted, ask))


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


def _prepare(context: BrokerRequestContext, wanted: _Wanted) -> None:
    """Take out the topics that may not be told, and give the others their names."""
    asked = wanted.group.topics
    if asked is None:
        return
    by_id = context.api_version >= TOPIC_IDS_MIN_VERSION
    image = context.node.metadata.image
    if by_id:
        for topic in asked:
            found = image.topic_by_id(topic.topic_id)
            topic.name = "" if found is None else found.name
    allowed = allowed_topics(context, AclOperation.DESCRIBE, [topic.name for topic in asked])
    kept: list[OffsetFetchRequestTopics] = []
    for topic in asked:
        if by_id and not topic.name:
            wanted.refused.append(_topic_error(topic, ErrorCode.UNKNOWN_TOPIC_ID))
        elif topic.name not in allowed:
            wanted.refused.append(_topic_error(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        else:
            kept.append(topic)
    wanted.group = replace(wanted.group, topics=kept)


async def _answer(
    context: BrokerRequestContext, asked: list[tuple[_Wanted, Future[OffsetFetchResponseGroup] | Refusal]]
) -> OffsetFetchResponse:
    answers = await answers_of(context, asked, lambda each, error, _message: _group_error(context, each.group, error))
    for (each, _), answer in zip(asked, answers, strict=True):
        if answer.error_code == ErrorCode.NONE:
            topics = _tellable(context, answer.topics) if each.group.topics is None else answer.topics
            answer.topics = [*topics, *each.refused]
    return _response(context, answers)


def _tellable(
    context: BrokerRequestContext, topics: list[OffsetFetchResponseTopics]
) -> list[OffsetFetchResponseTopics]:
    """All topics of a group, less those that the caller may not describe or that have no id where ids are told."""
    allowed = allowed_topics(context, AclOperation.DESCRIBE, [topic.name for topic in topics])
    told = [topic for topic in topics if topic.name in allowed]
    if context.api_version < TOPIC_IDS_MIN_VERSION:
        return told
    image = context.node.metadata.image
    known = [(topic, image.topic(topic.name)) for topic in told]
    return [replace(topic, topic_id=found.topic_id) for topic, found in known if found is not None]


def _topic_error(topic: OffsetFetchRequestTopics, error: ErrorCode) -> OffsetFetchResponseTopics:
    partitions = [
        OffsetFetchResponsePartitions(index, NO_OFFSET, error_code=error) for index in topic.partition_indexes
    ]
    return OffsetFetchResponseTopics(topic.name, topic.topic_id, partitions)


def _group_error(
    context: BrokerRequestContext, group: OffsetFetchRequestGroup, error: ErrorCode
) -> OffsetFetchResponseGroup:
    if context.api_version >= MANY_GROUPS_MIN_VERSION:
        return OffsetFetchResponseGroup(group.group_id, error_code=error)
    topics = [_topic_error(topic, error) for topic in group.topics or ()]
    return OffsetFetchResponseGroup(group.group_id, topics, error)


def _response(context: BrokerRequestContext, answers: Sequence[OffsetFetchResponseGroup]) -> OffsetFetchResponse:
    if context.api_version >= MANY_GROUPS_MIN_VERSION:
        return OffsetFetchResponse(groups=list(answers))
    only = answers[0]
    topics = [
        OffsetFetchResponseTopic(
            topic.name,
            [
                OffsetFetchResponsePartition(
                    each.partition_index,
                    each.committed_offset,
                    each.committed_leader_epoch,
                    each.metadata,
                    each.error_code,
                )
                for each in topic.partitions
            ],
        )
        for topic in only.topics
    ]
    # An answer of v1 has no place for the error of the whole.
    error = only.error_code if context.api_version >= GROUP_ERROR_MIN_VERSION else 0
    return OffsetFetchResponse(topics=topics, error_code=error)


API: Final = Api(
    key=9,
    min_version=1,
    max_version=10,
    request=OffsetFetchRequest,
    response=OffsetFetchResponse,
    handle=handle,
    refuse=refuse,
    acl="DESCRIBE on each group and on each topic",
)
