"""DeleteTopics: v1-v6

Behavior:
* Topics are deleted by name or, from v6 on, by id; a name that the client may not see is not disclosed for an id.
* With `delete.topic.enable=false`: INVALID_REQUEST up to v2, TOPIC_DELETION_DISABLED from v3 on.

Version notes:
* v5: error messages · v6: topic ids (KIP-516); an item needs exactly one of name and id
"""

from collections import Counter
from typing import Final

from odradek.broker.contexts import QuorumRequestContext
from odradek.broker.requests.api import Api, Routing
from odradek.cluster.authorizer import AclOperation, ResourceType
from odradek.cluster.controller.messages.topics import TopicName
from odradek.cluster.metadata.image import TopicImage
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from odradek.protocol.primitives import ZERO_UUID

DISABLED_NAMED_FROM: Final = 3
ITEMS_FROM: Final = 6
STRICT_FROM: Final = 5
"""Clients of these versions understand THROTTLING_QUOTA_EXCEEDED (KIP-599)."""


async def handle(context: QuorumRequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    if not context.node.config.delete_topic_enable:
        known = context.api_version >= DISABLED_NAMED_FROM
        raise Refusal(ErrorCode.TOPIC_DELETION_DISABLED if known else ErrorCode.INVALID_REQUEST)
    items = _items(context, request)
    times = Counter(items)
    refused = {item: result for item in times if (result := _refused(context, item, times[item])) is not None}
    mutations = context.node.quotas.controller_mutations(context, strict=context.api_version >= STRICT_FROM)
    for item in times:
        topic = _known(context, item)
        if item not in refused and topic is not None:
            try:
                mutations.record(len(topic.partitions))
            except Refusal as refusal:
                refused[item] = _result(item, refusal.error, refusal.message)
    wanted = [item for item in times if item not in refused]
    done = await context.quorum.controller.delete_topics(wanted, timeout_ms=request.timeout_ms)
    results = {
        item: DeletableTopicResult(
            name=each.name, topic_id=each.topic_id, error_code=each.error, error_message=each.message
        )
        for item, each in zip(wanted, done, strict=True)
    }
    return DeleteTopicsResponse(
        mutations.throttle_ms, [results[item] if item in results else refused[item] for item in times]
    )


def _known(context: QuorumRequestContext, item: TopicName) -> TopicImage | None:
    image = context.node.metadata.image
    return image.topic_by_id(item.topic_id) if item.name is None else image.topic(item.name)


def _items(context: QuorumRequestContext, request: DeleteTopicsRequest) -> list[TopicName]:
    if context.api_version < ITEMS_FROM:
        return [TopicName(name) for name in request.topic_names]
    return [TopicName(topic.name, topic.topic_id) for topic in request.topics]


def _refused(context: QuorumRequestContext, item: TopicName, times: int) -> DeletableTopicResult | None:
    by_id = item.topic_id != ZERO_UUID
    if by_id == (item.name is not None):
        message = (
            "You may not specify both topic name and topic id." if by_id else "Neither topic name nor id were given."
        )
        return _result(item, ErrorCode.INVALID_REQUEST, message)
    if times > 1:
        return _result(item, ErrorCode.INVALID_REQUEST, "Duplicate topic name or id.")
    topic = context.node.metadata.image.topic_by_id(item.topic_id) if by_id else None
    name = item.name if topic is None else topic.name
    if name is None:
        return None
    if by_id and not context.allowed(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
        return _result(item, ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
    if not context.allowed(AclOperation.DELETE, ResourceType.TOPIC, name):
        return _result(TopicName(name, item.topic_id), ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
    return None


def _result(item: TopicName, error: ErrorCode, message: str | None) -> DeletableTopicResult:
    return DeletableTopicResult(name=item.name, topic_id=item.topic_id, error_code=error, error_message=message)


def refuse(
    context: QuorumRequestContext, request: DeleteTopicsRequest, error: ErrorCode, message: str | None
) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(responses=[_result(item, error, message) for item in _items(context, request)])


API: Final = Api(
    key=20,
    min_version=1,
    max_version=6,
    request=DeleteTopicsRequest,
    response=DeleteTopicsResponse,
    handle=handle,
    refuse=refuse,
    routing=Routing.CONTROLLER,
    acl="DELETE on the topic; DESCRIBE too when it is named by its id",
)
