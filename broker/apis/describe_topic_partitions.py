"""DescribeTopicPartitions: describe the partitions of topics, page by page (KIP-966).

Behavior:
* Topics are in the order of their names. A response has at most min(`max.request.partition.size.limit`, the client's
  limit) partitions, and a cursor with the position of the next page.
* A request without topics describes all topics that the client may describe. Topics that are deleted between two pages
  are omitted.
* The request never creates a topic.

Errors:
* INVALID_REQUEST for a cursor with a negative partition, or with a topic that the request does not name.
* Per requested topic: TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION. Per partition:
  LEADER_NOT_AVAILABLE, LISTENER_NOT_FOUND.
"""

from dataclasses import dataclass, field
from typing import Final

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.requests.api import Api, Ordered
from odradek.broker.requests.splitting import ELEMENTS_PER_PART
from odradek.broker.security.authorized_operations import topic_operations
from odradek.broker.topics.metadata_view import MetadataView
from odradek.cluster.authorizer import AclOperation, ResourceType
from odradek.cluster.metadata.image import MetadataImage, TopicImage
from odradek.cluster.metadata.topic_names import is_internal, is_valid
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    ResponseCursor,
)

TOPIC_BYTES: Final = 500
"""Maximum bytes of one topic in the response, without its partitions and its name."""


def handle(
    context: BrokerRequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse | Ordered[DescribeTopicPartitionsResponse]:
    image = context.node.metadata.image
    requested_names = [topic.name for topic in request.topics]
    first_topic, first_partition = _start(request, requested_names)
    candidates = sorted(dict.fromkeys(requested_names or image.topics))
    requested = [name for name in candidates if name >= first_topic]
    limit = context.node.config.max_request_partition_size_limit
    remaining = max(1, min(limit, request.response_partition_limit))
    page = _Page(context, image, first_topic, first_partition, remaining, names_denied=bool(requested_names))
    if len(requested) <= ELEMENTS_PER_PART:
        page.add(requested)
        return page.response
    return Ordered(_in_slices(page, requested))


async def _in_slices(page: "_Page", requested: list[str]) -> DescribeTopicPartitionsResponse:
    """Fill the page with turns of the event loop after each ELEMENTS_PER_PART topics."""
    page.context.encode_in_slices = True
    for start in range(0, len(requested), ELEMENTS_PER_PART):
        names = requested[start : start + ELEMENTS_PER_PART]
        page.context.reserve(TOPIC_BYTES * len(names))
        if not page.add(names):
            break
        await page.context.session.next_turn()
    return page.response


@dataclass(slots=True)
class _Page:
    """One page of the description: its response so far."""

    context: BrokerRequestContext
    image: MetadataImage
    first_topic: str
    first_partition: int
    remaining: int
    """Partitions that still fit into the page."""
    names_denied: bool
    """True if the response has the topics that the client may not describe."""
    response: DescribeTopicPartitionsResponse = field(default_factory=DescribeTopicPartitionsResponse)

    def add(self, names: list[str]) -> bool:
        """Add the next topics. Return False if the page is complete."""
        context, image, response = self.context, self.image, self.response
        if self.names_denied:
            allowed, denied = context.split_allowed(AclOperation.DESCRIBE, ResourceType.TOPIC, names)
            response.topics += [_topic_error(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for name in denied]
        else:
            allowed = context.permitted(AclOperation.DESCRIBE, ResourceType.TOPIC, names)
        view = MetadataView(image, context.session.listener.name)
        for name in allowed:
            if self.remaining == 0:
                response.next_cursor = ResponseCursor(topic_name=name, partition_index=0)
                return False
            topic = image.topic(name)
            if topic is None:
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_valid(name) else ErrorCode.INVALID_TOPIC_EXCEPTION
                response.topics.append(_topic_error(name, error))
                continue
            start = self.first_partition if name == self.first_topic else 0
            described = _partitions(view, topic, start, self.remaining)
            self.remaining -= len(described)
            response.topics.append(_topic_result(context, topic, described))
            next_index = start + len(described)
            if next_index < len(topic.partitions):
                response.next_cursor = ResponseCursor(topic_name=name, partition_index=next_index)
                return False
        return True


def _start(request: DescribeTopicPartitionsRequest, requested_names: list[str]) -> tuple[str, int]:
    """Return the (topic name, partition) of the first partition of the page. Raise Refusal for an invalid cursor."""
    cursor = request.cursor
    if cursor is None:
        return "", 0
    if requested_names and cursor.topic_name not in requested_names:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"Cursor topic {cursor.topic_name} is not among the requested topics.")
    if cursor.partition_index < 0:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"Cursor partition {cursor.partition_index} must be 0 or above.")
    return cursor.topic_name, cursor.partition_index


def _partitions(
    view: MetadataView, topic: TopicImage, start: int, remaining: int
) -> list[DescribeTopicPartitionsResponsePartition]:
    described = []
    for index in range(start, min(start + remaining, len(topic.partitions))):
        partition = topic.partitions[index]
        partition_view = view.partition(partition)
        described.append(
            DescribeTopicPartitionsResponsePartition(
                error_code=partition_view.error,
                partition_index=index,
                leader_id=partition_view.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.isr),
                eligible_leader_replicas=list(partition.elr),
                last_known_elr=list(partition.last_known_elr),
                offline_replicas=partition_view.offline,
            )
        )
    return described


def _topic_result(
    context: BrokerRequestContext, topic: TopicImage, partitions: list[DescribeTopicPartitionsResponsePartition]
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal(topic.name),
        partitions=partitions,
        topic_authorized_operations=topic_operations(context, topic.name),
    )


def _topic_error(name: str, error: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=error, name=name, is_internal=is_internal(name))


def refuse(
    context: BrokerRequestContext, request: DescribeTopicPartitionsRequest, error: ErrorCode, message: str | None
) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(topics=[_topic_error(topic.name, error) for topic in request.topics])


API: Final = Api(
    key=75,
    min_version=0,
    max_version=0,
    request=DescribeTopicPartitionsRequest,
    response=DescribeTopicPartitionsResponse,
    handle=handle,
    refuse=refuse,
    acl="DESCRIBE on each topic; a request for all omits the rest",
)
