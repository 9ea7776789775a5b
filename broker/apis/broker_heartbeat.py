"""BrokerHeartbeat: keep a broker's session with the active controller (KIP-631).

Behavior:
* The request reports the offset of the broker's metadata image. It can request that the controller fences the broker,
  or starts its controlled shutdown. The response contains three flags: the broker has caught up, is
  fenced, and may stop.

Errors:
* CLUSTER_AUTHORIZATION_FAILED without CLUSTER_ACTION, then the error of the controller (NOT_CONTROLLER,
  STALE_BROKER_EPOCH, BROKER_ID_NOT_REGISTERED).

Version notes:
* v1 has the failed log directories (KIP-858). They are ignored: a broker with a failed log directory takes its
  partitions offline without the controller.
"""

from collections.abc import Awaitable
from typing import Final

from odradek.broker.contexts import QuorumRequestContext
from odradek.broker.requests.api import Api, always
from odradek.broker.requests.listener import CONTROLLER
from odradek.cluster.controller.messages.brokers import BrokerHeartbeat, HeartbeatReply
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse


def handle(context: QuorumRequestContext, request: BrokerHeartbeatRequest) -> Awaitable[BrokerHeartbeatResponse]:
    context.require_node(request.broker_id)
    context.quorum.peers.note_contact(request.broker_id)
    heartbeat = BrokerHeartbeat(
        request.broker_id,
        request.broker_epoch,
        request.current_metadata_offset,
        request.want_fence,
        request.want_shut_down,
    )
    return _response(context.quorum.controller.heartbeat(heartbeat))


async def _response(reply: Awaitable[HeartbeatReply]) -> BrokerHeartbeatResponse:
    heartbeat = await reply
    return BrokerHeartbeatResponse(
        is_caught_up=heartbeat.is_caught_up, is_fenced=heartbeat.is_fenced, should_shut_down=heartbeat.should_shut_down
    )


def refuse(
    context: QuorumRequestContext, request: BrokerHeartbeatRequest, error: ErrorCode, message: str | None
) -> BrokerHeartbeatResponse:
    return BrokerHeartbeatResponse(error_code=error)


API: Final = Api(
    key=BrokerHeartbeatRequest.API_KEY,
    min_version=0,
    max_version=1,
    request=BrokerHeartbeatRequest,
    response=BrokerHeartbeatResponse,
    handle=handle,
    refuse=refuse,
    listeners=(CONTROLLER,),
    early=always,
    acl="CLUSTER_ACTION on the cluster",
)
