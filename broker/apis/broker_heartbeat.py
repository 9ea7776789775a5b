"""BrokerHeartbeat: v0-1.

Behavior:
- A broker keeps its session with the active controller, says how far it has followed the metadata, and asks to be fenced or
  to leave (KIP-631).

Version notes:
- v1 directories that have failed (KIP-858): a partition whose directory has failed is taken offline by its broker itself.
"""

from collections.abc import Awaitable
from typing import Final

from odradek.broker.contexts import QuorumRequestContext
from odradek.broker.requests.api import Api, always
from odradek.broker.requests.listener import CONTROLLER
from odradek.cluster.authorizer import AclOperation
from odradek.cluster.controller.messages.brokers import BrokerHeartbeat, HeartbeatReply
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse


def handle(context: QuorumRequestContext, request: BrokerHeartbeatRequest) -> Awaitable[BrokerHeartbeatResponse]:
    if not context.allowed_on_cluster(AclOperation.CLUSTER_ACTION):
        raise Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    context.quorum.peers.note_contact(request.broker_id)
    beat = BrokerHeartbeat(
        request.broker_id,
        request.broker_epoch,
        request.current_metadata_offset,
        request.want_fence,
        request.want_shut_down,
    )
    return _answer(context.quorum.controller.heartbeat(beat))


async def _answer(reply: Awaitable[HeartbeatReply]) -> BrokerHeartbeatResponse:
    told = await reply
    return BrokerHeartbeatResponse(
        is_caught_up=told.is_caught_up, is_fenced=told.is_fenced, should_shut_down=told.should_shut_down
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
