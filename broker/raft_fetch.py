"""Fetches of the metadata log by other nodes: each one is a message of agreement (KIP-595)."""

from collections.abc import Awaitable

from broker import raft_wire
from broker.api import CONTROLLER, RequestContext
from broker.ports import AclOperation
from cluster.raft.messages import FetchReply
from protocol.errors import ErrorCode, Refusal
from protocol.messages.fetch import FetchRequest, FetchResponse


def fetch_metadata(context: RequestContext, request: FetchRequest) -> Awaitable[FetchResponse]:
    services = context.services
    if CONTROLLER not in context.session.listener.roles:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_ID)
    if not context.allowed_on_cluster(AclOperation.CLUSTER_ACTION):
        raise Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    asked = raft_wire.asked_fetch(request, services.node_id, services.cluster_id)
    return _answer(services.raft_network.ask(asked))


async def _answer(reply: Awaitable[FetchReply]) -> FetchResponse:
    return raft_wire.fetch_response(await reply)
