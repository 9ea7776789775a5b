"""DeleteTopics: delete topics by name or by id (KIP-4, KIP-516).

Behavior:
* The response is sent when the deletion is committed to the metadata log. Brokers delete the logs afterwards.
* The client's quota `controller_mutation_rate` counts the deleted partitions.

Errors:
* With `delete.topic.enable=false`, all topics have the error TOPIC_DELETION_DISABLED (INVALID_REQUEST up to v2).
* Per topic: INVALID_REQUEST if both or none of name and id are given, or for a duplicate; TOPIC_AUTHORIZATION_FAILED;
  THROTTLING_QUOTA_EXCEEDED; UNKNOWN_TOPIC_OR_PARTITION or UNKNOWN_TOPIC_ID.
* If the client may neither delete nor describe a topic that it names by id, the response does not have the name of the
  topic.

Version notes:
* v5 has error messages and knows THROTTLING_QUOTA_EXCEEDED; clients of earlier versions are throttled afterwards
  (KIP-599).
* v6 has topic ids (KIP-516).
"""

from collections import Counter
from typing import Final

from odradek.broker.contexts import QuorumRequestContext
from odradek.broker.requests.api import Api, Routing
from odradek.broker.requests.splitting import Splitting
from odradek.cluster.authorizer import AclOperation, ResourceType
from odradek.cluster.controller.messages.topics import TopicName
from odradek.cluster.metadata.image import TopicImage
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from odradek.protocol.primitives import ZERO_UUID

DELETION_DISABLED_MIN_VERSION: Final = 3
TOPIC_IDS_MIN_VERSION: Final = 6
STRICT_QUOTA_MIN_VERSION: Final = 5
"""First version whose clients know THROTTLING_QUOTA_EXCEEDED (KIP-599)."""


async def handle(context: QuorumRequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    if not context.node.config.delete_topic_enable:
        knows_error = context.api_version >= DELETION_DISABLED_MIN_VERSION
        raise Refusal(ErrorCode.TOPIC_DELETION_DISABLED if knows_error else ErrorCode.INVALID_REQUEST)
    items = _items(context, request)
    counts = Counter(items)
    refused = {item: result for item in counts if (result := _refused(context, item, counts[item])) is not None}
    mutations = context.node.quotas.controller_mutations(
        context, strict=context.api_version >= STRICT_QUOTA_MIN_VERSION
    )
    for item in counts:
        topic = _topic(context, item)
        if item not in refused and topic is not None:
            try:
                mutations.record(len(topic.partitions))
            except Refusal as refusal:
                refused[item] = _result(item, refusal.error, refusal.message)
    accepted = [item for item in counts if item not in refused]
    deleted = await context.quorum.controller.delete_topics(accepted, timeout_ms=request.timeout_ms)
    results = {
        item: DeletableTopicResult(
            name=topic.name, topic_id=topic.topic_id, error_code=topic.error, error_message=topic.message
        )
        for item, topic in zip(accepted, deleted, strict=True)
    }
    return DeleteTopicsResponse(
        mutations.throttle_ms, [results[item] if item in results else refused[item] for item in counts]
    )


def _topic(context: QuorumRequestContext, item: TopicName) -> TopicImage | None:
    image = context.node.metadata.image
    return image.topic_by_id(item.topic_id) if item.name is None else image.topic(item.name)


def _items(context: QuorumRequestContext, request: DeleteTopicsRequest) -> list[TopicName]:
    if context.api_version < TOPIC_IDS_MIN_VERSION:
        return [TopicName(name) for name in request.topic_names]
    return [TopicName(topic.name, topic.topic_id) for topic in request.topics]


def _refused(context: QuorumRequestContext, item: TopicName, count: int) -> DeletableTopicResult | None:
    """Return the result of a topic that is invalid, named `count` times, or denied; None if the controller decides."""
    by_id = item.topic_id != ZERO_UUID
    if by_id == (item.name is not None):
        message = (
            "You may not specify both topic name and topic id." if by_id else "Neither topic name nor id were given."
        )
        return _result(item, ErrorCode.INVALID_REQUEST, message)
    if count > 1:
        return _result(item, ErrorCode.INVALID_REQUEST, "Duplicate topic name or id.")
    topic = context.node.metadata.image.topic_by_id(item.topic_id) if by_id else None
    name = item.name if topic is None else topic.name
    if name is None:
        return None
    if context.permits_on_cluster(AclOperation.DELETE):
        context.allowed_on_cluster(AclOperation.DELETE, about=(name,))  # for the audit log
        return None
    if not by_id and not context.allowed(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
        return _result(item, ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
    if context.allowed(AclOperation.DELETE, ResourceType.TOPIC, name):
        return None
    shown = name if context.permits(AclOperation.DESCRIBE, ResourceType.TOPIC, name) else item.name
    return _result(TopicName(shown, item.topic_id), ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)


def _result(item: TopicName, error: ErrorCode, message: str | None) -> DeletableTopicResult:
    return DeletableTopicResult(name=item.name, topic_id=item.topic_id, error_code=error, error_message=message)


def refuse(
    context: QuorumRequestContext, request: DeleteTopicsRequest, error: ErrorCode, message: str | None
) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(responses=[_result(item, error, message) for item in _items(context, request)])


def _splitting(version: int) -> Splitting:
    return Splitting(("topic_names" if version < TOPIC_IDS_MIN_VERSION else "topics",), ("responses",))


API: Final = Api(
    key=20,
    min_version=1,
    max_version=6,
    request=DeleteTopicsRequest,
    response=DeleteTopicsResponse,
    handle=handle,
    refuse=refuse,
    routing=Routing.CONTROLLER,
    splitting=_splitting,
    elements=lambda request: len(request.topic_names) + len(request.topics),
    acl="DELETE on the cluster or the topic; also DESCRIBE on the topic if the request names it by name",
)
