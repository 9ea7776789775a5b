"""DeleteRecords: v0-v2 (KIP-107)

Behavior:
* The log of a partition begins at the offset given, -1 for the high watermark, from then on: readers below it get
  OFFSET_OUT_OF_RANGE. The new start is on stable storage here before it is answered; segments that lie below it go with retention.
* Answered when every replica on a broker that is alive has followed (the low watermark), or REQUEST_TIMED_OUT at the time-out:
  then the records are gone here, and go elsewhere as the replicas follow.
* POLICY_VIOLATION for topics that are compacted alone, OFFSET_OUT_OF_RANGE beyond the high watermark,
  INVALID_TOPIC_EXCEPTION for the topics that hold the state of coordinators.

Version notes: the body is the same in all; v2 is flexible.
"""

from collections.abc import Coroutine
from functools import partial
from typing import Any, Final

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.partition.waiters import CommitWait
from odradek.broker.requests.api import Api
from odradek.cluster.authorizer import AclOperation, ResourceType
from odradek.cluster.metadata.topic_names import is_internal
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

UNKNOWN: Final = -1


def handle(context: BrokerRequestContext, request: DeleteRecordsRequest) -> Coroutine[Any, Any, DeleteRecordsResponse]:
    names = list(dict.fromkeys(topic.name for topic in request.topics))
    allowed, _ = context.split_allowed(AclOperation.DELETE, ResourceType.TOPIC, names)
    permitted = dict.fromkeys(allowed)
    response = DeleteRecordsResponse()
    wait = CommitWait(response)
    for topic in request.topics:
        answer = DeleteRecordsTopicResult(topic.name)
        response.topics.append(answer)
        for asked in topic.partitions:
            result = DeleteRecordsPartitionResult(asked.partition_index, UNKNOWN)
            answer.partitions.append(result)
            try:
                _delete(context, topic.name, asked, result, wait, allowed=topic.name in permitted)
            except Refusal as refusal:
                result.error_code = refusal.error
    return _durably(context, response, wait, request.timeout_ms)


def _delete(
    context: BrokerRequestContext,
    topic: str,
    asked: DeleteRecordsPartition,
    result: DeleteRecordsPartitionResult,
    wait: CommitWait[DeleteRecordsResponse],
    *,
    allowed: bool,
) -> None:
    """Delete, and let `wait` wait for what `result` will say. Raises Refusal."""
    if not allowed:
        raise Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if context.node.metadata.image.partition(topic, asked.partition_index) is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if is_internal(topic):
        raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION)
    partition = context.broker.partitions.find(topic, asked.partition_index)
    partition.check_leader()
    term = partition.leader_term
    assert term is not None
    start = term.delete_records(asked.offset)
    result.low_watermark = term.low_watermark
    if result.low_watermark < start:
        wait.expect(term.deletions, start, partial(_settled, result, start))


def _settled(result: DeleteRecordsPartitionResult, start: int, error: ErrorCode) -> None:
    result.error_code = error
    if not error:
        result.low_watermark = start
    elif error is not ErrorCode.REQUEST_TIMED_OUT:
        result.low_watermark = UNKNOWN


async def _durably(
    context: BrokerRequestContext,
    response: DeleteRecordsResponse,
    wait: CommitWait[DeleteRecordsResponse],
    timeout_ms: int,
) -> DeleteRecordsResponse:
    followed = wait.start(timeout_ms)
    try:
        await context.broker.partitions.checkpoint_log_starts()
    except OSError:
        followed.cancel()
        for result in (each for topic in response.topics for each in topic.partitions if not each.error_code):
            result.error_code, result.low_watermark = ErrorCode.KAFKA_STORAGE_ERROR, UNKNOWN
        return response
    return await followed


def refuse(
    context: BrokerRequestContext, request: DeleteRecordsRequest, error: ErrorCode, message: str | None
) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                topic.name,
                [DeleteRecordsPartitionResult(each.partition_index, UNKNOWN, error) for each in topic.partitions],
            )
            for topic in request.topics
        ]
    )


API: Final = Api(
    key=21,
    min_version=0,
    max_version=2,
    request=DeleteRecordsRequest,
    response=DeleteRecordsResponse,
    handle=handle,
    refuse=refuse,
    acl="DELETE on the topic",
)
