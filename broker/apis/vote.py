"""Vote: request a vote for the leadership of the metadata log (KIP-595).

Behavior:
* A voter sends it to become the leader, or to learn whether it would win (pre-vote, KIP-996).
* The response to a granted vote is sent when the vote is durable.

Errors:
* CLUSTER_AUTHORIZATION_FAILED without CLUSTER_ACTION, then the error of the Raft core (FENCED_LEADER_EPOCH
  and others).

Version notes:
* v1 has the voter id and directory ids (KIP-853). v2 has the pre-vote (KIP-996).
"""

from collections.abc import Awaitable
from typing import Final

from odradek.broker.contexts import QuorumRequestContext
from odradek.broker.quorum import wire as raft_wire
from odradek.broker.quorum.requests import submit_to_raft
from odradek.broker.requests.api import Api, always
from odradek.broker.requests.listener import CONTROLLER
from odradek.cluster.raft.messages import VoteReply
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.vote import VoteRequest, VoteResponse


def handle(context: QuorumRequestContext, request: VoteRequest) -> Awaitable[VoteResponse]:
    message = raft_wire.received_vote(request, context.node.node_id, context.node.cluster_id)
    return _response(submit_to_raft(context, context.quorum.network, message))


async def _response(reply: Awaitable[VoteReply]) -> VoteResponse:
    return raft_wire.vote_response(await reply)


def refuse(context: QuorumRequestContext, request: VoteRequest, error: ErrorCode, message: str | None) -> VoteResponse:
    return VoteResponse(error)


API: Final = Api(
    key=VoteRequest.API_KEY,
    min_version=0,
    max_version=2,
    request=VoteRequest,
    response=VoteResponse,
    handle=handle,
    refuse=refuse,
    listeners=(CONTROLLER,),
    early=always,
    acl="CLUSTER_ACTION on the cluster",
)
