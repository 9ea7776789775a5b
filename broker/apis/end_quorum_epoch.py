"""EndQuorumEpoch: announce that the leader of the metadata log resigns (KIP-595).

Behavior:
* The leader sends it to the other voters, with the order in which they should start an election.

Errors:
* CLUSTER_AUTHORIZATION_FAILED without CLUSTER_ACTION, then the error of the Raft core (FENCED_LEADER_EPOCH and others).

Version notes:
* v1 is flexible, and has the preferred successors with their directory ids, and endpoints (KIP-853).
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
    message = raft_wire.received_end(request, context.node.node_id, context.node.cluster_id)
    return _response(submit_to_raft(context, context.quorum.network, message))


async def _response(reply: Awaitable[EndQuorumEpochReply]) -> EndQuorumEpochResponse:
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
