"""Hand requests of other nodes about the metadata quorum to this node's Raft core."""

from collections.abc import Awaitable
from typing import Any

from odradek.broker.quorum import wire as raft_wire
from odradek.broker.quorum.network import PeerRaftNetwork, Request
from odradek.broker.requests.context import RequestContext
from odradek.broker.requests.listener import CONTROLLER
from odradek.cluster.authorizer import AclOperation
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.fetch import FetchRequest, FetchResponse


def ask_core(context: RequestContext, network: PeerRaftNetwork, request: Request) -> Awaitable[Any]:
    """Return the core's response. Raise Refusal(CLUSTER_AUTHORIZATION_FAILED, BROKER_NOT_AVAILABLE)."""
    if not context.allowed_on_cluster(AclOperation.CLUSTER_ACTION):
        raise Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return network.ask(request)


def fetch_metadata(
    context: RequestContext, network: PeerRaftNetwork, request: FetchRequest
) -> Awaitable[FetchResponse]:
    """Serve a fetch of the metadata log by another node (KIP-595)."""
    if CONTROLLER not in context.session.listener.roles:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_ID)
    asked = raft_wire.asked_fetch(request, context.api_version, network.node_id, network.cluster_id)
    return _fetched(ask_core(context, network, asked))


async def _fetched(reply: Awaitable[Any]) -> FetchResponse:
    return raft_wire.fetch_response(await reply)
