"""OffsetDelete: delete committed offsets of a group (KIP-496).

Behavior:
* Each partition has its own result.

Errors:
* For the whole request: GROUP_AUTHORIZATION_FAILED, GROUP_ID_NOT_FOUND, and other errors of the group coordinator.
* Per partition: TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION, GROUP_SUBSCRIBED_TO_TOPIC if a member
  subscribes to the topic, and UNSTABLE_OFFSET_COMMIT if an open transaction has a pending offset.
"""

from asyncio import Future
from collections.abc import Awaitable
from typing import Final

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.coordinators.group_requests import (
    allowed_topics,
    check_group,
    merge_topics,
    split_existing,
    topic_error,
)
from odradek.broker.requests.api import Api, split_by
from odradek.cluster.authorizer import AclOperation
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from odradek.protocol.schema import replace_fields


def handle(context: BrokerRequestContext, request: OffsetDeleteRequest) -> Awaitable[OffsetDeleteResponse]:
    check_group(context, AclOperation.DELETE, request.group_id)
    allowed = allowed_topics(context, AclOperation.READ, (topic.name for topic in request.topics), by_id=False)
    refused: list[OffsetDeleteResponseTopic] = []
    accepted: list[OffsetDeleteRequestTopic] = []
    for topic in request.topics:
        error = topic_error(context.node.metadata.image, allowed, topic.name)
        if error is not ErrorCode.NONE:
            refused.append(_refused(topic.name, topic.partitions, error))
            continue
        existing, missing = split_existing(context.node.metadata.image, topic.name, topic.partitions)
        if missing:
            refused.append(_refused(topic.name, missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        if existing:
            accepted.append(replace_fields(topic, partitions=existing))
    return _merged(context.broker.groups.delete_offsets(replace_fields(request, topics=accepted)), refused)


def refuse(
    context: BrokerRequestContext, request: OffsetDeleteRequest, error: ErrorCode, message: str | None
) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=error)


async def _merged(
    deleted: Future[OffsetDeleteResponse], refused: list[OffsetDeleteResponseTopic]
) -> OffsetDeleteResponse:
    response = await deleted
    if response.error_code:
        return response
    return replace_fields(response, topics=merge_topics(refused, response.topics, lambda topic: topic.name))


def _refused(name: str, partitions: list[OffsetDeleteRequestPartition], error: ErrorCode) -> OffsetDeleteResponseTopic:
    results = [OffsetDeleteResponsePartition(partition.partition_index, error) for partition in partitions]
    return OffsetDeleteResponseTopic(name, results)


API: Final = Api(
    key=47,
    min_version=0,
    max_version=0,
    request=OffsetDeleteRequest,
    response=OffsetDeleteResponse,
    handle=handle,
    refuse=refuse,
    splitting=split_by(("topics", "partitions"), ("topics", "partitions")),
    acl="DELETE on the group; READ on each topic",
)
