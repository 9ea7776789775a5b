"""ListOffsets: find offsets by timestamp, or the ends of logs (KIP-79).

Behavior:
* Latest is the high watermark for a read_uncommitted consumer, the last stable offset for a read_committed one, and the
  log end offset for replicas and debugging consumers (replica id -2).
* By timestamp: the first record with that timestamp or a later one. If its offset is not visible to the reader yet, the
  result is "not found" (-1, -1).
* A look-up decodes each large batch once, in slices, and a bounded number of records. Beyond these bounds, the result
  is the first offset of a batch with such a timestamp (docs/decisions/0072-bounded-record-work.md).
* Earliest and latest need no read from disk. Spark's executors request both in each poll.

Errors:
* In each partition: CLUSTER_AUTHORIZATION_FAILED for the replica id of a broker without CLUSTER_ACTION, from another
  node, or on a listener for clients alone.
* Per partition: TOPIC_AUTHORIZATION_FAILED; INVALID_REQUEST if the request names the partition more than once;
  UNSUPPORTED_VERSION for a special timestamp that the version does not have; UNKNOWN_TOPIC_OR_PARTITION;
  FENCED_LEADER_EPOCH; UNKNOWN_LEADER_EPOCH; NOT_LEADER_OR_FOLLOWER.
* OFFSET_NOT_AVAILABLE after an election, until the high watermark has reached the new leader epoch. A smaller offset
  could otherwise follow a larger one (KIP-207). Versions before v5 receive LEADER_NOT_AVAILABLE instead.

Version notes:
* v2 has the isolation level. v4 has leader epochs (KIP-320). v6 is flexible. v7 has the maximum timestamp (KIP-734).
* v8 has the earliest local offset (KIP-405), v9 the last tiered one (KIP-1005), v11 the earliest pending upload
  (KIP-1023). v10 has a timeout of remote look-ups (KIP-1075). There is no tiered storage: the local log is the whole
  log.
"""

from collections.abc import Awaitable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.partition.new_logs import Key, with_open_logs
from odradek.broker.partition.partition import Partition
from odradek.broker.requests.api import Api, Ordered, split_by
from odradek.broker.requests.error_map import wire_error
from odradek.broker.requests.replica_ids import check_replica, require_follower
from odradek.cluster.authorizer import AclOperation, ResourceType
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from odradek.protocol.special_values import (
    CONSUMER_REPLICA_ID,
    DEBUGGING_REPLICA_ID,
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    READ_COMMITTED,
)
from odradek.storage.log.timestamps import TimestampAndOffset

MIN_VERSIONS: Final = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
NOT_FOUND: Final = (-1, -1, -1)
LEADER_EPOCH_MIN_VERSION: Final = 4
SEARCHES_PER_TURN: Final = 4
"""Look-ups by timestamp that run before the event loop runs other tasks. Each takes up to 1 ms."""
Result = ListOffsetsResponse | Awaitable[ListOffsetsResponse] | Ordered[ListOffsetsResponse]


@dataclass(slots=True)
class _Search:
    """Look-up by timestamp of one partition, which can need the disk, and the result to fill in."""

    result: ListOffsetsPartitionResponse
    partition: Partition
    timestamp: int


def handle(context: BrokerRequestContext, request: ListOffsetsRequest) -> Result:
    def named() -> Iterator[Key]:
        return ((topic.name, each.partition_index) for topic in request.topics for each in topic.partitions)

    opened = partial(_handle, context, request)
    result: Result = with_open_logs(context.broker.partitions, context.session, named, opened)
    return result


def _handle(
    context: BrokerRequestContext, request: ListOffsetsRequest
) -> ListOffsetsResponse | Awaitable[ListOffsetsResponse]:
    if request.replica_id >= 0:
        require_follower(context, request.replica_id)
    response = ListOffsetsResponse()
    duplicates = _duplicates(request)
    searches: list[_Search] = []
    for topic in request.topics:
        allowed = request.replica_id >= 0 or context.allowed(AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name)
        results: list[ListOffsetsPartitionResponse] = []
        for requested in topic.partitions:
            result = ListOffsetsPartitionResponse(requested.partition_index)
            results.append(result)
            try:
                if not allowed:
                    raise Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                if (topic.name, requested.partition_index) in duplicates:
                    raise Refusal(ErrorCode.INVALID_REQUEST)
                partition = _partition(context, request, topic.name, requested)
                if requested.timestamp >= 0 or requested.timestamp == MAX_TIMESTAMP:
                    searches.append(_Search(result, partition, requested.timestamp))
                else:
                    _set_result(context, result, _look_up(partition, request, requested.timestamp))
            except Refusal as refusal:
                result.error_code = wire_error(context.api_key, context.api_version, refusal.error)
        response.topics.append(ListOffsetsTopicResponse(topic.name, results))
    return _search(context, request, response, searches) if searches else response


def refuse(
    context: BrokerRequestContext, request: ListOffsetsRequest, error: ErrorCode, message: str | None
) -> ListOffsetsResponse:
    topics = [
        ListOffsetsTopicResponse(
            topic.name,
            [ListOffsetsPartitionResponse(partition.partition_index, error) for partition in topic.partitions],
        )
        for topic in request.topics
    ]
    return ListOffsetsResponse(topics=topics)


def _duplicates(request: ListOffsetsRequest) -> dict[tuple[str, int], None]:
    """Return the partitions that the request names more than once."""
    seen: dict[tuple[str, int], None] = {}
    duplicates: dict[tuple[str, int], None] = {}
    for topic in request.topics:
        for requested in topic.partitions:
            key = topic.name, requested.partition_index
            if key in seen:
                duplicates[key] = None
            seen[key] = None
    return duplicates


def _partition(
    context: BrokerRequestContext, request: ListOffsetsRequest, topic: str, requested: ListOffsetsPartition
) -> Partition:
    if requested.timestamp < 0 and context.api_version < MIN_VERSIONS.get(requested.timestamp, context.api_version + 1):
        raise Refusal(ErrorCode.UNSUPPORTED_VERSION)
    check_replica(context, request.replica_id)
    partition = context.broker.partitions.find(topic, requested.partition_index)
    if request.replica_id == DEBUGGING_REPLICA_ID:
        partition.check_readable(requested.current_leader_epoch)
    else:
        partition.check_leader(requested.current_leader_epoch)
    return partition


def _look_up(partition: Partition, request: ListOffsetsRequest, timestamp: int) -> TimestampAndOffset:
    """Return (timestamp, offset, leader epoch) of a special timestamp that needs no read from disk."""
    log = partition.log
    if timestamp == LATEST:
        if request.replica_id == CONSUMER_REPLICA_ID:
            partition.check_high_watermark_known()
        return -1, _visible_end(partition, request), partition.leader_epoch
    if timestamp in {EARLIEST, EARLIEST_LOCAL}:
        return -1, log.log_start_offset, log.epochs.epoch_for(log.log_start_offset)
    return NOT_FOUND  # LATEST_TIERED and EARLIEST_PENDING_UPLOAD: there is no tiered storage


async def _search(
    context: BrokerRequestContext, request: ListOffsetsRequest, response: ListOffsetsResponse, searches: list[_Search]
) -> ListOffsetsResponse:
    look_ups = context.broker.record_jobs.look_ups(context.session)
    for number, search in enumerate(searches, 1):
        if number % SEARCHES_PER_TURN == 0:
            await look_ups.next_turn()
        partition, log = search.partition, search.partition.log
        newest = search.timestamp == MAX_TIMESTAMP
        reading = log.max_timestamp_offset(look_ups) if newest else log.offset_for_timestamp(search.timestamp, look_ups)
        try:
            position = await partition.complete_read(reading)
            partition.check_readable()  # the partition can have changed its role during the read
            _set_result(context, search.result, _visible(partition, request, position))
        except Refusal as refusal:
            search.result.error_code = wire_error(context.api_key, context.api_version, refusal.error)
    return response


def _visible(
    partition: Partition, request: ListOffsetsRequest, position: TimestampAndOffset | None
) -> TimestampAndOffset:
    """Return `position` if its offset is visible to the reader, and NOT_FOUND otherwise.

    Raise Refusal(OFFSET_NOT_AVAILABLE) if the high watermark is not known yet.
    """
    if position is not None and position[1] < _visible_end(partition, request):
        return position
    if request.replica_id == CONSUMER_REPLICA_ID:
        partition.check_high_watermark_known()
    return NOT_FOUND


def _set_result(
    context: BrokerRequestContext, result: ListOffsetsPartitionResponse, position: TimestampAndOffset
) -> None:
    result.timestamp, result.offset, epoch = position
    if context.api_version >= LEADER_EPOCH_MIN_VERSION:
        result.leader_epoch = epoch


def _visible_end(partition: Partition, request: ListOffsetsRequest) -> int:
    log = partition.log
    if request.replica_id != CONSUMER_REPLICA_ID:
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
    splitting=split_by(("topics", "partitions"), ("topics", "partitions")),
    acl="DESCRIBE on each topic; CLUSTER_ACTION for replicas",
)
