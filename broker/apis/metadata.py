"""Metadata: list the brokers, and the topics with their partitions and leaders.

Behavior:
* Active brokers are listed with their endpoint on the connection's listener. Fenced brokers are omitted.
* A missing topic is created if the request and `auto.create.topics.enable` allow it. The response waits for the new
  topic. Kafka instead responds with UNKNOWN_TOPIC_OR_PARTITION or LEADER_NOT_AVAILABLE, and the client retries.
* One request creates at most 100 topics, and counts against the client's quota `controller_mutation_rate`. The rest of
  the missing topics receives LEADER_NOT_AVAILABLE. Kafka creates all topics of the request.
* While the failure of a broker is suspected but not decided, the response waits for the decision, at most 1 s. A client
  sends this request when it loses a connection. With the old leader in the response, it would reconnect and retry a
  second later.
* The controller id is the lowest id of an active broker. Each broker forwards requests for the controller (KIP-590).

Errors:
* INVALID_REQUEST for a topic id, or for a null name, before v12.
* Per topic: TOPIC_AUTHORIZATION_FAILED (without the name, if the request names the topic by id),
  INVALID_TOPIC_EXCEPTION, UNKNOWN_TOPIC_OR_PARTITION or UNKNOWN_TOPIC_ID, LEADER_NOT_AVAILABLE beyond the limits of
  automatic creation, and the error of a failed creation.
* Per partition: LEADER_NOT_AVAILABLE if it has no active leader. From v6, LISTENER_NOT_FOUND if the leader has no
  endpoint on the connection's listener.

Version notes:
* v0: an empty list requests all topics. From v1, null requests all topics and an empty list requests none.
* v4 has `AllowAutoTopicCreation`; earlier versions always allow it. v5 has offline replicas (KIP-112). v7 has leader
  epochs (KIP-320). v8 has authorized operations (KIP-430). v9 is flexible.
* v10 has topic ids (KIP-516). v11 omits the operations on the cluster, which DescribeCluster has (KIP-700). v12 can
  request topics by id. v13 has an error for the whole request (KIP-1102).
"""

from collections.abc import Awaitable, Iterable
from functools import partial
from typing import Final
from uuid import UUID

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.requests.api import Api, Ordered, split_by
from odradek.broker.requests.slices import collect, completed
from odradek.broker.security.authorized_operations import cluster_operations, topic_operations
from odradek.broker.topics.metadata_view import MetadataView
from odradek.cluster.authorizer import AclOperation, ResourceType
from odradek.cluster.metadata.image import TopicImage
from odradek.cluster.metadata.topic_names import is_internal, is_valid
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from odradek.protocol.primitives import ZERO_UUID

NULL_IS_ALL_MIN_VERSION: Final = 1
AUTO_CREATION_FLAG_MIN_VERSION: Final = 4
LISTENER_NOT_FOUND_MIN_VERSION: Final = 6
TOPIC_IDS_MIN_VERSION: Final = 12
Result = MetadataResponse | Awaitable[MetadataResponse] | Ordered[MetadataResponse]


async def _with_new_topics(
    context: BrokerRequestContext,
    request: MetadataRequest,
    names: list[str],
    missing: list[str],
    denied: dict[str, ErrorCode],
) -> MetadataResponse:
    # All versions know LEADER_NOT_AVAILABLE, so the quota is strict in all versions.
    mutations = context.node.quotas.controller_mutations(context, strict=True)
    errors = await context.broker.auto_topic_creation.create(
        missing, address=context.session.client_host, mutations=mutations, before=context.created_topics
    )
    context.created_topics += sum(error is not ErrorCode.LEADER_NOT_AVAILABLE for error in errors.values())
    response = await completed(_respond(context, request, names, denied | errors))
    response.throttle_time_ms = mutations.throttle_ms
    return response


def handle(context: BrokerRequestContext, request: MetadataRequest) -> Result:
    _check(context, request)
    if context.broker.suspected_leaders.any():
        return _when_decided(context, request)
    return _now(context, request)


async def _when_decided(context: BrokerRequestContext, request: MetadataRequest) -> MetadataResponse:
    """Wait for the failure detector's decision on the suspected brokers, then respond."""
    await context.broker.suspected_leaders.decided()
    return await completed(_now(context, request))


def _now(context: BrokerRequestContext, request: MetadataRequest) -> Result:
    if _requests_all(context, request):
        existing = list(context.node.metadata.image.topics)
        return _respond(context, request, context.permitted(AclOperation.DESCRIBE, ResourceType.TOPIC, existing), {})
    topics = request.topics or []
    if any(topic.topic_id != ZERO_UUID for topic in topics):
        return _respond_by_id(context, request, [topic.topic_id for topic in topics])
    names = list(dict.fromkeys(topic.name or "" for topic in topics))
    missing, denied = _to_create(context, request, names)
    if missing:
        return _with_new_topics(context, request, names, missing, denied)
    return _respond(context, request, names, denied)


def _check(context: BrokerRequestContext, request: MetadataRequest) -> None:
    if context.api_version >= TOPIC_IDS_MIN_VERSION:
        return
    for topic in request.topics or []:
        if topic.name is None:
            raise Refusal(ErrorCode.INVALID_REQUEST, "Null topic names are not valid before version 12.")
        if topic.topic_id != ZERO_UUID:
            raise Refusal(ErrorCode.INVALID_REQUEST, "Topic ids are not valid before version 12.")


def _requests_all(context: BrokerRequestContext, request: MetadataRequest) -> bool:
    if context.api_version < NULL_IS_ALL_MIN_VERSION:
        return not request.topics
    return request.topics is None


def _to_create(
    context: BrokerRequestContext, request: MetadataRequest, names: list[str]
) -> tuple[list[str], dict[str, ErrorCode]]:
    """Return the topics to create, and the errors of missing topics that the client may describe, but not create."""
    client_allows = request.allow_auto_topic_creation or context.api_version < AUTO_CREATION_FLAG_MIN_VERSION
    if not (client_allows and context.node.config.auto_create_topics_enable):
        return [], {}
    missing = [name for name in names if is_valid(name) and context.node.metadata.image.topic(name) is None]
    described = context.permitted(AclOperation.DESCRIBE, ResourceType.TOPIC, missing)
    if context.permits_on_cluster(AclOperation.CREATE):
        return described, {}
    allowed, denied = context.split_allowed(AclOperation.CREATE, ResourceType.TOPIC, described)
    return allowed, dict.fromkeys(denied, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _respond(
    context: BrokerRequestContext, request: MetadataRequest, names: Iterable[str], creation: dict[str, ErrorCode]
) -> Result:
    requested = list(names)
    _, denied = context.split_allowed(AclOperation.DESCRIBE, ResourceType.TOPIC, requested)
    hidden = dict.fromkeys(denied)
    image = context.node.metadata.image
    view = MetadataView(image, context.session.listener.name)

    def result(name: str) -> MetadataResponseTopic:
        topic = image.topic(name)
        if name in hidden:
            return _topic_error(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if topic is not None:
            return _topic_result(context, request, view, topic)
        if not is_valid(name):
            return _topic_error(name, ErrorCode.INVALID_TOPIC_EXCEPTION)
        return _topic_error(name, creation.get(name, ErrorCode.NONE) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    return _collect(context, request, view, map(result, requested), map(image.topic, requested))


def _respond_by_id(context: BrokerRequestContext, request: MetadataRequest, ids: Iterable[UUID]) -> Result:
    image = context.node.metadata.image
    view = MetadataView(image, context.session.listener.name)
    requested = list(dict.fromkeys(topic_id for topic_id in ids if topic_id != ZERO_UUID))

    def result(topic_id: UUID) -> MetadataResponseTopic:
        topic = image.topic_by_id(topic_id)
        if topic is None:
            return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
        if not context.allowed(AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name):
            # As in Kafka, a client that may not describe the topic does not learn its name.
            denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return MetadataResponseTopic(error_code=denied, name=None, topic_id=topic_id)
        return _topic_result(context, request, view, topic)

    return _collect(context, request, view, map(result, requested), map(image.topic_by_id, requested))


def _collect(
    context: BrokerRequestContext,
    request: MetadataRequest,
    view: MetadataView,
    results: Iterable[MetadataResponseTopic],
    topics: Iterable[TopicImage | None],
) -> Result:
    partitions = sum(len(topic.partitions) for topic in topics if topic is not None)
    with_partitions = ((result, result.partitions) for result in results)
    return collect(context, MetadataResponse, with_partitions, partitions, partial(_response, context, request, view))


def _topic_error(name: str, error: ErrorCode) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=error, name=name, is_internal=is_internal(name))


def _topic_result(
    context: BrokerRequestContext, request: MetadataRequest, view: MetadataView, topic: TopicImage
) -> MetadataResponseTopic:
    knows_listeners = context.api_version >= LISTENER_NOT_FOUND_MIN_VERSION
    partitions = []
    for index, partition in topic.partitions.items():
        partition_view = view.partition(partition, knows_listeners=knows_listeners)
        partitions.append(
            MetadataResponsePartition(
                error_code=partition_view.error,
                partition_index=index,
                leader_id=partition_view.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.isr),
                offline_replicas=partition_view.offline,
            )
        )
    result = MetadataResponseTopic(
        name=topic.name, topic_id=topic.topic_id, is_internal=is_internal(topic.name), partitions=partitions
    )
    if request.include_topic_authorized_operations:
        result.topic_authorized_operations = topic_operations(context, topic.name)
    return result


def _response(
    context: BrokerRequestContext, request: MetadataRequest, view: MetadataView, topics: list[MetadataResponseTopic]
) -> MetadataResponse:
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=broker.broker_id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
            for broker, endpoint in view.brokers()
        ],
        cluster_id=context.node.cluster_id,
        controller_id=view.controller_id(),
        topics=topics,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = cluster_operations(context)
    return response


def refuse(
    context: BrokerRequestContext, request: MetadataRequest, error: ErrorCode, message: str | None
) -> MetadataResponse:
    return MetadataResponse(
        error_code=error,
        topics=[
            MetadataResponseTopic(error_code=error, name=topic.name or "", topic_id=topic.topic_id)
            for topic in request.topics or []
        ],
    )


API: Final = Api(
    key=3,
    min_version=0,
    max_version=13,
    request=MetadataRequest,
    response=MetadataResponse,
    handle=handle,
    refuse=refuse,
    splitting=split_by(("topics",), ("topics",)),
    acl="DESCRIBE on each topic; a request for all omits the rest; CREATE on the topic or the cluster to create it",
)
