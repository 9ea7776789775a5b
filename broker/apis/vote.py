"""Vote: v0-2.

Behavior:
- Asked by a voter that wants to lead the metadata log, or wants to know whether it could (pre-vote). Answered when a
  vote that was given is durable.

Version notes:
- v1 voter id and directory ids (KIP-853); v2 pre-vote (KIP-996).
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
    asked = raft_wire.received_vote(request, context.node.node_id, context.node.cluster_id)
    return _answer(submit_to_raft(context, context.quorum.network, asked))


async def _answer(reply: Awaitable[VoteReply]) -> VoteResponse:
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
