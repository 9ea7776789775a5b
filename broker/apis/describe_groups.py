"""DescribeGroups: v0-6

Behavior:
* Groups of the classic protocol. Groups are answered each by itself.

Version notes:
* v3 authorized operations (KIP-430) · v4 static members · v5 flexible · v6 GROUP_ID_NOT_FOUND for a group that does not exist,
  which up to v5 is told to be Dead; an error message
"""

from collections.abc import Awaitable
from functools import partial
from typing import Final

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.coordinators.group_requests import answers_of, ask_each
from odradek.broker.requests.api import Api
from odradek.broker.security.authorized_operations import group_operations
from odradek.cluster.authorizer import AclOperation, ResourceType
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse

OPERATIONS_FROM: Final = 3
MESSAGE_FROM: Final = 6


def handle(context: BrokerRequestContext, request: DescribeGroupsRequest) -> Awaitable[DescribeGroupsResponse]:
    return _described(context, request)


def refuse(
    context: BrokerRequestContext, request: DescribeGroupsRequest, error: ErrorCode, message: str | None
) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(groups=[_refused(context, group, error, message) for group in request.groups])


async def _described(context: BrokerRequestContext, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    allowed, denied = context.split_allowed(AclOperation.DESCRIBE, ResourceType.GROUP, request.groups)
    asked = ask_each(allowed, lambda group: context.broker.groups.describe(group, context.api_version))
    groups = [_refused(context, group, ErrorCode.GROUP_AUTHORIZATION_FAILED, None) for group in denied]
    for group in await answers_of(context, asked, partial(_refused, context)):
        if request.include_authorized_operations and context.api_version >= OPERATIONS_FROM and not group.error_code:
            group.authorized_operations = group_operations(context, group.group_id)
        groups.append(group)
    return DescribeGroupsResponse(groups=groups)


def _refused(context: BrokerRequestContext, group: str, error: ErrorCode, message: str | None) -> DescribedGroup:
    told = message if context.api_version >= MESSAGE_FROM else None
    return DescribedGroup(error_code=error, error_message=told, group_id=group)


API: Final = Api(
    key=15,
    min_version=0,
    max_version=6,
    request=DescribeGroupsRequest,
    response=DescribeGroupsResponse,
    handle=handle,
    refuse=refuse,
    acl="DESCRIBE on each group",
)
