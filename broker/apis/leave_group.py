"""LeaveGroup: remove members from a classic group.

Behavior:
* Each member of the request has its own result. The group rebalances once for all of them.

Errors:
* GROUP_AUTHORIZATION_FAILED, then the error of the group coordinator. Per member: UNKNOWN_MEMBER_ID,
  FENCED_INSTANCE_ID.

Version notes:
* v3 has several members, and static members by their group instance id (KIP-345). v4 is flexible. v5 has a reason
  (KIP-800).
"""

from collections.abc import Awaitable
from typing import Final

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.coordinators.group_requests import caller_of, check_group, result_or_future
from odradek.broker.requests.api import Api
from odradek.broker.requests.splitting import Splitting
from odradek.cluster.authorizer import AclOperation
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse

MANY_MEMBERS_MIN_VERSION: Final = 3
BY_MEMBER: Final = Splitting(("members",), ("members",))


def handle(
    context: BrokerRequestContext, request: LeaveGroupRequest
) -> LeaveGroupResponse | Awaitable[LeaveGroupResponse]:
    check_group(context, AclOperation.READ, request.group_id)
    return result_or_future(context.broker.groups.leave(request, caller_of(context)))


def refuse(
    context: BrokerRequestContext, request: LeaveGroupRequest, error: ErrorCode, message: str | None
) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=error)


def _splitting(version: int) -> Splitting | None:
    return BY_MEMBER if version >= MANY_MEMBERS_MIN_VERSION else None


API: Final = Api(
    key=13,
    min_version=0,
    max_version=5,
    request=LeaveGroupRequest,
    response=LeaveGroupResponse,
    handle=handle,
    refuse=refuse,
    splitting=_splitting,
    acl="READ on the group",
)
