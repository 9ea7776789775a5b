"""CreatePartitions: v0-v3

Behavior:
* `count` is the new total; it can only grow (INVALID_PARTITIONS). Keys of existing records are not moved.
* A topic that is named twice is refused as a whole (INVALID_REQUEST), the others go on.

Version notes: the body is the same in all; v2 is flexible, v3 may answer THROTTLING_QUOTA_EXCEEDED (KIP-599).
"""

from typing import Final

from odradek.broker.contexts import QuorumRequestContext
from odradek.broker.requests.api import Api, Routing
from odradek.cluster.authorizer import AclOperation, ResourceType
from odradek.cluster.controller.messages.topics import NewPartitions
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

STRICT_FROM: Final = 3


async def handle(context: QuorumRequestContext, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    names = list(dict.fromkeys(topic.name for topic in request.topics))
    _, denied = context.split_allowed(AclOperation.ALTER, ResourceType.TOPIC, names)
    results = {name: _result(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, None) for name in denied}
    mutations = context.node.quotas.controller_mutations(context, strict=context.api_version >= STRICT_FROM)
    for topic in request.topics:
        known = context.node.metadata.image.topic(topic.name)
        if topic.name not in results and known is not None and topic.count > len(known.partitions):
            try:
                mutations.record(topic.count - len(known.partitions))
            except Refusal as refusal:
                results[topic.name] = _result(topic.name, refusal.error, refusal.message)
    done = await context.quorum.controller.create_partitions(
        [_new_partitions(topic) for topic in request.topics if topic.name not in results],
        validate_only=request.validate_only,
        timeout_ms=request.timeout_ms,
    )
    results |= {topic.name: _result(topic.name, topic.error, topic.message) for topic in done if topic.name is not None}
    return CreatePartitionsResponse(mutations.throttle_ms, [results[name] for name in names])


def _new_partitions(topic: CreatePartitionsTopic) -> NewPartitions:
    given = topic.assignments
    return NewPartitions(
        topic.name, topic.count, None if given is None else tuple(tuple(each.broker_ids) for each in given)
    )


def _result(name: str, error: ErrorCode, message: str | None) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name=name, error_code=error, error_message=message)


def refuse(
    context: QuorumRequestContext, request: CreatePartitionsRequest, error: ErrorCode, message: str | None
) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(results=[_result(topic.name, error, message) for topic in request.topics])


API: Final = Api(
    key=37,
    min_version=0,
    max_version=3,
    request=CreatePartitionsRequest,
    response=CreatePartitionsResponse,
    handle=handle,
    refuse=refuse,
    routing=Routing.CONTROLLER,
    acl="ALTER on the topic",
)
