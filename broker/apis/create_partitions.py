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

from collections.abc import Sequence
from typing import Final

from odradek.broker.contexts import QuorumRequestContext
from odradek.broker.requests.api import Api, Routing
from odradek.broker.requests.slices import respond_in_parts, visit_parts
from odradek.broker.requests.splitting import Splitting
from odradek.cluster.authorizer import AclOperation, ResourceType
from odradek.cluster.controller.messages.topics import NewPartitions
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

STRICT_QUOTA_MIN_VERSION: Final = 3
PARTS: Final = Splitting(("topics",), ("results",))


async def handle(context: QuorumRequestContext, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    names = list(dict.fromkeys(topic.name for topic in request.topics))
    _, denied = context.split_allowed(AclOperation.ALTER, ResourceType.TOPIC, names)
    refused = {name: _result(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, None) for name in denied}
    mutations = context.node.quotas.controller_mutations(
        context, strict=context.api_version >= STRICT_QUOTA_MIN_VERSION
    )

    def count(part: CreatePartitionsRequest) -> None:
        for topic in part.topics:
            existing = context.node.metadata.image.topic(topic.name)
            if topic.name not in refused and existing is not None and topic.count > len(existing.partitions):
                try:
                    mutations.record(topic.count - len(existing.partitions))
                except Refusal as refusal:
                    refused[topic.name] = _result(topic.name, refusal.error, refusal.message)

    accepted: list[NewPartitions] = []

    def accept(part: CreatePartitionsRequest) -> None:
        accepted.extend(_new_partitions(topic) for topic in part.topics if topic.name not in refused)

    await visit_parts(PARTS, request, count)
    await visit_parts(PARTS, request, accept)  # afterwards: a topic that is named twice can be refused the second time
    created = await context.quorum.controller.create_partitions(
        accepted, validate_only=request.validate_only, timeout_ms=request.timeout_ms
    )
    outcomes = {topic.name: (topic.error, topic.message) for topic in created if topic.name is not None}

    def respond(part: Sequence[str]) -> CreatePartitionsResponse:
        return CreatePartitionsResponse(
            mutations.throttle_ms,
            [refused[name] if name in refused else _result(name, *outcomes[name]) for name in part],
        )

    return await respond_in_parts(context, PARTS, CreatePartitionsResponse, names, respond)


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
    splitting=lambda _: PARTS,
    elements=lambda request: len(request.topics),
    acl="ALTER on the topic",
)
