"""OffsetForLeaderEpoch: v2-4.

Behavior:
- Where the batches of the largest epoch that is not above the asked one end: a consumer that has read beyond that point
  in that epoch has read what no longer exists (KIP-320). (-1, -1) where the log knows nothing of such an epoch.

Version notes:
- v2 current leader epoch; v3 replica id; v4 flexible.
"""

from typing import Final

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.requests.api import Api
from odradek.broker.requests.error_map import wire_error
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
"""A tool that looks at whatever replica it asks."""


def handle(context: BrokerRequestContext, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    trusted = context.allowed_on_cluster(AclOperation.CLUSTER_ACTION)
    topics: list[OffsetForLeaderTopicResult] = []
    for topic in request.topics:
        allowed = trusted or context.allowed(AclOperation.DESCRIBE, ResourceType.TOPIC, topic.topic)
        answers: list[EpochEndOffset] = []
        for asked in topic.partitions:
            answer = EpochEndOffset(partition=asked.partition)
            answers.append(answer)
            try:
                if not allowed:
                    raise Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                answer.leader_epoch, answer.end_offset = _look_up(context, request, topic.topic, asked)
            except Refusal as refusal:
                answer.error_code = wire_error(context.api_key, context.api_version, refusal.error)
        topics.append(OffsetForLeaderTopicResult(topic.topic, answers))
    return OffsetForLeaderEpochResponse(topics=topics)


def refuse(
    context: BrokerRequestContext, request: OffsetForLeaderEpochRequest, error: ErrorCode, message: str | None
) -> OffsetForLeaderEpochResponse:
    topics = [
        OffsetForLeaderTopicResult(topic.topic, [EpochEndOffset(error, asked.partition) for asked in topic.partitions])
        for topic in request.topics
    ]
    return OffsetForLeaderEpochResponse(topics=topics)


def _look_up(
    context: BrokerRequestContext, request: OffsetForLeaderEpochRequest, topic: str, asked: OffsetForLeaderPartition
) -> tuple[int, int]:
    partition = context.broker.partitions.find(topic, asked.partition)
    if context.api_version >= REPLICA_ID_MIN_VERSION and request.replica_id == DEBUGGING_REPLICA_ID:
        partition.check_readable(asked.current_leader_epoch)
    else:
        partition.check_leader(asked.current_leader_epoch)
    return partition.log.end_offset_for_epoch(asked.leader_epoch)


API: Final = Api(
    key=OffsetForLeaderEpochRequest.API_KEY,
    min_version=2,
    max_version=4,
    request=OffsetForLeaderEpochRequest,
    response=OffsetForLeaderEpochResponse,
    handle=handle,
    refuse=refuse,
    acl="DESCRIBE on each topic, or CLUSTER_ACTION",
)
