"""Metadata: v0-v13

Behavior:
* Names brokers by their endpoint on the listener that was asked; fenced brokers are not named.
* A topic that does not exist is created when both the client and `auto.create.topics.enable` allow it. Where Kafka
  answers UNKNOWN_TOPIC_OR_PARTITION and creates behind the client's back, the answer here waits for the topic, so that
  a client does not have to ask again.
* A partition whose leader cannot be reached: LEADER_NOT_AVAILABLE, from v6 on LISTENER_NOT_FOUND if the leader is alive
  but not on this listener.
* While a broker has just been lost and nobody knows yet whether it is dead, the answer waits for that, 1 s at most:
  clients ask the moment they lose a connection, and having been sent back to a dead leader they may wait a second to
  ask again.

Version notes:
* v0: an empty list asks for all topics; v1 on, null does and an empty list asks for none
* v4: allow_auto_topic_creation (before it: always allowed)
* v5: offline replicas (KIP-112) · v7: leader epochs (KIP-320) · v8: authorized operations (KIP-430)
* v10: topic ids (KIP-516) · v11: cluster operations moved to DescribeCluster (KIP-700) · v12: topics may be asked for
  by id
* v13: a top-level error (KIP-1102)
"""

from collections.abc import Awaitable, Iterable
from typing import Final
from uuid import UUID

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.requests.api import Api
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


async def _with_new_topics(
    context: BrokerRequestContext, request: MetadataRequest, names: list[str], missing: list[str]
) -> MetadataResponse:
    errors = await context.broker.auto_topic_creation.create(missing)
    return _answer(context, request, names, errors)


def handle(context: BrokerRequestContext, request: MetadataRequest) -> MetadataResponse | Awaitable[MetadataResponse]:
    _check(context, request)
    if context.broker.suspected_leaders.any():
        return _when_settled(context, request)
    return _now(context, request)


async def _when_settled(context: BrokerRequestContext, request: MetadataRequest) -> MetadataResponse:
    """A broker has just been lost: who leads instead is known in a moment."""
    await context.broker.suspected_leaders.decided()
    answer = _now(context, request)
    return answer if isinstance(answer, MetadataResponse) else await answer


def _now(context: BrokerRequestContext, request: MetadataRequest) -> MetadataResponse | Awaitable[MetadataResponse]:
    if _asks_for_all(context, request):
        allowed, _ = context.split_allowed(
            AclOperation.DESCRIBE, ResourceType.TOPIC, list(context.node.metadata.image.topics)
        )
        return _answer(context, request, allowed, {})
    topics = request.topics or []
    if any(topic.topic_id != ZERO_UUID for topic in topics):
        return _answer_by_id(context, request, [topic.topic_id for topic in topics])
    names = list(dict.fromkeys(topic.name or "" for topic in topics))
    missing = _to_create(context, request, names)
    if missing:
        return _with_new_topics(context, request, names, missing)
    return _answer(context, request, names, {})


def _check(context: BrokerRequestContext, request: MetadataRequest) -> None:
    if context.api_version >= TOPIC_IDS_MIN_VERSION:
        return
    for topic in request.topics or []:
        if topic.name is None:
            raise Refusal(ErrorCode.INVALID_REQUEST, "a topic without a name cannot be asked for in this version")
        if topic.topic_id != ZERO_UUID:
            raise Refusal(ErrorCode.INVALID_REQUEST, "a topic cannot be asked for by its id in this version")


def _asks_for_all(context: BrokerRequestContext, request: MetadataRequest) -> bool:
    if context.api_version < NULL_IS_ALL_MIN_VERSION:
        return not request.topics
    return request.topics is None


def _to_create(context: BrokerRequestContext, request: MetadataRequest, names: list[str]) -> list[str]:
    client_allows = request.allow_auto_topic_creation or context.api_version < AUTO_CREATION_FLAG_MIN_VERSION
    if not (client_allows and context.node.config.auto_create_topics_enable):
        return []
    missing = [name for name in names if is_valid(name) and context.node.metadata.image.topic(name) is None]
    described, _ = context.split_allowed(AclOperation.DESCRIBE, ResourceType.TOPIC, missing)
    if context.allowed_on_cluster(AclOperation.CREATE):
        return described
    return context.split_allowed(AclOperation.CREATE, ResourceType.TOPIC, described)[0]


def _answer(
    context: BrokerRequestContext, request: MetadataRequest, names: Iterable[str], creation: dict[str, ErrorCode]
) -> MetadataResponse:
    asked = list(names)
    _, denied = context.split_allowed(AclOperation.DESCRIBE, ResourceType.TOPIC, asked)
    hidden = dict.fromkeys(denied)
    image = context.node.metadata.image
    view = MetadataView(image, context.session.listener.name)
    topics: list[MetadataResponseTopic] = []
    for name in asked:
        topic = image.topic(name)
        if name in hidden:
            topics.append(_without(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        elif topic is not None:
            topics.append(_with(context, request, view, topic))
        elif not is_valid(name):
            topics.append(_without(name, ErrorCode.INVALID_TOPIC_EXCEPTION))
        else:
            error = creation.get(name, ErrorCode.NONE) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            topics.append(_without(name, error))
    return _response(context, request, view, topics)


def _answer_by_id(context: BrokerRequestContext, request: MetadataRequest, ids: Iterable[UUID]) -> MetadataResponse:
    image = context.node.metadata.image
    view = MetadataView(image, context.session.listener.name)
    topics: list[MetadataResponseTopic] = []
    for topic_id in dict.fromkeys(topic_id for topic_id in ids if topic_id != ZERO_UUID):
        topic = image.topic_by_id(topic_id)
        if topic is None:
            topics.append(MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id))
        elif not context.allowed(AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name):
            # The name that belongs to an id is not disclosed to those who may not see the topic.
            denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            topics.append(MetadataResponseTopic(error_code=denied, name=None, topic_id=topic_id))
        else:
            topics.append(_with(context, request, view, topic))
    return _response(context, request, view, topics)


def _without(name: str, error: ErrorCode) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=error, name=name, is_internal=is_internal(name))


def _with(
    context: BrokerRequestContext, request: MetadataRequest, view: MetadataView, topic: TopicImage
) -> MetadataResponseTopic:
    knows_listeners = context.api_version >= LISTENER_NOT_FOUND_MIN_VERSION
    partitions = []
    for index, partition in topic.partitions.items():
        seen = view.partition(partition, knows_listeners=knows_listeners)
        partitions.append(
            MetadataResponsePartition(
                error_code=seen.error,
                partition_index=index,
                leader_id=seen.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.isr),
                offline_replicas=seen.offline,
            )
        )
    made = MetadataResponseTopic(
        name=topic.name, topic_id=topic.topic_id, is_internal=is_internal(topic.name), partitions=partitions
    )
    if request.include_topic_authorized_operations:
        made.topic_authorized_operations = topic_operations(context, topic.name)
    return made


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
    acl="DESCRIBE on topics (others are hidden); CREATE on the topic or the cluster to create one",
)
