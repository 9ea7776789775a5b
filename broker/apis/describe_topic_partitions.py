"""DescribeTopicPartitions: v0

Behavior:
* Topics in order of their names, at most min(`max.request.partition.size.limit`, the client's limit) partitions an answer; a
  cursor says where the next answer goes on (KIP-966).
* The cursor's topic must be among the topics asked for. With no topics named, all of them are meant; those that the client
  may not see, or that vanish between two pages, are left out.
* Never creates a topic.
"""

from typing import Final

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.requests.api import Api
from odradek.broker.security.authorized_operations import topic_operations
from odradek.broker.topics.metadata_view import MetadataView
from odradek.cluster.authorizer import AclOperation, ResourceType
from odradek.cluster.metadata.image import TopicImage
from odradek.cluster.metadata.topic_names import is_internal, is_valid
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    ResponseCursor,
)


def handle(context: BrokerRequestContext, request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    image = context.node.metadata.image
    named = [topic.name for topic in request.topics]
    first_topic, first_partition = _start(request, named)
    candidates = sorted(dict.fromkeys(named or image.topics))
    wanted = [name for name in candidates if name >= first_topic]
    allowed, denied = context.split_allowed(AclOperation.DESCRIBE, ResourceType.TOPIC, wanted)
    response = DescribeTopicPartitionsResponse()
    if named:
        response.topics = [_without(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for name in denied]
    view = MetadataView(image, context.session.listener.name)
    limit = context.node.config.max_request_partition_size_limit
    room = max(1, min(limit, request.response_partition_limit))
    for name in allowed:
        if room == 0:
            response.next_cursor = ResponseCursor(topic_name=name, partition_index=0)
            break
        topic = image.topic(name)
        if topic is None:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_valid(name) else ErrorCode.INVALID_TOPIC_EXCEPTION
            response.topics.append(_without(name, error))
            continue
        start = first_partition if name == first_topic else 0
        described = _partitions(view, topic, start, room)
        room -= len(described)
        response.topics.append(_with(context, topic, described))
        following = start + len(described)
        if following < len(topic.partitions):
            response.next_cursor = ResponseCursor(topic_name=name, partition_index=following)
            break
    return response


def _start(request: DescribeTopicPartitionsRequest, named: list[str]) -> tuple[str, int]:
    """Where to begin: (topic name, partition)."""
    cursor = request.cursor
    if cursor is None:
        return "", 0
    if named and cursor.topic_name not in named:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"the cursor's topic {cursor.topic_name} is not among the topics")
    if cursor.partition_index < 0:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"the cursor's partition {cursor.partition_index} is not valid")
    return cursor.topic_name, cursor.partition_index


def _partitions(
    view: MetadataView, topic: TopicImage, start: int, room: int
) -> list[DescribeTopicPartitionsResponsePartition]:
    described = []
    for index in range(start, min(start + room, len(topic.partitions))):
        partition = topic.partitions[index]
        seen = view.partition(partition)
        described.append(
            DescribeTopicPartitionsResponsePartition(
                error_code=seen.error,
                partition_index=index,
                leader_id=seen.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.isr),
                eligible_leader_replicas=list(partition.elr),
                last_known_elr=list(partition.last_known_elr),
                offline_replicas=seen.offline,
            )
        )
    return described


def _with(
    context: BrokerRequestContext, topic: TopicImage, partitions: list[DescribeTopicPartitionsResponsePartition]
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal(topic.name),
        partitions=partitions,
        topic_authorized_operations=topic_operations(context, topic.name),
    )


def _without(name: str, error: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=error, name=name, is_internal=is_internal(name))


def refuse(
    context: BrokerRequestContext, request: DescribeTopicPartitionsRequest, error: ErrorCode, message: str | None
) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(topics=[_without(topic.name, error) for topic in request.topics])


API: Final = Api(
    key=75,
    min_version=0,
    max_version=0,
    request=DescribeTopicPartitionsRequest,
    response=DescribeTopicPartitionsResponse,
    handle=handle,
    refuse=refuse,
    acl="DESCRIBE on topics (others are hidden)",
)
