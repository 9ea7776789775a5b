"""BeginQuorumEpoch: announce the new leader of the metadata log to the other voters (KIP-595).

Behavior:
* A voter that has won an election sends it to the voters that do not fetch from it yet.

Errors:
* CLUSTER_AUTHORIZATION_FAILED without CLUSTER_ACTION, then the error of the Raft core (FENCED_LEADER_EPOCH and others).

Version notes:
* v1 is flexible, and has the voter id, its directory id and the leader's endpoints (KIP-853).
"""

from collections.abc import Awaitable
from typing import Final

from odradek.broker.contexts import QuorumRequestContext
from odradek.broker.quorum import wire as raft_wire
from odradek.broker.quorum.requests import submit_to_raft
from odradek.broker.requests.api import Api, always
from odradek.broker.requests.listener import CONTROLLER
from odradek.cluster.raft.messages import BeginQuorumEpochReply
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse


def handle(context: QuorumRequestContext, request: BeginQuorumEpochRequest) -> Awaitable[BeginQuorumEpochResponse]:
    message = raft_wire.received_begin(request, context.node.node_id, context.node.cluster_id)
    return _response(submit_to_raft(context, context.quorum.network, message))


async def _response(reply: Awaitable[BeginQuorumEpochReply]) -> BeginQuorumEpochResponse:
    return raft_wire.begin_response(await reply)


def refuse(
    context: QuorumRequestContext, request: BeginQuorumEpochRequest, error: ErrorCode, message: str | None
) -> BeginQuorumEpochResponse:
    return BeginQuorumEpochResponse(error)


API: Final = Api(
    key=BeginQuorumEpochRequest.API_KEY,
    min_version=0,
    max_version=1,
    request=BeginQuorumEpochRequest,
    response=BeginQuorumEpochResponse,
    handle=handle,
    refuse=refuse,
    listeners=(CONTROLLER,),
    early=always,
    acl="CLUSTER_ACTION on the cluster",
)
