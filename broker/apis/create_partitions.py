"""CreatePartitions: increase the number of partitions of topics (KIP-195).

Behavior:
* `count` is the new total. Existing records stay in their partitions, also if their keys belong to other partitions
  now.
* The response is sent when the new partitions are committed to the metadata log.
* The client's quota `controller_mutation_rate` counts the new partitions.

Errors:
* Per topic: TOPIC_AUTHORIZATION_FAILED, THROTTLING_QUOTA_EXCEEDED, INVALID_REQUEST for a topic that the request names
  more than once, and INVALID_PARTITIONS if `count` is not above the current number.
* INVALID_PARTITIONS for the topics of coordinators, such as `__consumer_offsets`: their number of partitions determines
  the coordinator of each id. Kafka adds the partitions, and existing groups and transactions lose their state.

Version notes:
* v2 is flexible. v3 knows THROTTLING_QUOTA_EXCEEDED; clients of earlier versions are throttled afterwards (KIP-599).
"""

from typing import Final

from odradek.broker.contexts import QuorumRequestContext
from odradek.broker.requests.api import Api, Routing, split_by
from odradek.cluster.authorizer import AclOperation, ResourceType
from odradek.cluster.controller.messages.topics import NewPartitions
from odradek.cluster.controller.slices import RECORDS_PER_REQUEST_MAX
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

STRICT_QUOTA_MIN_VERSION: Final = 3


async def handle(context: QuorumRequestContext, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    names = list(dict.fromkeys(topic.name for topic in request.topics))
    _, denied = context.split_allowed(AclOperation.ALTER, ResourceType.TOPIC, names)
    results = {name: _result(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, None) for name in denied}
    mutations = context.node.quotas.controller_mutations(
        context, strict=context.api_version >= STRICT_QUOTA_MIN_VERSION
    )
    for topic in request.topics:
        existing = context.node.metadata.image.topic(topic.name)
        if topic.name not in results and existing is not None and topic.count > len(existing.partitions):
            try:
                mutations.record(topic.count - len(existing.partitions))
            except Refusal as refusal:
                results[topic.name] = _result(topic.name, refusal.error, refusal.message)
    created = await context.quorum.controller.create_partitions(
        [_new_partitions(topic) for topic in request.topics if topic.name not in results],
        validate_only=request.validate_only,
        timeout_ms=request.timeout_ms,
    )
    results |= {
        topic.name: _result(topic.name, topic.error, topic.message) for topic in created if topic.name is not None
    }
    return CreatePartitionsResponse(mutations.throttle_ms, [results[name] for name in names])


def _new_partitions(topic: CreatePartitionsTopic) -> NewPartitions:
    assignments = topic.assignments
    return NewPartitions(
        topic.name,
        topic.count,
        None if assignments is None else tuple(tuple(assignment.broker_ids) for assignment in assignments),
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
    splitting=split_by(("topics",), ("results",)),
    elements_max=RECORDS_PER_REQUEST_MAX,
    acl="ALTER on the topic",
)
