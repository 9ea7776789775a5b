"""CreateTopics: create topics (KIP-4).

Behavior:
* The controller creates each topic that it accepts in one atomic batch of the metadata log. Large requests are several
  batches; Kafka writes one.
* The response is sent when all batches are committed to the metadata log.
* With `validate_only`, the request is checked and nothing is created.
* The client's quota `controller_mutation_rate` counts the new partitions.

Errors:
* POLICY_VIOLATION for all topics if the request needs more than 10,000 partitions or records of the metadata log.
* Per topic: TOPIC_AUTHORIZATION_FAILED, INVALID_REQUEST for `__cluster_metadata`, THROTTLING_QUOTA_EXCEEDED, then the
  error of the controller (TOPIC_ALREADY_EXISTS, INVALID_REPLICATION_FACTOR, INVALID_CONFIG and others).
* `topic_config_error_code` is TOPIC_AUTHORIZATION_FAILED if the client may create a topic but not see its
  configuration.

Version notes:
* v4: number of partitions and replication factor can be -1, the broker's defaults (KIP-464).
* v5: the response has the topic's configuration (KIP-525). v7: it has the topic id (KIP-516).
* v6 knows THROTTLING_QUOTA_EXCEEDED; clients of earlier versions are throttled afterwards (KIP-599).
"""

from collections.abc import Sequence
from typing import Final

from odradek.broker.contexts import QuorumRequestContext
from odradek.broker.requests.api import Api, Routing, split_by
from odradek.cluster.authorizer import AclOperation, ResourceType
from odradek.cluster.controller.messages.topics import USE_DEFAULT, CreatedTopic, NewTopic
from odradek.cluster.controller.partitions.creation import PARTITIONS_PER_CALL_MAX, too_many_partitions
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.internal_topics import CLUSTER_METADATA
from odradek.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

STRICT_QUOTA_MIN_VERSION: Final = 6
"""First version whose clients know THROTTLING_QUOTA_EXCEEDED (KIP-599)."""


async def handle(context: QuorumRequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    # The controller has the same limit. It would receive a copy of all assignments first.
    if sum(len(topic.assignments) for topic in request.topics) > PARTITIONS_PER_CALL_MAX:
        raise too_many_partitions()
    refused = _refused(context, request)
    mutations = context.node.quotas.controller_mutations(
        context, strict=context.api_version >= STRICT_QUOTA_MIN_VERSION
    )
    for topic in request.topics:
        if topic.name not in refused and context.node.metadata.image.topic(topic.name) is None:
            try:
                mutations.record(_partition_count(context, topic))
            except Refusal as refusal:
                refused[topic.name] = _error(topic.name, refusal.error, refusal.message)
    accepted = [_new_topic(topic) for topic in request.topics if topic.name not in refused]
    created = await context.quorum.controller.create_topics(
        accepted, validate_only=request.validate_only, timeout_ms=request.timeout_ms
    )
    names = [topic.name for topic in created]
    shown = dict.fromkeys(context.permitted(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, names))
    results = {topic.name: _result(topic, shows_configs=topic.name in shown) for topic in created}
    return CreateTopicsResponse(
        throttle_time_ms=mutations.throttle_ms,
        topics=[
            results[name] if name in results else refused[name]
            for name in dict.fromkeys(topic.name for topic in request.topics)
        ],
    )


def _partition_count(context: QuorumRequestContext, topic: CreatableTopic) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return max(0, context.node.config.num_partitions if topic.num_partitions == USE_DEFAULT else topic.num_partitions)


def _refused(context: QuorumRequestContext, request: CreateTopicsRequest) -> dict[str, CreatableTopicResult]:
    """Return the results of the topics that this client, or every client, may not create."""
    names = list(dict.fromkeys(topic.name for topic in request.topics))
    refused: dict[str, CreatableTopicResult] = {}
    if not _may_create_all(context, names):
        _, denied = context.split_allowed(AclOperation.CREATE, ResourceType.TOPIC, names)
        for name in denied:
            refused[name] = _error(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
    for name in names:
        if name == CLUSTER_METADATA:
            message = f"Creation of internal topic {CLUSTER_METADATA} is prohibited."
            refused[name] = _error(name, ErrorCode.INVALID_REQUEST, message)
    return refused


def _may_create_all(context: QuorumRequestContext, names: Sequence[str]) -> bool:
    """Return True if the client may create any topic: by CREATE on the cluster, or as a node."""
    if context.permits_on_cluster(AclOperation.CREATE):
        return context.allowed_on_cluster(AclOperation.CREATE, about=names)
    return context.is_node and context.allowed_change_of_cluster(AclOperation.CLUSTER_ACTION, names)


def _new_topic(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        tuple((replicas.partition_index, tuple(replicas.broker_ids)) for replicas in topic.assignments),
        tuple((config.name, config.value) for config in topic.configs),
    )


def _result(topic: CreatedTopic, *, shows_configs: bool) -> CreatableTopicResult:
    if topic.error:
        return _error(topic.name, topic.error, topic.message)
    result = CreatableTopicResult(
        name=topic.name,
        topic_id=topic.topic_id,
        error_message=None,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        configs=[
            CreatableTopicConfigs(
                name=config.name,
                value=config.value,
                read_only=config.read_only,
                config_source=config.source,
                is_sensitive=config.is_sensitive,
            )
            for config in topic.configs
        ],
    )
    if not shows_configs:
        result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        result.num_partitions, result.replication_factor, result.configs = -1, -1, None
    return result


def _error(name: str, error: ErrorCode, message: str | None) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=error, error_message=message)


def refuse(
    context: QuorumRequestContext, request: CreateTopicsRequest, error: ErrorCode, message: str | None
) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=[_error(topic.name, error, message) for topic in request.topics])


API: Final = Api(
    key=19,
    min_version=2,
    max_version=7,
    request=CreateTopicsRequest,
    response=CreateTopicsResponse,
    handle=handle,
    refuse=refuse,
    routing=Routing.CONTROLLER,
    splitting=split_by(("topics",), ("topics",)),
    elements=lambda request: len(request.topics),
    acl="CREATE on the cluster or the topic, unless the client is a node; DESCRIBE_CONFIGS on the topic to see its"
    " configuration",
)
