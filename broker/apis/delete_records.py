"""DeleteRecords: advance the log start offset of partitions (KIP-107).

Behavior:
* Records below the given offset cannot be read any more; -1 stands for the high watermark. A fetch below the new log
  start offset has the error OFFSET_OUT_OF_RANGE. The background task of retention deletes segments below it later.
* The leader makes the new log start offset durable before it responds.
* The response waits until every replica on an active broker has the new log start offset (until the low watermark
  reaches it). After the time-out the result is REQUEST_TIMED_OUT: the leader has deleted the records, and the followers
  will.

Errors:
* Per partition: TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION for internal topics,
  NOT_LEADER_OR_FOLLOWER, POLICY_VIOLATION if `cleanup.policy` does not contain `delete`, OFFSET_OUT_OF_RANGE above the
  high watermark, KAFKA_STORAGE_ERROR, REQUEST_TIMED_OUT (also if no file descriptor or no memory is left).

Version notes:
* v2 is flexible.
"""

from collections.abc import Coroutine, Iterator
from functools import partial
from typing import Any, Final

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.partition.new_logs import Key, with_open_logs
from odradek.broker.partition.waiters import CommitWait
from odradek.broker.requests.api import Api, Ordered, split_by
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
from odradek.storage.disk.port import ResourcesExhausted

UNKNOWN_LOW_WATERMARK: Final = -1
Result = Coroutine[Any, Any, DeleteRecordsResponse] | Ordered[DeleteRecordsResponse]


def handle(context: BrokerRequestContext, request: DeleteRecordsRequest) -> Result:
    def named() -> Iterator[Key]:
        return ((topic.name, each.partition_index) for topic in request.topics for each in topic.partitions)

    opened = partial(_handle, context, request)
    result: Result = with_open_logs(context.broker.partitions, context.session, named, opened)
    return result


def _handle(context: BrokerRequestContext, request: DeleteRecordsRequest) -> Coroutine[Any, Any, DeleteRecordsResponse]:
    names = list(dict.fromkeys(topic.name for topic in request.topics))
    allowed, _ = context.split_allowed(AclOperation.DELETE, ResourceType.TOPIC, names)
    permitted = dict.fromkeys(allowed)
    response = DeleteRecordsResponse()
    wait = CommitWait(response)
    for topic in request.topics:
        topic_result = DeleteRecordsTopicResult(topic.name)
        response.topics.append(topic_result)
        for partition in topic.partitions:
            result = DeleteRecordsPartitionResult(partition.partition_index, UNKNOWN_LOW_WATERMARK)
            topic_result.partitions.append(result)
            try:
                _delete(context, topic.name, partition, result, wait, allowed=topic.name in permitted)
            except Refusal as refusal:
                result.error_code = refusal.error
    return _respond_when_durable(context, response, wait, request.timeout_ms)


def _delete(
    context: BrokerRequestContext,
    topic: str,
    requested: DeleteRecordsPartition,
    result: DeleteRecordsPartitionResult,
    wait: CommitWait[DeleteRecordsResponse],
    *,
    allowed: bool,
) -> None:
    """Advance the log start offset of one partition on its leader, and fill in `result`.

    If replicas have to follow, add the partition to `wait`. Raise Refusal if the request is not allowed or not valid.
    """
    if not allowed:
        raise Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if context.node.metadata.image.partition(topic, requested.partition_index) is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if is_internal(topic):
        raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION)
    partition = context.broker.partitions.find(topic, requested.partition_index)
    partition.check_leader()
    term = partition.leader_term
    assert term is not None
    start = term.delete_records(requested.offset)
    result.low_watermark = term.low_watermark
    if result.low_watermark < start:
        wait.expect(term.deletions, start, partial(_set_result, result, start))


def _set_result(result: DeleteRecordsPartitionResult, start: int, error: ErrorCode) -> None:
    result.error_code = error
    if not error:
        result.low_watermark = start
    elif error is not ErrorCode.REQUEST_TIMED_OUT:
        result.low_watermark = UNKNOWN_LOW_WATERMARK


async def _respond_when_durable(
    context: BrokerRequestContext,
    response: DeleteRecordsResponse,
    wait: CommitWait[DeleteRecordsResponse],
    timeout_ms: int,
) -> DeleteRecordsResponse:
    response_future = wait.start(timeout_ms)
    try:
        await context.broker.partitions.checkpoint_log_starts()
    except OSError as failure:
        error = ErrorCode.KAFKA_STORAGE_ERROR
        if isinstance(failure, ResourcesExhausted):
            error = ErrorCode.REQUEST_TIMED_OUT  # no descriptor or memory is left; the client retries
        response_future.cancel()
        for result in (
            partition for topic in response.topics for partition in topic.partitions if not partition.error_code
        ):
            result.error_code, result.low_watermark = error, UNKNOWN_LOW_WATERMARK
        return response
    return await response_future


def refuse(
    context: BrokerRequestContext, request: DeleteRecordsRequest, error: ErrorCode, message: str | None
) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                topic.name,
                [
                    DeleteRecordsPartitionResult(partition.partition_index, UNKNOWN_LOW_WATERMARK, error)
                    for partition in topic.partitions
                ],
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
    splitting=split_by(("topics", "partitions"), ("topics", "partitions")),
    acl="DELETE on the topic",
)
