"""JoinGroup: v0-9

Behavior:
* The answer waits until all members of the group have joined the rebalance, or its time is up. A connection may carry
  other requests meanwhile; their answers wait behind this one.
* A broker holds a bounded number of such answers back; on top of that a client is told COORDINATOR_LOAD_IN_PROGRESS,
  which makes it come again. Groups, ids that were given out and the memory of all members are bounded, too:
  COORDINATOR_NOT_AVAILABLE.
* All that wait are told NOT_COORDINATOR when the group is led elsewhere.

Version notes:
* v1 rebalance time-out · v3 flexible order of answers · v4 MEMBER_ID_REQUIRED: a new member joins twice (KIP-394) · v5
  static members (KIP-345) · v6 flexible · v7 protocol type · v8 reason (KIP-800) · v9 SkipAssignment (KIP-814)
"""

from collections.abc import Awaitable
from typing import Final

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.coordinators.group_requests import caller_of, check_group, while_connected
from odradek.broker.requests.api import Api
from odradek.cluster.authorizer import AclOperation
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

NULLABLE_PROTOCOL_MIN_VERSION: Final = 7


def handle(
    context: BrokerRequestContext, request: JoinGroupRequest
) -> JoinGroupResponse | Awaitable[JoinGroupResponse]:
    check_group(context, AclOperation.READ, request.group_id)
    for protocol in request.protocols:
        protocol.metadata = bytes(protocol.metadata)  # it is kept, and the frame that it lies in is not
    joined = while_connected(context, context.broker.groups.join(request, caller_of(context)))
    return _told(context, joined) if isinstance(joined, JoinGroupResponse) else _later(context, joined)


def refuse(
    context: BrokerRequestContext, request: JoinGroupRequest, error: ErrorCode, message: str | None
) -> JoinGroupResponse:
    member_id = request.member_id if error is ErrorCode.INVALID_GROUP_ID else ""
    return _told(context, JoinGroupResponse(error_code=error, member_id=member_id))


async def _later(context: BrokerRequestContext, joined: Awaitable[JoinGroupResponse]) -> JoinGroupResponse:
    return _told(context, await joined)


def _told(context: BrokerRequestContext, response: JoinGroupResponse) -> JoinGroupResponse:
    """A name that is not there is null, or empty for older clients; who is refused is told none."""
    nothing = None if context.api_version >= NULLABLE_PROTOCOL_MIN_VERSION else ""
    response.protocol_name = response.protocol_name or nothing
    return response


API: Final = Api(
    key=11,
    min_version=0,
    max_version=9,
    request=JoinGroupRequest,
    response=JoinGroupResponse,
    handle=handle,
    refuse=refuse,
    acl="READ on the group",
)
