"""Fetch: read records, for consumers, followers, and replicas of the metadata log.

Behavior:
* Partitions are read in the order of the request (of the fetch session), within the byte limits of the request
  (`odradek.broker.fetch.read`).
* A request with less than `min_bytes` is parked for at most `max_wait_ms`. It waits for the watermark that bounds its
  reads: the high watermark (read_uncommitted), the last stable offset (read_committed), or the log end (a debugging
  consumer, replica id -2).
* A parked Fetch ends early, even without records, when its connection receives another request. Responses leave in the
  order of requests, so it would delay the response to that request.
* Records that are not in memory are read from disk before the connection handles its next request. A connection thus
  has one such read at a time.
* If the byte budget is nearly exhausted, a response contains fewer bytes than requested
  (`ByteBudget.response_capacity`), but at least one batch.
* Fetch sessions (KIP-227, `odradek.broker.fetch.sessions`): one session has at most 10,000 partitions, all sessions of
  a broker together 200,000. Above that a full fetch opens no session, and a session that grows is closed with
  FETCH_SESSION_ID_NOT_FOUND. The client then sends a full fetch.
* Followers acknowledge records with their fetch offset: see `odradek.broker.replication.leader_fetch`.
* From v11, consumers may read from a follower, up to the high watermark that it knows. With the rack-aware replica
  selector, the leader responds with a follower in the consumer's rack instead of records (KIP-392).
* read_committed: the response has records up to the last stable offset, and the aborted transactions that overlap them.

Errors:
* For the whole request: CLUSTER_AUTHORIZATION_FAILED for a follower without CLUSTER_ACTION or on a listener that does
  not serve brokers; FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR.
* Per partition: TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION or UNKNOWN_TOPIC_ID, FENCED_LEADER_EPOCH,
  UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER, OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR.

Version notes:
* v5 has log start offsets. v7 has fetch sessions (KIP-227). v9 has leader epochs (KIP-320). v10 may return zstd batches
  (KIP-110). v11 has the rack and the preferred read replica (KIP-392).
* v12 is flexible, and detects divergence by the last fetched epoch (KIP-595). v13 has topic ids (KIP-516).
* v15 has the state of the replica (KIP-903). v16 has hints to the current leader (KIP-951). v17 has directory ids
  (KIP-853). v18 has the high watermark of the reader (KIP-1166).
* v4 and v5 do not know KAFKA_STORAGE_ERROR and receive NOT_LEADER_OR_FOLLOWER instead.
"""

from asyncio import get_running_loop
from collections.abc import Awaitable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from odradek.broker.contexts import BrokerRequestContext, QuorumRequestContext
from odradek.broker.fetch.leader_hint import leader_hint
from odradek.broker.fetch.preferred_replica import RACK_AWARE, READ_FROM_LEADER, preferred_replica
from odradek.broker.fetch.read import (
    ColdFetch,
    FetchLimits,
    FetchPass,
    Reading,
    empty_partition_data,
    error_partition_data,
    find_partition,
)
from odradek.broker.fetch.sessions import (
    FINAL_EPOCH,
    NO_SESSION,
    SESSIONS_MIN_VERSION,
    TOPIC_ID_MIN_VERSION,
    FetchKey,
    FetchPlan,
    FetchSlot,
)
from odradek.broker.partition.partition import Partition
from odradek.broker.partition.waiters import FetchWait, Watermark
from odradek.broker.quorum.requests import fetch_metadata
from odradek.broker.quorum.wire import is_metadata_fetch
from odradek.broker.requests.api import Api, Ordered
from odradek.broker.requests.context import RequestContext
from odradek.broker.requests.error_map import wire_error
from odradek.broker.requests.listener import BROKER, CLIENT, CONTROLLER
from odradek.cluster.authorizer import AclOperation, ResourceType
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from odradek.protocol.primitives import ZERO_UUID
from odradek.protocol.special_values import CONSUMER_REPLICA_ID, NO_LEADER_EPOCH, READ_COMMITTED

REPLICA_STATE_MIN_VERSION: Final = 15
READ_REPLICA_MIN_VERSION: Final = 11
LEADER_HINT_MIN_VERSION: Final = 16
WAITING_ERRORS: Final = (
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)
"""Partition errors that do not end the wait for other partitions. Kafka's KafkaApis sets them before any read."""
HINTED_ERRORS: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
"""Partition errors with a hint to the current leader (KIP-951)."""


@dataclass(slots=True)
class _Fetch:
    """Fetch request of a client, with its session's partitions and its limits."""

    context: BrokerRequestContext
    plan: FetchPlan
    limits: FetchLimits
    max_wait_ms: int
    rack: str
    """Rack of the consumer if it may be directed to a replica in its rack; otherwise empty."""


def handle(
    context: BrokerRequestContext, request: FetchRequest
) -> FetchResponse | Awaitable[FetchResponse] | Ordered[FetchResponse]:
    if is_metadata_fetch(request):
        return fetch_metadata(context, context.quorum.network, request)
    version = context.api_version
    replica_id = request.replica_state.replica_id if version >= REPLICA_STATE_MIN_VERSION else request.replica_id
    if replica_id >= 0:
        return _fetch_as_replica(context, request, replica_id)
    fetch = _Fetch(
        context,
        _plan(context, request),
        _limits(context, request, replica_id),
        request.max_wait_ms,
        _rack(context, request, replica_id),
    )
    read = _new_pass(fetch)
    cold = read.advance()
    if cold is None and _is_complete(fetch, read):
        return _respond(fetch, read)
    # Register before this call returns:
    # 1. The handler finds too few bytes and returns stage two.
    # 2. A producer appends, or the connection receives another request.
    # 3. Stage two takes its first step. Without a registration it would wait for the next event, or until its time-out.
    wait = FetchWait()
    context.session.on_next_request(wait.wake)
    if cold is not None:
        # Responses with stored records are large: read the next one after this one is handed to the connection.
        return Ordered(_from_disk(fetch, read, cold, wait))
    _park(fetch, read, wait)
    return _when_woken(fetch, wait)


def _fetch_as_replica(
    context: BrokerRequestContext, request: FetchRequest, replica_id: int
) -> FetchResponse | Awaitable[FetchResponse]:
    if BROKER not in context.session.roles or not context.allowed_on_cluster(AclOperation.CLUSTER_ACTION):
        raise Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if replica_id not in context.node.metadata.image.brokers:
        return _unknown_replica(context, request)
    broker_epoch = request.replica_state.replica_epoch if context.api_version >= REPLICA_STATE_MIN_VERSION else -1
    context.quorum.peers.note_contact(replica_id)
    return context.broker.replica_fetches.handle(context, request, replica_id, broker_epoch)


def _unknown_replica(context: BrokerRequestContext, request: FetchRequest) -> FetchResponse:
    """Return an error of each partition, without a session: no registered broker has this replica id.

    The errors are Kafka's for a broker that has no replica of the partition. The metadata of a follower that sends a
    leader epoch may be newer than the metadata of this broker.
    """

    def error(partition: FetchPartition) -> ErrorCode:
        knows_epoch = partition.current_leader_epoch != NO_LEADER_EPOCH
        found = ErrorCode.UNKNOWN_LEADER_EPOCH if knows_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER
        return wire_error(context.api_key, context.api_version, found)

    topics = [
        FetchableTopicResponse(
            topic.topic,
            topic.topic_id,
            [error_partition_data(each.partition, error(each)) for each in topic.partitions],
        )
        for topic in request.topics
    ]
    return FetchResponse(responses=topics)


def refuse(context: RequestContext, request: FetchRequest, error: ErrorCode, message: str | None) -> FetchResponse:
    """Return a response with the error: at the top level from v7 on, in each partition before v7."""
    if context.api_version >= SESSIONS_MIN_VERSION:
        return FetchResponse(error_code=error)
    topics = [
        FetchableTopicResponse(
            topic.topic,
            topic.topic_id,
            [error_partition_data(partition.partition, error) for partition in topic.partitions],
        )
        for topic in request.topics
    ]
    return FetchResponse(responses=topics)


# ---- partitions and limits of a request -----------------------------------------------------------------------------


def _plan(context: BrokerRequestContext, request: FetchRequest) -> FetchPlan:
    version = context.api_version
    by_id = version >= TOPIC_ID_MIN_VERSION
    requested = [
        FetchSlot(
            topic.topic_id if by_id else topic.topic,
            partition.partition,
            partition.fetch_offset,
            partition.partition_max_bytes,
            partition.current_leader_epoch,
            partition.last_fetched_epoch,
        )
        for topic in request.topics
        for partition in topic.partitions
    ]
    forgotten: list[FetchKey] = [
        (topic.topic_id if by_id else topic.topic, index)
        for topic in request.forgotten_topics_data
        for index in topic.partitions
    ]
    return context.broker.fetch_sessions.plan(
        requested,
        forgotten,
        session_id=request.session_id if version >= SESSIONS_MIN_VERSION else NO_SESSION,
        session_epoch=request.session_epoch if version >= SESSIONS_MIN_VERSION else FINAL_EPOCH,
        uses_ids=by_id,
        now_ms=context.node.clock.monotonic_ms(),
    )


def _limits(context: BrokerRequestContext, request: FetchRequest, replica_id: int) -> FetchLimits:
    max_bytes = min(
        request.max_bytes, context.node.config.fetch_max_bytes, context.node.quotas.fetch_bytes_max(context)
    )
    committed_only = replica_id == CONSUMER_REPLICA_ID and request.isolation_level == READ_COMMITTED
    if replica_id != CONSUMER_REPLICA_ID:
        watermark = Watermark.LOG_END
    else:
        watermark = Watermark.LAST_STABLE_OFFSET if committed_only else Watermark.HIGH_WATERMARK
    version = context.api_version
    return FetchLimits(
        watermark,
        committed_only,
        max_bytes,
        min(request.min_bytes, max_bytes),
        version >= TOPIC_ID_MIN_VERSION,
        replica_id == CONSUMER_REPLICA_ID and version < READ_REPLICA_MIN_VERSION,
    )


def _rack(context: BrokerRequestContext, request: FetchRequest, replica_id: int) -> str:
    if replica_id != CONSUMER_REPLICA_ID or context.api_version < READ_REPLICA_MIN_VERSION:
        return ""
    return request.rack_id if context.node.config.replica_selector_class == RACK_AWARE else ""


# ---- reading --------------------------------------------------------------------------------------------------------


def _new_pass(fetch: _Fetch) -> FetchPass:
    """Return a new pass over the partitions of the request. Partitions that cannot be read have their error already."""
    allowed: dict[str, bool] = {}
    readings = [_reading(fetch, slot, allowed) for slot in fetch.plan.slots]
    max_bytes = min(fetch.limits.max_bytes, fetch.context.broker.budget.response_capacity())
    read = FetchPass(fetch.limits, readings, max_bytes)
    read.immediate = any(
        (reading.error and reading.error not in WAITING_ERRORS)
        or reading.data.preferred_read_replica != READ_FROM_LEADER
        for reading in readings
    )
    return read


def _reading(fetch: _Fetch, slot: FetchSlot, allowed: dict[str, bool]) -> Reading:
    """Return the reading of one partition. `allowed` caches, for this request, which topics the client may read."""
    error = ErrorCode.NONE
    partition = None
    try:
        partition = find_partition(fetch.context.broker.partitions, slot)
        topic = partition.topic
    except Refusal as refusal:
        error = refusal.error
        topic = _topic_name(fetch, slot)
    if topic not in allowed:
        allowed[topic] = fetch.context.allowed(AclOperation.READ, ResourceType.TOPIC, topic)
    if not allowed[topic] and topic:
        error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if error:
        return Reading(slot, error_partition_data(slot.index, error), None, topic, error)
    if fetch.rack and partition is not None:
        redirected = _redirected(fetch, slot, partition)
        if redirected is not None:
            return Reading(slot, redirected, None, topic)
    return Reading(slot, empty_partition_data(slot.index), partition, topic)


def _redirected(fetch: _Fetch, slot: FetchSlot, partition: Partition) -> PartitionData | None:
    """Return a result without records that directs the consumer to a replica in its rack (KIP-392).

    Return None if the consumer should read from this broker.
    """
    if slot.current_leader_epoch not in {NO_LEADER_EPOCH, partition.leader_epoch}:
        return None
    context = fetch.context
    brokers = context.node.metadata.image.brokers
    replica_id = preferred_replica(partition, slot.fetch_offset, fetch.rack, brokers, context.session.listener.name)
    if replica_id == READ_FROM_LEADER:
        return None
    log = partition.log
    data = empty_partition_data(slot.index)
    data.high_watermark, data.last_stable_offset = log.high_watermark, log.last_stable_offset
    data.log_start_offset = log.log_start_offset
    data.preferred_read_replica = replica_id
    return data


def _topic_name(fetch: _Fetch, slot: FetchSlot) -> str:
    if isinstance(slot.topic, str):
        return slot.topic
    image = fetch.context.node.metadata.image.topic_by_id(slot.topic)
    return "" if image is None else image.name


def _is_complete(fetch: _Fetch, read: FetchPass) -> bool:
    """Return True if the response does not have to wait for more bytes."""
    return read.is_sufficient or fetch.max_wait_ms <= 0 or all(reading.partition is None for reading in read.readings)


async def _from_disk(
    fetch: _Fetch, read: FetchPass, cold: ColdFetch, wait: FetchWait
) -> FetchResponse | Coroutine[Any, Any, FetchResponse]:
    """Run stage one of a fetch of records that are not in memory.

    Return the response, or stage two if bytes are missing.
    """
    parked = False
    try:
        await _read_on(fetch, read, cold)
        if _is_complete(fetch, read):
            return _respond_from_coroutine(fetch, read)
        _park(fetch, read, wait)
        parked = True
        return _when_woken(fetch, wait)
    finally:
        if not parked:
            fetch.context.session.cancel_on_next_request(wait.wake)
            wait.wake()


async def _when_woken(fetch: _Fetch, wait: FetchWait) -> FetchResponse:
    """Run stage two: wait for the event that `wait` stands for, then read all partitions again."""
    try:
        await wait.woken
    finally:
        fetch.context.session.cancel_on_next_request(wait.wake)
        wait.wake()
    read = _new_pass(fetch)
    await _read_on(fetch, read, read.advance())
    return _respond_from_coroutine(fetch, read)


def _respond_from_coroutine(fetch: _Fetch, read: FetchPass) -> FetchResponse:
    """Return the response of a coroutine, and count its bytes until the connection does.

    1. One append completes many parked fetches in the same step of the event loop.
    2. Each of them reads as many bytes as the budget has free.
    3. Without this count, they would together exceed the budget.
    """
    budget = fetch.context.broker.budget
    budget.reserve(read.size)
    get_running_loop().call_soon(budget.release, read.size)  # runs right before the connection counts the response
    return _respond(fetch, read)


async def _read_on(fetch: _Fetch, read: FetchPass, cold: ColdFetch | None) -> None:
    budget = fetch.context.broker.budget
    while cold is not None:
        expected = max(0, min(read.max_bytes - read.size, read.next_max_bytes))
        budget.reserve(expected)
        try:
            read.supply(await cold.partition.complete_read(cold.read.resolve()))
        except Refusal as refusal:
            read.supply(refusal)
        finally:
            budget.release(expected)
        cold = read.advance()


def _park(fetch: _Fetch, read: FetchPass, wait: FetchWait) -> None:
    """Register for the bytes that are missing, and start the timer of `max_wait_ms`."""
    if wait.woken.done():
        return  # the connection received another request during the read from disk
    for reading in read.readings:
        if reading.partition is not None:
            wait.watch(
                reading.partition.watermarks.fetch_watchers,
                fetch.limits.watermark,
                reading.slot.max_bytes - reading.size,
            )
    wait.start(fetch.limits.min_bytes - read.size, fetch.max_wait_ms)


# ---- responses ------------------------------------------------------------------------------------------------------


def _respond(fetch: _Fetch, read: FetchPass) -> FetchResponse:
    context = fetch.context
    response = FetchResponse()
    _translate(context, read.readings, response)
    if fetch.limits.watermark is not Watermark.LOG_END:
        for reading in read.readings:
            if reading.partition is not None:
                reading.partition.traffic.bytes_out += reading.size
    results = [reading.data for reading in read.readings]
    error, session_id, changed = fetch.plan.finish(results, context.node.clock.monotonic_ms())
    response.error_code = error
    response.session_id = session_id
    response.responses = _grouped(changed, by_id=fetch.limits.by_id)
    return response


def _translate(context: BrokerRequestContext, readings: Sequence[Reading], response: FetchResponse) -> None:
    """Translate error codes for the version of the request, and add hints to the current leaders (KIP-951)."""
    for reading in readings:
        error = reading.error
        if not error:
            continue
        reading.data.error_code = wire_error(context.api_key, context.api_version, error)
        if error not in HINTED_ERRORS or context.api_version < LEADER_HINT_MIN_VERSION:
            continue
        image, listener = context.node.metadata.image, context.session.listener.name
        hint = leader_hint(image, listener, reading.topic, reading.slot.index)
        if hint is None:
            continue
        reading.data.current_leader = LeaderIdAndEpoch(hint.leader_id, hint.leader_epoch)
        endpoints = response.node_endpoints
        if hint.endpoint is not None and all(known.node_id != hint.leader_id for known in endpoints):
            endpoints.append(NodeEndpoint(hint.leader_id, hint.endpoint.host, hint.endpoint.port, hint.rack))


def _grouped(results: list[tuple[FetchSlot, PartitionData]], *, by_id: bool) -> list[FetchableTopicResponse]:
    """Group adjacent results of one topic. Keep the order, which is that of the next read."""
    topics: list[FetchableTopicResponse] = []
    last: str | UUID | None = None
    for slot, data in results:
        topic = slot.topic
        if topics and topic == last:
            topics[-1].partitions.append(data)
            continue
        last = topic
        if isinstance(topic, UUID):
            topics.append(FetchableTopicResponse("", topic, [data]))
        else:
            topics.append(FetchableTopicResponse(topic, ZERO_UUID, [data]))
    return topics


API: Final = Api(
    key=FetchRequest.API_KEY,
    min_version=4,
    max_version=18,
    request=FetchRequest,
    response=FetchResponse,
    handle=handle,
    refuse=refuse,
    long_poll=True,
    listeners=(CLIENT, BROKER, CONTROLLER),
    acl="READ on each topic; CLUSTER_ACTION for replicas",
)


def _handle_in_quorum(context: QuorumRequestContext, request: FetchRequest) -> Awaitable[FetchResponse]:
    return fetch_metadata(context, context.quorum.network, request)


METADATA_API: Final = Api(
    key=API.key,
    min_version=API.min_version,
    max_version=API.max_version,
    request=FetchRequest,
    response=FetchResponse,
    handle=_handle_in_quorum,
    refuse=refuse,
    long_poll=API.long_poll,
    listeners=API.listeners,
    early=is_metadata_fetch,
)
"""Row of Fetch while this broker is not registered. It serves only the metadata log."""
