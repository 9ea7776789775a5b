"""SyncGroup: v0-5

Behavior:
* The answer waits for the leader of the group, whose SyncGroup says which member gets what.
* All that wait are told NOT_COORDINATOR when the group is led elsewhere.

Version notes:
* v3 static members (KIP-345) · v4 flexible · v5 protocol type and name, which must be given
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
        assignment.assignment = bytes(assignment.assignment)  # it is kept, and the frame that it lies in is not
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
    acl="READ on the group",
)
