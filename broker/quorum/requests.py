"""Pass Raft requests of other nodes to this node's Raft core."""

from collections.abc import Awaitable
from typing import Any

from odradek.broker.quorum import wire as raft_wire
from odradek.broker.quorum.network import PeerRaftNetwork, Request
from odradek.broker.requests.context import RequestContext
from odradek.broker.requests.listener import CONTROLLER
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.fetch import FetchRequest, FetchResponse


def submit_to_raft(context: RequestContext, network: PeerRaftNetwork, request: Request) -> Awaitable[Any]:
    """Return the core's reply. Raise Refusal(CLUSTER_AUTHORIZATION_FAILED, BROKER_NOT_AVAILABLE)."""
    context.require_node(request.source)
    return network.receive(request)


def fetch_metadata(
    context: RequestContext, network: PeerRaftNetwork, request: FetchRequest
) -> Awaitable[FetchResponse]:
    """Serve a fetch of the metadata log by another node (KIP-595).

    Raise Refusal(UNKNOWN_TOPIC_ID) on a listener that is not for controllers, and the refusals of `submit_to_raft`.
    """
    if CONTROLLER not in context.session.roles:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_ID)
    raft_request = raft_wire.received_fetch(request, context.api_version, network.node_id, network.cluster_id)
    return _fetch_response(submit_to_raft(context, network, raft_request))


async def _fetch_response(reply: Awaitable[Any]) -> FetchResponse:
    return raft_wire.fetch_response(await reply)
