"""ConsumerGroupDescribe: v0-1 (KIP-848)

Behavior:
* Groups of the consumer protocol. Groups are answered each by itself.
* A group with a topic that the caller may not describe is not described at all: TOPIC_AUTHORIZATION_FAILED.
* UNSUPPORTED_VERSION where `group.version` is not finalized at 1.

Version notes:
* v1 the type of each member: classic or consumer
"""

from collections.abc import Awaitable
from typing import Final

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.coordinators.group_requests import allowed_topics, answers_of, ask_each
from odradek.broker.requests.api import Api
from odradek.broker.security.authorized_operations import group_operations
from odradek.cluster.authorizer import AclOperation, ResourceType
from odradek.cluster.metadata.image import GROUP_VERSION
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)

TOPICS_HIDDEN: Final = "The group has described topic(s) that the client is not authorized to describe."


def handle(
    context: BrokerRequestContext, request: ConsumerGroupDescribeRequest
) -> Awaitable[ConsumerGroupDescribeResponse]:
    if context.node.metadata.image.feature(GROUP_VERSION) < 1:
        raise Refusal(ErrorCode.UNSUPPORTED_VERSION)
    return _described(context, request)


def refuse(
    context: BrokerRequestContext, request: ConsumerGroupDescribeRequest, error: ErrorCode, message: str | None
) -> ConsumerGroupDescribeResponse:
    return ConsumerGroupDescribeResponse(groups=[_refused(group, error, message) for group in request.group_ids])


async def _described(
    context: BrokerRequestContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    allowed, denied = context.split_allowed(AclOperation.DESCRIBE, ResourceType.GROUP, request.group_ids)
    asked = ask_each(allowed, context.broker.groups.describe_consumer)
    groups = [_refused(group, ErrorCode.GROUP_AUTHORIZATION_FAILED, None) for group in denied]
    for group in await answers_of(context, asked, _refused):
        if request.include_authorized_operations and not group.error_code:
            group.authorized_operations = group_operations(context, group.group_id)
        topics = _topics(group)
        if len(allowed_topics(context, AclOperation.DESCRIBE, topics)) < len(topics):
            groups.append(_refused(group.group_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED, TOPICS_HIDDEN))
        else:
            groups.append(group)
    return ConsumerGroupDescribeResponse(groups=groups)


def _topics(group: DescribedGroup) -> list[str]:
    assignments = [each for member in group.members for each in (member.assignment, member.target_assignment)]
    return list(dict.fromkeys(topic.topic_name for each in assignments for topic in each.topic_partitions))


def _refused(group: str, error: ErrorCode, message: str | None) -> DescribedGroup:
    return DescribedGroup(error_code=error, error_message=message, group_id=group)


API: Final = Api(
    key=69,
    min_version=0,
    max_version=1,
    request=ConsumerGroupDescribeRequest,
    response=ConsumerGroupDescribeResponse,
    handle=handle,
    refuse=refuse,
    acl="DESCRIBE on each group and on the topics of its members",
)
