"""ConsumerGroupDescribe: describe groups of the consumer protocol (KIP-848).

Behavior:
* Each group has its own result: state, epochs, assignor, and each member with its subscription and assignments.

Errors:
* UNSUPPORTED_VERSION for all groups if the feature `group.version` is not finalized at level 1.
* Per group: GROUP_AUTHORIZATION_FAILED, GROUP_ID_NOT_FOUND (also for classic groups), the errors of the group
  coordinator, and TOPIC_AUTHORIZATION_FAILED if the group has a topic that the client may not describe.

Version notes:
* v1 has the type of each member, classic or consumer.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.coordinators.group_requests import allowed_topics, request_each, responses_of
from odradek.broker.requests.api import Api, Ordered, split_by
from odradek.broker.requests.slices import collect_charged
from odradek.broker.requests.splitting import DESCRIBED_PER_PART, ELEMENT_CHARGE_BYTES_MIN
from odradek.broker.security.authorized_operations import group_operations
from odradek.cluster.authorizer import AclOperation, ResourceType
from odradek.cluster.metadata.image import GROUP_VERSION
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)

GROUP_BYTES: Final = 2_000
"""Maximum bytes of a described group without its members, in addition to its id, which the request has."""
TOPIC_DENIED_MESSAGE: Final = "The group has described topic(s) that the client is not authorized to describe."


def handle(
    context: BrokerRequestContext, request: ConsumerGroupDescribeRequest
) -> Ordered[ConsumerGroupDescribeResponse]:
    if context.node.metadata.image.feature(GROUP_VERSION) < 1:
        raise Refusal(ErrorCode.UNSUPPORTED_VERSION)
    allowed, denied = context.split_allowed(AclOperation.DESCRIBE, ResourceType.GROUP, request.group_ids)
    operations, groups = request.include_authorized_operations, context.broker.groups
    hidden = dict.fromkeys(denied)
    return collect_charged(
        context,
        ConsumerGroupDescribeResponse,
        [*denied, *allowed],
        lambda group: GROUP_BYTES + (0 if group in hidden else groups.described_bytes_max(group)),
        partial(_describe, context, denied=hidden, operations=operations),
        lambda described: ConsumerGroupDescribeResponse(groups=described),
    )


def refuse(
    context: BrokerRequestContext, request: ConsumerGroupDescribeRequest, error: ErrorCode, message: str | None
) -> ConsumerGroupDescribeResponse:
    return ConsumerGroupDescribeResponse(groups=[_refused(group, error, message) for group in request.group_ids])


async def _describe(
    context: BrokerRequestContext, group_ids: Sequence[str], denied: Mapping[str, None], *, operations: bool
) -> list[DescribedGroup]:
    """Describe some groups of the request."""
    groups = [_refused(group, ErrorCode.GROUP_AUTHORIZATION_FAILED, None) for group in group_ids if group in denied]
    allowed = [group for group in group_ids if group not in denied]
    pending = request_each(allowed, context.broker.groups.describe_consumer)
    for group in await responses_of(context, pending, _refused):
        if operations and not group.error_code:
            group.authorized_operations = group_operations(context, group.group_id)
        topics = _topics(group)
        if len(allowed_topics(context, AclOperation.DESCRIBE, topics, by_id=False)) < len(topics):
            groups.append(_refused(group.group_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED, TOPIC_DENIED_MESSAGE))
        else:
            groups.append(group)
    return groups


def _topics(group: DescribedGroup) -> list[str]:
    assignments = [
        assignment for member in group.members for assignment in (member.assignment, member.target_assignment)
    ]
    return list(dict.fromkeys(topic.topic_name for assignment in assignments for topic in assignment.topic_partitions))


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
    splitting=split_by(("group_ids",), ("groups",), DESCRIBED_PER_PART, hashed=str),
    parts_charge_bytes_min=ELEMENT_CHARGE_BYTES_MIN * DESCRIBED_PER_PART,
    acl="DESCRIBE on each group and on the topics of its members",
)
