"""SyncGroup: receive the assignment of a member of a classic group, or, from the group's leader, set all assignments.

Behavior:
* The response waits for the SyncGroup request of the group's leader, which contains the assignment of each member.
* If the broker stops being the coordinator, all waiting members receive NOT_COORDINATOR.

Errors:
* INCONSISTENT_GROUP_PROTOCOL without a protocol type or name from v5, GROUP_AUTHORIZATION_FAILED, then the error of the
  group coordinator: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS and others.

Version notes:
* v3 has static members (KIP-345). v4 is flexible. v5 requires the protocol type and name (KIP-559).
"""

from collections.abc import Awaitable
from typing import Final

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.coordinators.group_requests import caller_of, check_group, while_connected
from odradek.broker.requests.api import Api
from odradek.cluster.authorizer import AclOperation
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

PROTOCOL_MIN_VERSION: Final = 5


def handle(
    context: BrokerRequestContext, request: SyncGroupRequest
) -> SyncGroupResponse | Awaitable[SyncGroupResponse]:
    if context.api_version >= PROTOCOL_MIN_VERSION and None in {request.protocol_type, request.protocol_name}:
        raise Refusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    check_group(context, AclOperation.READ, request.group_id)
    for assignment in request.assignments:
        assignment.assignment = bytes(
            assignment.assignment
        )  # the group keeps the assignment longer than the request's buffer
    return while_connected(context, context.broker.groups.sync(request, caller_of(context)))


def refuse(
    context: BrokerRequestContext, request: SyncGroupRequest, error: ErrorCode, message: str | None
) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=error)


API: Final = Api(
    key=14,
    min_version=0,
    max_version=5,
    request=SyncGroupRequest,
    response=SyncGroupResponse,
    handle=handle,
    refuse=refuse,
    long_poll=True,
    acl="READ on the group",
)
