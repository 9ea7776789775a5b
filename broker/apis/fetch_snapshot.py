"""FetchSnapshot: v0-1.

Behavior:
- Asked by a node whose log ends before the leader's begins: the bytes of a snapshot of the metadata, from a position
  on. SNAPSHOT_NOT_FOUND once it has been replaced by a newer one, POSITION_OUT_OF_RANGE behind its end.

Version notes:
- v1 directory ids (KIP-853).
"""

from collections.abc import Awaitable
from typing import Final

from odradek.broker.contexts import QuorumRequestContext
from odradek.broker.quorum import wire as raft_wire
from odradek.broker.quorum.requests import submit_to_raft
from odradek.broker.requests.api import Api, always
from odradek.broker.requests.listener import CONTROLLER
from odradek.cluster.raft.messages import FetchSnapshotReply
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse


def handle(context: QuorumRequestContext, request: FetchSnapshotRequest) -> Awaitable[FetchSnapshotResponse]:
    asked = raft_wire.received_snapshot(request, context.node.node_id, context.node.cluster_id)
    return _answer(submit_to_raft(context, context.quorum.network, asked))


async def _answer(reply: Awaitable[FetchSnapshotReply]) -> FetchSnapshotResponse:
    return raft_wire.snapshot_response(await reply)


def refuse(
    context: QuorumRequestContext, request: FetchSnapshotRequest, error: ErrorCode, message: str | None
) -> FetchSnapshotResponse:
    return FetchSnapshotResponse(error_code=error)


API: Final = Api(
    key=FetchSnapshotRequest.API_KEY,
    min_version=0,
    max_version=1,
    request=FetchSnapshotRequest,
    response=FetchSnapshotResponse,
    handle=handle,
    refuse=refuse,
    listeners=(CONTROLLER,),
    early=always,
    acl="CLUSTER_ACTION on the cluster",
)
