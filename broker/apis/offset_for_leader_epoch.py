"""OffsetForLeaderEpoch: find the end offset of a leader epoch (KIP-101, KIP-320).

Behavior:
* The result is the largest leader epoch that is not above the requested one, and its end offset. A consumer that has
  read that epoch beyond its end offset has read records that were truncated. (-1, -1) means that the log has no such
  epoch.

Errors:
* In each partition: CLUSTER_AUTHORIZATION_FAILED for the replica id of a broker without CLUSTER_ACTION, from another
  node, or on a listener for clients alone.
* Per partition: TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH,
  NOT_LEADER_OR_FOLLOWER.

Version notes:
* v2 has the current leader epoch (KIP-320). v3 has the replica id. v4 is flexible.
"""

from collections.abc import Iterator
from functools import partial
from typing import Final

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.partition.new_logs import Key, with_open_logs
from odradek.broker.requests.api import Api, Ordered, split_by
from odradek.broker.requests.error_map import wire_error
from odradek.broker.requests.replica_ids import check_replica, require_follower
from odradek.cluster.authorizer import AclOperation, ResourceType
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from odradek.protocol.special_values import DEBUGGING_REPLICA_ID

REPLICA_ID_MIN_VERSION: Final = 3
Result = OffsetForLeaderEpochResponse | Ordered[OffsetForLeaderEpochResponse]


def handle(context: BrokerRequestContext, request: OffsetForLeaderEpochRequest) -> Result:
    def named() -> Iterator[Key]:
        return ((topic.topic, each.partition) for topic in request.topics for each in topic.partitions)

    opened = partial(_handle, context, request)
    result: Result = with_open_logs(context.broker.partitions, context.session, named, opened)
    return result


def _handle(context: BrokerRequestContext, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    is_replica = context.api_version >= REPLICA_ID_MIN_VERSION and request.replica_id >= 0
    if is_replica:
        require_follower(context, request.replica_id)
    is_broker = context.permits_on_cluster(AclOperation.CLUSTER_ACTION)
    topics: list[OffsetForLeaderTopicResult] = []
    for topic in request.topics:
        allowed = is_broker or context.allowed(AclOperation.DESCRIBE, ResourceType.TOPIC, topic.topic)
        results: list[EpochEndOffset] = []
        for requested in topic.partitions:
            result = EpochEndOffset(partition=requested.partition)
            results.append(result)
            try:
                if not allowed:
                    raise Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                result.leader_epoch, result.end_offset = _look_up(context, request, topic.topic, requested)
            except Refusal as refusal:
                result.error_code = wire_error(context.api_key, context.api_version, refusal.error)
        topics.append(OffsetForLeaderTopicResult(topic.topic, results))
    return OffsetForLeaderEpochResponse(topics=topics)


def refuse(
    context: BrokerRequestContext, request: OffsetForLeaderEpochRequest, error: ErrorCode, message: str | None
) -> OffsetForLeaderEpochResponse:
    topics = [
        OffsetForLeaderTopicResult(
            topic.topic, [EpochEndOffset(error, partition.partition) for partition in topic.partitions]
        )
        for topic in request.topics
    ]
    return OffsetForLeaderEpochResponse(topics=topics)


def _look_up(
    context: BrokerRequestContext, request: OffsetForLeaderEpochRequest, topic: str, requested: OffsetForLeaderPartition
) -> tuple[int, int]:
    if context.api_version >= REPLICA_ID_MIN_VERSION:
        check_replica(context, request.replica_id)
    partition = context.broker.partitions.find(topic, requested.partition)
    if context.api_version >= REPLICA_ID_MIN_VERSION and request.replica_id == DEBUGGING_REPLICA_ID:
        partition.check_readable(requested.current_leader_epoch)
    else:
        partition.check_leader(requested.current_leader_epoch)
    return partition.log.end_offset_for_epoch(requested.leader_epoch)


API: Final = Api(
    key=OffsetForLeaderEpochRequest.API_KEY,
    min_version=2,
    max_version=4,
    request=OffsetForLeaderEpochRequest,
    response=OffsetForLeaderEpochResponse,
    handle=handle,
    refuse=refuse,
    splitting=split_by(("topics", "partitions"), ("topics", "partitions")),
    acl="DESCRIBE on each topic, or CLUSTER_ACTION",
)
