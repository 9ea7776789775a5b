"""Metadata: list the brokers, and the topics with their partitions and leaders.

Behavior:
* Active brokers are listed with their endpoint on the connection's listener. Fenced brokers are omitted.
* A missing topic is created if the request and `auto.create.topics.enable` allow it. The response waits for the new
  topic. Kafka instead responds with UNKNOWN_TOPIC_OR_PARTITION or LEADER_NOT_AVAILABLE, and the client retries.
* One request creates at most 100 topics, and counts against the client's quota `controller_mutation_rate`. The rest of
  the missing topics receives LEADER_NOT_AVAILABLE. Kafka creates all topics of the request.
* While the failure of a broker is suspected but not decided, a response with partitions that it leads waits for their
  elections, or for the decision, at most 1 s. A client sends this request when it loses a connection. With the old
  leader in the response, it would reconnect and retry a second later.
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

from collections.abc import Awaitable, Iterable, Iterator, Sized
from functools import partial
from itertools import chain, islice
from typing import Final
from uuid import UUID

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.requests.api import Api, Ordered, split_by
from odradek.broker.requests.slices import collect, completed
from odradek.broker.requests.splitting import ELEMENTS_PER_PART
from odradek.broker.security.authorized_operations import cluster_operations, topic_operations
from odradek.broker.topics.metadata_view import MetadataView, PartitionView
from odradek.cluster.authorizer import AclOperation, ResourceType
from odradek.cluster.metadata.image import PartitionImage, TopicImage
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
NAMES_PER_CHECK: Final = 100
"""Topics of a request for all topics that are authorized in one piece. A decision takes up to 50 µs."""
CHECK_COST: Final = 5
"""Work of one authorization, in elements of ELEMENTS_PER_PART."""
Result = MetadataResponse | Awaitable[MetadataResponse] | Ordered[MetadataResponse]
SizedResult = tuple[MetadataResponseTopic | None, Sized]
"""Result of one topic, or None, with the elements that it adds to the work (`collect`)."""


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
    suspected = context.broker.suspected_leaders
    if suspected.any() and suspected.any(topics := _described(context, request)):
        return _when_decided(context, request, topics)
    return _now(context, request)


async def _when_decided(
    context: BrokerRequestContext, request: MetadataRequest, topics: list[str] | None
) -> MetadataResponse:
    """Wait until no suspected broker leads a partition of `topics`, then respond."""
    await context.broker.suspected_leaders.decided(topics)
    return await completed(_now(context, request))


def _described(context: BrokerRequestContext, request: MetadataRequest) -> list[str] | None:
    """Return the requested topics that exist and that the client may describe. None: all topics, or none requested.

    A request without topics is one for the brokers and the controller.
    """
    if _requests_all(context, request) or not request.topics:
        return None
    image = context.node.metadata.image
    known = (
        image.topic(topic.name or "") if topic.topic_id == ZERO_UUID else image.topic_by_id(topic.topic_id)
        for topic in request.topics
    )
    return context.permitted(AclOperation.DESCRIBE, ResourceType.TOPIC, [each.name for each in known if each])


def _now(context: BrokerRequestContext, request: MetadataRequest) -> Result:
    if _requests_all(context, request):
        return _respond_with_all(context, request)
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
        if described:
            context.allowed_on_cluster(AclOperation.CREATE, about=described)  # for the audit log
        return described, {}
    allowed, denied = context.split_allowed(AclOperation.CREATE, ResourceType.TOPIC, described)
    return allowed, dict.fromkeys(denied, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _respond_with_all(context: BrokerRequestContext, request: MetadataRequest) -> Result:
    """Describe all topics that the client may describe."""
    image = context.node.metadata.image
    view = MetadataView(image, context.session.listener.name)
    names = list(image.topics)

    def results() -> Iterator[SizedResult]:
        for start in range(0, len(names), NAMES_PER_CHECK):
            some = names[start : start + NAMES_PER_CHECK]
            if context.authorizer.enabled:
                yield None, range(CHECK_COST * len(some))
            for name in context.permitted(AclOperation.DESCRIBE, ResourceType.TOPIC, some):
                yield from _topic_results(context, request, view, image.topics[name])

    return _collect(context, request, view, results(), image.topics.values())


def _respond(
    context: BrokerRequestContext, request: MetadataRequest, names: Iterable[str], creation: dict[str, ErrorCode]
) -> Result:
    requested = list(names)
    _, denied = context.split_allowed(AclOperation.DESCRIBE, ResourceType.TOPIC, requested)
    hidden = dict.fromkeys(denied)
    image = context.node.metadata.image
    view = MetadataView(image, context.session.listener.name)

    def results(name: str) -> Iterable[SizedResult]:
        topic = image.topic(name)
        if name in hidden:
            return _topic_error(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if topic is not None:
            return _topic_results(context, request, view, topic)
        if not is_valid(name):
            return _topic_error(name, ErrorCode.INVALID_TOPIC_EXCEPTION)
        return _topic_error(name, creation.get(name, ErrorCode.NONE) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    found = chain.from_iterable(map(results, requested))
    return _collect(context, request, view, found, map(image.topic, requested))


def _respond_by_id(context: BrokerRequestContext, request: MetadataRequest, ids: Iterable[UUID]) -> Result:
    image = context.node.metadata.image
    view = MetadataView(image, context.session.listener.name)
    requested = list(dict.fromkeys(topic_id for topic_id in ids if topic_id != ZERO_UUID))

    def results(topic_id: UUID) -> Iterable[SizedResult]:
        topic = image.topic_by_id(topic_id)
        if topic is None:
            return _topic_error(None, ErrorCode.UNKNOWN_TOPIC_ID, topic_id)
        if not context.allowed(AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name):
            # As in Kafka, a client that may not describe the topic does not learn its name.
            return _topic_error(None, ErrorCode.TOPIC_AUTHORIZATION_FAILED, topic_id)
        return _topic_results(context, request, view, topic)

    found = chain.from_iterable(map(results, requested))
    return _collect(context, request, view, found, map(image.topic_by_id, requested))


def _collect(
    context: BrokerRequestContext,
    request: MetadataRequest,
    view: MetadataView,
    results: Iterable[SizedResult],
    topics: Iterable[TopicImage | None],
) -> Result:
    partitions = sum(len(topic.partitions) for topic in topics if topic is not None)
    return collect(context, MetadataResponse, results, partitions, partial(_response, context, request, view))


def _topic_error(name: str | None, error: ErrorCode, topic_id: UUID = ZERO_UUID) -> tuple[SizedResult]:
    is_internal_topic = name is not None and is_internal(name)
    return ((MetadataResponseTopic(error_code=error, name=name, topic_id=topic_id, is_internal=is_internal_topic), ()),)


def _topic_results(
    context: BrokerRequestContext, request: MetadataRequest, view: MetadataView, topic: TopicImage
) -> Iterator[SizedResult]:
    """Yield the result of a topic, after the first pieces of its partitions if there are many."""
    knows_listeners = context.api_version >= LISTENER_NOT_FOUND_MIN_VERSION
    images = iter(topic.partitions.values())
    partitions: list[MetadataResponsePartition] = []
    while True:
        some = islice(images, ELEMENTS_PER_PART)
        piece = [_partition_result(image, view.partition(image, knows_listeners=knows_listeners)) for image in some]
        partitions += piece
        if len(partitions) == len(topic.partitions):
            break
        yield None, piece
    result = MetadataResponseTopic(
        name=topic.name, topic_id=topic.topic_id, is_internal=is_internal(topic.name), partitions=partitions
    )
    if request.include_topic_authorized_operations:
        result.topic_authorized_operations = topic_operations(context, topic.name)
    yield result, piece


def _partition_result(image: PartitionImage, view: PartitionView) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        error_code=view.error,
        partition_index=image.index,
        leader_id=view.leader,
        leader_epoch=image.leader_epoch,
        replica_nodes=list(image.replicas),
        isr_nodes=list(image.isr),
        offline_replicas=view.offline,
    )


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
