"""JoinGroup: join a classic group, or rejoin it in a rebalance.

Behavior:
* The response is sent at the end of the join phase: when all members have joined, or when the rebalance timeout
  expires. Later responses on the same connection wait for it.
* If the broker stops being the coordinator, all waiting members receive NOT_COORDINATOR.

Errors:
* GROUP_AUTHORIZATION_FAILED, then the error of the group coordinator: INVALID_SESSION_TIMEOUT, MEMBER_ID_REQUIRED,
  UNKNOWN_MEMBER_ID, INCONSISTENT_GROUP_PROTOCOL, GROUP_MAX_SIZE_REACHED and others.
* COORDINATOR_LOAD_IN_PROGRESS if too many JoinGroup and SyncGroup requests wait on this broker.
  COORDINATOR_NOT_AVAILABLE if the broker has too many groups, too many generated member ids that have not joined, or
  too much member metadata. Members retry after both errors.

Version notes:
* v1 has the rebalance timeout. v4 has MEMBER_ID_REQUIRED: a new member joins twice (KIP-394). v5 has static members
  (KIP-345). v6 is flexible. v7 has the protocol type (KIP-559). v8 has a reason (KIP-800). v9 has SkipAssignment
  (KIP-814).
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
        protocol.metadata = bytes(protocol.metadata)  # the group keeps the metadata longer than the request's buffer
    joined = while_connected(context, context.broker.groups.join(request, caller_of(context)))
    return _with_protocol_name(context, joined) if isinstance(joined, JoinGroupResponse) else _later(context, joined)


def refuse(
    context: BrokerRequestContext, request: JoinGroupRequest, error: ErrorCode, message: str | None
) -> JoinGroupResponse:
    member_id = request.member_id if error is ErrorCode.INVALID_GROUP_ID else ""
    return _with_protocol_name(context, JoinGroupResponse(error_code=error, member_id=member_id))


async def _later(context: BrokerRequestContext, joined: Awaitable[JoinGroupResponse]) -> JoinGroupResponse:
    return _with_protocol_name(context, await joined)


def _with_protocol_name(context: BrokerRequestContext, response: JoinGroupResponse) -> JoinGroupResponse:
    """Set a missing protocol name to null, or before v7, where it is not nullable, to the empty string."""
    missing = None if context.api_version >= NULLABLE_PROTOCOL_MIN_VERSION else ""
    response.protocol_name = response.protocol_name or missing
    return response


API: Final = Api(
    key=11,
    min_version=0,
    max_version=9,
    request=JoinGroupRequest,
    response=JoinGroupResponse,
    handle=handle,
    refuse=refuse,
    long_poll=True,
    acl="READ on the group",
)
