"""ListOffsets: v1-11.

Behavior:
- Latest is the high watermark, with read_committed the last stable offset, for replicas and debuggers (-2) the log end.
  Earliest and latest come out of memory: Spark's executors ask for both with every poll.
- By timestamp: the first record at or after it; one that the reader may not see yet is "not found" (-1, -1).
- After an election nothing is said about the end until the high watermark has reached the new leader's epoch, since it
  could go back (KIP-207).

Version notes:
- v2 isolation level; v4 leader epochs (KIP-320); v5 OFFSET_NOT_AVAILABLE (before: LEADER_NOT_AVAILABLE); v6 flexible;
  v7 max timestamp (KIP-734); v8 earliest local, v9 last tiered (KIP-405, KIP-1005); v10 time-out of remote look-ups
  (KIP-1075); v11 earliest pending upload (KIP-1023).
"""

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Final

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.partition.partition import Partition
from odradek.broker.requests.api import Api
from odradek.broker.requests.error_map import wire_error
from odradek.cluster.authorizer import AclOperation, ResourceType
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from odradek.storage.log.timestamps import TimestampAndOffset

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
MIN_VERSIONS: Final = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
CONSUMER: Final = -1
DEBUGGER: Final = -2
READ_COMMITTED: Final = 1
NOT_FOUND: Final = (-1, -1, -1)
LEADER_EPOCH_MIN_VERSION: Final = 4


@dataclass(slots=True)
class _Search:
    """A look-up by timestamp, which may need the disk, and where its result goes."""

    answer: ListOffsetsPartitionResponse
    partition: Partition
    timestamp: int


def handle(
    context: BrokerRequestContext, request: ListOffsetsRequest
) -> ListOffsetsResponse | Awaitable[ListOffsetsResponse]:
    response = ListOffsetsResponse()
    doubled = _doubled(request)
    searches: list[_Search] = []
    for topic in request.topics:
        allowed = context.allowed(AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name)
        answers: list[ListOffsetsPartitionResponse] = []
        for asked in topic.partitions:
            answer = ListOffsetsPartitionResponse(asked.partition_index)
            answers.append(answer)
            try:
                if not allowed:
                    raise Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                if (topic.name, asked.partition_index) in doubled:
                    raise Refusal(ErrorCode.INVALID_REQUEST)
                partition = _partition(context, request, topic.name, asked)
                if asked.timestamp >= 0 or asked.timestamp == MAX_TIMESTAMP:
                    searches.append(_Search(answer, partition, asked.timestamp))
                else:
                    _tell(context, answer, _look_up(partition, request, asked.timestamp))
            except Refusal as refusal:
                answer.error_code = wire_error(context.api_key, context.api_version, refusal.error)
        response.topics.append(ListOffsetsTopicResponse(topic.name, answers))
    return _search(context, request, response, searches) if searches else response


def refuse(
    context: BrokerRequestContext, request: ListOffsetsRequest, error: ErrorCode, message: str | None
) -> ListOffsetsResponse:
    topics = [
        ListOffsetsTopicResponse(
            topic.name, [ListOffsetsPartitionResponse(asked.partition_index, error) for asked in topic.partitions]
        )
        for topic in request.topics
    ]
    return ListOffsetsResponse(topics=topics)


def _doubled(request: ListOffsetsRequest) -> dict[tuple[str, int], None]:
    """Partitions that the request names more than once: none of them is looked up."""
    seen: dict[tuple[str, int], None] = {}
    doubled: dict[tuple[str, int], None] = {}
    for topic in request.topics:
        for asked in topic.partitions:
            key = topic.name, asked.partition_index
            if key in seen:
                doubled[key] = None
            seen[key] = None
    return doubled


def _partition(
    context: BrokerRequestContext, request: ListOffsetsRequest, topic: str, asked: ListOffsetsPartition
) -> Partition:
    if asked.timestamp < 0 and context.api_version < MIN_VERSIONS.get(asked.timestamp, context.api_version + 1):
        raise Refusal(ErrorCode.UNSUPPORTED_VERSION)
    partition = context.broker.partitions.find(topic, asked.partition_index)
    if request.replica_id == DEBUGGER:
        partition.check_readable(asked.current_leader_epoch)
    else:
        partition.check_leader(asked.current_leader_epoch)
    return partition


def _look_up(partition: Partition, request: ListOffsetsRequest, timestamp: int) -> TimestampAndOffset:
    """The ends of the log, which are known without reading."""
    log = partition.log
    if timestamp == LATEST:
        if request.replica_id == CONSUMER:
            partition.check_high_watermark_known()
        return -1, _visible_end(partition, request), partition.leader_epoch
    if timestamp in {EARLIEST, EARLIEST_LOCAL}:
        return -1, log.log_start_offset, log.epoch_at_start()
    return NOT_FOUND  # LATEST_TIERED, EARLIEST_PENDING_UPLOAD: there is no tiered storage


async def _search(
    context: BrokerRequestContext, request: ListOffsetsRequest, response: ListOffsetsResponse, searches: list[_Search]
) -> ListOffsetsResponse:
    for search in searches:
        partition, log = search.partition, search.partition.log
        newest = search.timestamp == MAX_TIMESTAMP
        reading = log.max_timestamp_offset() if newest else log.offset_for_timestamp(search.timestamp)
        try:
            found = await partition.complete_read(reading)
            partition.check_readable()  # time has passed
            _tell(context, search.answer, _visible(partition, request, found))
        except Refusal as refusal:
            search.answer.error_code = wire_error(context.api_key, context.api_version, refusal.error)
    return response


def _visible(partition: Partition, request: ListOffsetsRequest, found: TimestampAndOffset | None) -> TimestampAndOffset:
    """`found`, if this reader may see it by now."""
    if found is not None and found[1] < _visible_end(partition, request):
        return found
    if request.replica_id == CONSUMER:
        partition.check_high_watermark_known()
    return NOT_FOUND


def _tell(context: BrokerRequestContext, answer: ListOffsetsPartitionResponse, found: TimestampAndOffset) -> None:
    answer.timestamp, answer.offset, epoch = found
    if context.api_version >= LEADER_EPOCH_MIN_VERSION:
        answer.leader_epoch = epoch


def _visible_end(partition: Partition, request: ListOffsetsRequest) -> int:
    log = partition.log
    if request.replica_id != CONSUMER:
        return log.log_end_offset
    return log.last_stable_offset if request.isolation_level == READ_COMMITTED else log.high_watermark


API: Final = Api(
    key=ListOffsetsRequest.API_KEY,
    min_version=1,
    max_version=11,
    request=ListOffsetsRequest,
    response=ListOffsetsResponse,
    handle=handle,
    refuse=refuse,
    acl="DESCRIBE on each topic",
)
