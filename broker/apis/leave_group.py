"""LeaveGroup: v0-5

Behavior:
* Each member is judged by itself; the group rebalances once for all of them.

Version notes:
* v3 many members, and static ones by their instance (KIP-345) · v4 flexible · v5 reason (KIP-800)
"""

from collections.abc import Awaitable
from typing import Final

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.coordinators.group_requests import caller_of, check_group, now_or_later
from odradek.broker.requests.api import Api
from odradek.cluster.authorizer import AclOperation
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse


def handle(
    context: BrokerRequestContext, request: LeaveGroupRequest
) -> LeaveGroupResponse | Awaitable[LeaveGroupResponse]:
    check_group(context, AclOperation.READ, request.group_id)
    return now_or_later(context.broker.groups.leave(request, caller_of(context)))


def refuse(
    context: BrokerRequestContext, request: LeaveGroupRequest, error: ErrorCode, message: str | None
) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=error)


API: Final = Api(
    key=13,
    min_version=0,
    max_version=5,
    request=LeaveGroupRequest,
    response=LeaveGroupResponse,
    handle=handle,
    refuse=refuse,
    acl="READ on the group",
)
