"""EndQuorumEpoch: v0-1.

Behavior:
- Sent by a leader of the metadata log that gives up, with the order in which the others should try to succeed it.

Version notes:
- v1 flexible; successors with their directory ids, and endpoints (KIP-853).
"""

from collections.abc import Awaitable
from typing import Final

from odradek.broker.contexts import QuorumRequestContext
from odradek.broker.quorum import wire as raft_wire
from odradek.broker.quorum.requests import submit_to_raft
from odradek.broker.requests.api import Api, always
from odradek.broker.requests.listener import CONTROLLER
from odradek.cluster.raft.messages import EndQuorumEpochReply
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse


def handle(context: QuorumRequestContext, request: EndQuorumEpochRequest) -> Awaitable[EndQuorumEpochResponse]:
    asked = raft_wire.received_end(request, context.node.node_id, context.node.cluster_id)
    return _answer(submit_to_raft(context, context.quorum.network, asked))


async def _answer(reply: Awaitable[EndQuorumEpochReply]) -> EndQuorumEpochResponse:
    return raft_wire.end_response(await reply)


def refuse(
    context: QuorumRequestContext, request: EndQuorumEpochRequest, error: ErrorCode, message: str | None
) -> EndQuorumEpochResponse:
    return EndQuorumEpochResponse(error)


API: Final = Api(
    key=EndQuorumEpochRequest.API_KEY,
    min_version=0,
    max_version=1,
    request=EndQuorumEpochRequest,
    response=EndQuorumEpochResponse,
    handle=handle,
    refuse=refuse,
    listeners=(CONTROLLER,),
    early=always,
    acl="CLUSTER_ACTION on the cluster",
)
