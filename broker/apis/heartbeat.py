"""Heartbeat: keep the session of a member of a classic group.

Behavior:
* While the coordinator loads the group, the response has no error, since the coordinator does not know the group's
  state yet (as in Kafka).

Errors:
* GROUP_AUTHORIZATION_FAILED, then the error of the group coordinator: NOT_COORDINATOR, UNKNOWN_MEMBER_ID,
  FENCED_INSTANCE_ID, ILLEGAL_GENERATION, or REBALANCE_IN_PROGRESS (the member then rejoins).

Version notes:
* v3 has static members (KIP-345). v4 is flexible.
"""

from collections.abc import Awaitable
from typing import Final

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.coordinators.group_requests import caller_of, check_group
from odradek.broker.requests.api import Api
from odradek.cluster.authorizer import AclOperation
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(context: BrokerRequestContext, request: HeartbeatRequest) -> Awaitable[HeartbeatResponse]:
    check_group(context, AclOperation.READ, request.group_id)
    return context.broker.groups.heartbeat(request, caller_of(context))


def refuse(
    context: BrokerRequestContext, request: HeartbeatRequest, error: ErrorCode, message: str | None
) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=error)


API: Final = Api(
    key=12,
    min_version=0,
    max_version=4,
    request=HeartbeatRequest,
    response=HeartbeatResponse,
    handle=handle,
    refuse=refuse,
    acl="READ on the group",
)
