"""FetchSnapshot: read bytes of a metadata snapshot (KIP-630).

Behavior:
* A node sends it if its log ends before the leader's log starts. The request names a snapshot and a position in it.

Errors:
* CLUSTER_AUTHORIZATION_FAILED without CLUSTER_ACTION; SNAPSHOT_NOT_FOUND if a newer snapshot has replaced it;
  POSITION_OUT_OF_RANGE beyond its end; NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH and UNKNOWN_LEADER_EPOCH.

Version notes:
* v1 has the directory id of the replica (KIP-853).
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
    message = raft_wire.received_snapshot(request, context.node.node_id, context.node.cluster_id)
    return _response(submit_to_raft(context, context.quorum.network, message))


async def _response(reply: Awaitable[FetchSnapshotReply]) -> FetchSnapshotResponse:
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
