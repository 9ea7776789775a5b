"""DescribeQuorum: describe the leader, voters and observers of the metadata log (KIP-595).

Behavior:
* Only the leader of the metadata log knows the progress of the replicas. Every other node forwards the request to it.
* A voter that has not fetched from this leader has the log end offset -1. The leader omits an observer that has not
  fetched for 5 minutes.
* A partition that the request names several times is described once.

Errors:
* CLUSTER_AUTHORIZATION_FAILED for the whole request. Per partition: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER.

Version notes:
* v1 has the times of the last fetch and of the last time at which a replica had caught up (KIP-836).
* v2 has directory ids, the voters' endpoints and error messages (KIP-853).
"""

from collections.abc import Awaitable, Iterator, Sequence
from functools import partial
from typing import Final

from odradek.broker.config.addresses import parse_voters
from odradek.broker.contexts import QuorumRequestContext
from odradek.broker.requests.api import Api, Routing
from odradek.broker.requests.listener import CLIENT, CONTROLLER
from odradek.broker.requests.slices import distinct, respond_in_parts
from odradek.broker.requests.splitting import Splitting
from odradek.cluster.authorizer import AclOperation
from odradek.cluster.raft.core import RaftCore
from odradek.cluster.raft.progress import Progress
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.internal_topics import CLUSTER_METADATA
from odradek.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
    ResponsePartitionData,
    ResponseTopicData,
)
from odradek.protocol.special_values import UNKNOWN_OFFSET

NODES_MIN_VERSION: Final = 2
OBSERVER_SILENT_MS_MAX: Final = 300_000
"""Maximum milliseconds since the last fetch of a listed observer: 5 minutes, as in Kafka (LeaderState)."""
LISTENER_NAME: Final = "CONTROLLER"
"""Listener name in the voters' endpoints.

The configuration of voters has addresses without names; Kafka's tools need one.
"""


PARTS: Final = Splitting(("topics", "partitions"), ("topics", "partitions"))


def handle(
    context: QuorumRequestContext, request: DescribeQuorumRequest
) -> DescribeQuorumResponse | Awaitable[DescribeQuorumResponse]:
    if not context.allowed_on_cluster(AclOperation.DESCRIBE):
        raise Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if PARTS.is_large(request):
        return _respond_in_parts(context, request)
    return _response(context, list(dict.fromkeys(_partitions(request))))


async def _respond_in_parts(context: QuorumRequestContext, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    partitions = await distinct(context, PARTS, request, _partitions)
    return await respond_in_parts(context, PARTS, DescribeQuorumResponse, partitions, partial(_response, context))


def _partitions(request: DescribeQuorumRequest) -> Iterator[tuple[str, int]]:
    return ((topic.topic_name, partition.partition_index) for topic in request.topics for partition in topic.partitions)


def _response(context: QuorumRequestContext, partitions: Sequence[tuple[str, int]]) -> DescribeQuorumResponse:
    topics: dict[str, list[ResponsePartitionData]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(_describe(context, topic, index))
    nodes = [
        Node(voter.node_id, [Listener(LISTENER_NAME, voter.host, voter.port)])
        for voter in parse_voters(context.node.config)
        if context.api_version >= NODES_MIN_VERSION
    ]
    described = [ResponseTopicData(topic, rows) for topic, rows in topics.items()]
    return DescribeQuorumResponse(error_message=None, topics=described, nodes=nodes)


def _describe(context: QuorumRequestContext, topic: str, index: int) -> ResponsePartitionData:
    core = context.quorum.raft.core
    if topic != CLUSTER_METADATA or index != 0:
        return _failed(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    leader = core.leader_state
    if leader is None:
        return _failed(index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    clock = context.node.clock
    now_ms = clock.monotonic_ms()
    wall_offset_ms = clock.wall_ms() - now_ms
    observers = [
        node
        for node, progress in leader.progress.items()
        if node not in core.voters and now_ms - progress.last_fetch_ms < OBSERVER_SILENT_MS_MAX
    ]
    return ResponsePartitionData(
        error_message=None,
        leader_id=core.node_id,
        leader_epoch=core.epoch,
        high_watermark=core.high_watermark,
        current_voters=[_state(core, voter, leader.progress[voter], now_ms, wall_offset_ms) for voter in core.voters],
        observers=[_state(core, node, leader.progress[node], now_ms, wall_offset_ms) for node in sorted(observers)],
    )


def _state(core: RaftCore, node_id: int, progress: Progress, now_ms: int, wall_offset_ms: int) -> ReplicaState:
    """Return the state of one replica. `wall_offset_ms` is the wall-clock time minus the monotonic time."""
    if node_id == core.node_id:
        now = now_ms + wall_offset_ms
        return ReplicaState(
            node_id, log_end_offset=core.log.end_offset, last_fetch_timestamp=now, last_caught_up_timestamp=now
        )
    if progress.end_offset == UNKNOWN_OFFSET:
        return ReplicaState(node_id, log_end_offset=UNKNOWN_OFFSET)
    caught_up_ms = progress.last_caught_up_ms
    return ReplicaState(
        node_id,
        log_end_offset=progress.end_offset,
        last_fetch_timestamp=progress.last_fetch_ms + wall_offset_ms,
        last_caught_up_timestamp=-1 if caught_up_ms is None else caught_up_ms + wall_offset_ms,
    )


def _failed(partition: int, error: ErrorCode) -> ResponsePartitionData:
    return ResponsePartitionData(
        partition, error, error.name if error else None, leader_id=-1, leader_epoch=-1, high_watermark=-1
    )


def refuse(
    context: QuorumRequestContext, request: DescribeQuorumRequest, error: ErrorCode, message: str | None
) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(error_code=error, error_message=message)


API: Final = Api(
    key=DescribeQuorumRequest.API_KEY,
    min_version=0,
    max_version=2,
    request=DescribeQuorumRequest,
    response=DescribeQuorumResponse,
    handle=handle,
    refuse=refuse,
    listeners=(CLIENT, CONTROLLER),
    routing=Routing.CONTROLLER,
    acl="DESCRIBE on the cluster",
)
