"""What other nodes ask about the agreement: the same way to the core for every API."""

from collections.abc import Awaitable
from typing import Any

from odradek.broker.quorum import wire as raft_wire
from odradek.broker.quorum.network import Request
from odradek.broker.requests.api import RequestContext
from odradek.broker.requests.listener import CONTROLLER
from odradek.cluster.authorizer import AclOperation
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.fetch import FetchRequest, FetchResponse


def ask_core(context: RequestContext, question: Request) -> Awaitable[Any]:
    """The core's answer. Raises Refusal(CLUSTER_AUTHORIZATION_FAILED, BROKER_NOT_AVAILABLE)."""
    if not context.allowed_on_cluster(AclOperation.CLUSTER_ACTION):
        raise Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return context.services.raft_network.ask(question)


def fetch_metadata(context: RequestContext, request: FetchRequest) -> Awaitable[FetchResponse]:
    """A fetch of the metadata log by another node is a message of agreement (KIP-595)."""
    services = context.services
    if CONTROLLER not in context.session.listener.roles:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_ID)
    asked = raft_wire.asked_fetch(request, context.api_version, services.node_id, services.cluster_id)
    return _fetched(ask_core(context, asked))


async def _fetched(reply: Awaitable[Any]) -> FetchResponse:
    return raft_wire.fetch_response(await reply)
