"""Fetch: read records, for consumers, followers, and replicas of the metadata log.

Behavior:
* Partitions are read in the order of the request (of the fetch session), within the byte limits of the request
  (`odradek.broker.fetch.read`).
* A request with less than `min_bytes` is parked for at most `max_wait_ms`. It waits for the watermark that bounds its
  reads: the high watermark (read_uncommitted), the last stable offset (read_committed), or the log end (a debugging
  consumer, replica id -2).
* A parked Fetch ends early, even without records, when its connection receives another request. Responses leave in the
  order of requests, so it would delay the response to that request.
* A fetch of many partitions is planned, read and encoded in slices of PARTITIONS_PER_TURN partitions, before the
  connection handles its next request.
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
* For an offset above the log end, a leader whose followers do not fetch responds NOT_LEADER_OR_FOLLOWER: another broker
  may lead, and OFFSET_OUT_OF_RANGE would make the consumer reset its offset.

Version notes:
* v5 has log start offsets. v7 has fetch sessions (KIP-227). v9 has leader epochs (KIP-320). v10 may return zstd batches
  (KIP-110). v11 has the rack and the preferred read replica (KIP-392).
* v12 is flexible, and detects divergence by the last fetched epoch (KIP-595). v13 has topic ids (KIP-516).
* v15 has the state of the replica (KIP-903). v16 has hints to the current leader (KIP-951). v17 has directory ids
  (KIP-853). v18 has the high watermark of the reader (KIP-1166).
* v4 and v5 do not know KAFKA_STORAGE_ERROR and receive NOT_LEADER_OR_FOLLOWER instead.
"""

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
from odradek.broker.fetch.requested import (
    PARTITIONS_PER_TURN,
    READING_BYTES,
    SLOT_BYTES,
    UNCOUNTED_BYTES,
    await_memory,
    named_in_slices,
    named_partitions,
    partition_count,
    slices,
)
from odradek.broker.fetch.sessions import (
    FINAL_EPOCH,
    NO_SESSION,
    SESSIONS_MIN_VERSION,
    TOPIC_ID_MIN_VERSION,
    FetchKey,
    FetchPlan,
    FetchSlot,
    SentPartitions,
)
from odradek.broker.fetch.unknown_replica import response_to_unknown_replica
from odradek.broker.partition.partition import Partition
from odradek.broker.partition.waiters import FetchWait, Watermark
from odradek.broker.quorum.requests import fetch_metadata
from odradek.broker.quorum.wire import is_metadata_fetch
from odradek.broker.requests.api import Api, Ordered
from odradek.broker.requests.context import RequestContext
from odradek.broker.requests.error_map import wire_error
from odradek.broker.requests.large_work import RequestDropped
from odradek.broker.requests.listener import BROKER, CLIENT, CONTROLLER
from odradek.broker.requests.replica_ids import require_follower
from odradek.cluster.authorizer import AclOperation, ResourceType
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from odradek.protocol.primitives import ZERO_UUID
from odradek.protocol.special_values import CONSUMER_REPLICA_ID, NO_LEADER_EPOCH, READ_COMMITTED

TURN_US_MAX: Final = 5_000
"""Microseconds after which a slice of a fetch ends early. The first fetch of a new partition can open its log."""
REPLICA_STATE_MIN_VERSION: Final = 15
READ_REPLICA_MIN_VERSION: Final = 11
LEADER_HINT_MIN_VERSION: Final = 16
PARTITIONS_UNTIMED: Final = 16
"""Maximum partitions that a fetch reads without a look-up of the time. Most fetches need none."""
WOKEN_PARTITIONS_MAX: Final = 16
"""Maximum partitions of a parked fetch that continues in the iteration of the event loop in which it is woken.

One append can wake hundreds of fetches. A fetch of 16 partitions takes about 0.03 ms, one of 256 about 0.5 ms.
"""
WAITING_ERRORS: Final = (
    ErrorCode.NONE,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)
"""Results, before the read of a partition, with which the fetch still waits for min_bytes. Kafka's KafkaApis sets these
errors before any read."""
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
    if context.request_bytes > UNCOUNTED_BYTES and partition_count(request) > PARTITIONS_PER_TURN:
        return Ordered(_plan_in_slices(context, request, replica_id))
    named = named_partitions(request, by_id=version >= TOPIC_ID_MIN_VERSION)
    return _start(_fetch(context, request, replica_id, *named))


def _start(fetch: _Fetch) -> FetchResponse | Awaitable[FetchResponse] | Ordered[FetchResponse]:
    """Run stage one: read all partitions. Return the response, or the remaining stages."""
    read = _new_pass(fetch)
    cold = _advance(fetch, read)
    complete = cold is None and read.is_complete
    if complete and _is_sufficient(fetch, read):
        return _respond(fetch, read)
    # Register before this call returns:
    # 1. The handler finds too few bytes and returns stage two.
    # 2. A producer appends, or the connection receives another request.
    # 3. Stage two takes its first step. Without a registration it would wait for the next event, or until its time-out.
    wait = FetchWait()
    fetch.context.session.on_next_request(wait.wake)
    if not complete:
        # Responses with stored records are large: read the next one after this one is handed to the connection.
        return Ordered(_read_later(fetch, read, cold, wait))
    _watch(fetch, read.readings, wait)
    wait.start(fetch.limits.min_bytes - read.size, fetch.max_wait_ms)
    return _when_woken(fetch, wait)


def _fetch_as_replica(
    context: BrokerRequestContext, request: FetchRequest, replica_id: int
) -> FetchResponse | Awaitable[FetchResponse] | Ordered[FetchResponse]:
    require_follower(context, replica_id)
    if replica_id not in context.node.metadata.image.brokers:
        return Ordered(response_to_unknown_replica(context, request))
    broker_epoch = request.replica_state.replica_epoch if context.api_version >= REPLICA_STATE_MIN_VERSION else -1
    context.quorum.peers.note_contact(replica_id)
    return context.broker.replica_fetches.handle(context, request, replica_id, broker_epoch)


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


async def _plan_in_slices(context: BrokerRequestContext, request: FetchRequest, replica_id: int) -> Any:
    """Run stage one of a request that names many partitions."""
    held = context.broker.fetch_sessions.held(request.session_id)
    by_id = context.api_version >= TOPIC_ID_MIN_VERSION
    count = partition_count(request)
    context.reserve(SLOT_BYTES * count)
    try:
        await await_memory(context, count)
        requested, forgotten = await named_in_slices(request, held, context.session.next_turn, by_id=by_id)
        await await_memory(context, count)
    except RequestDropped:
        return FetchResponse()  # the connection is closed
    return _start(_fetch(context, request, replica_id, requested, forgotten))


def _fetch(
    context: BrokerRequestContext,
    request: FetchRequest,
    replica_id: int,
    requested: list[FetchSlot],
    forgotten: list[FetchKey],
) -> _Fetch:
    version = context.api_version
    plan = context.broker.fetch_sessions.plan(
        requested,
        forgotten,
        session_id=request.session_id if version >= SESSIONS_MIN_VERSION else NO_SESSION,
        session_epoch=request.session_epoch if version >= SESSIONS_MIN_VERSION else FINAL_EPOCH,
        uses_ids=version >= TOPIC_ID_MIN_VERSION,
        now_ms=context.node.clock.monotonic_ms(),
    )
    limits = _limits(context, request, replica_id)
    return _Fetch(context, plan, limits, request.max_wait_ms, _rack(context, request, replica_id))


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
    """Return a new pass over the partitions of the request. Charge for its objects if they are many."""
    fetch.context.reserve(_pass_bytes(fetch))
    max_bytes = min(fetch.limits.max_bytes, fetch.context.broker.budget.response_capacity())
    return FetchPass(fetch.limits, len(fetch.plan.slots), max_bytes)


def _pass_bytes(fetch: _Fetch) -> int:
    """Return the bytes of the objects of one pass that are charged."""
    count = len(fetch.plan.slots)
    return READING_BYTES * count if count > PARTITIONS_PER_TURN else 0


def _advance(fetch: _Fetch, read: FetchPass) -> ColdFetch | None:
    """Read the next slice of the partitions. Return the read of a partition whose data is not in memory, or None.

    Partitions that cannot be read have their error already.
    """
    if not read.has_unread:
        slots = fetch.plan.slots
        if len(slots) <= PARTITIONS_UNTIMED:
            _add_readings(fetch, read, slots)
        else:
            clock, first = fetch.context.node.clock, len(read.readings)
            end_us = clock.monotonic_us() + TURN_US_MAX
            for start in range(first, min(first + PARTITIONS_PER_TURN, len(slots)), PARTITIONS_UNTIMED):
                _add_readings(fetch, read, slots[start : start + PARTITIONS_UNTIMED])
                if clock.monotonic_us() >= end_us:
                    break
    return read.advance()


def _add_readings(fetch: _Fetch, read: FetchPass, slots: Sequence[FetchSlot]) -> None:
    readings = [_reading(fetch, slot, read.allowed) for slot in slots]
    read.readings += readings
    if any(
        reading.error not in WAITING_ERRORS or reading.data.preferred_read_replica != READ_FROM_LEADER
        for reading in readings
    ):
        read.immediate = True


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
        allowed[topic] = not topic or fetch.context.allowed(AclOperation.READ, ResourceType.TOPIC, topic)
    if not allowed[topic]:
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


def _is_sufficient(fetch: _Fetch, read: FetchPass) -> bool:
    """Return True if the response does not have to wait for more bytes."""
    return read.is_sufficient or fetch.max_wait_ms <= 0 or all(reading.partition is None for reading in read.readings)


async def _read_later(
    fetch: _Fetch, read: FetchPass, cold: ColdFetch | None, wait: FetchWait
) -> FetchResponse | Coroutine[Any, Any, FetchResponse]:
    """Run the remainder of stage one: a fetch of many partitions, or of records that are not in memory.

    Return the response, or stage two if bytes are missing.
    """
    parked = False
    try:
        await _read_on(fetch, read, cold)
        if _is_sufficient(fetch, read):
            return await _respond_in_slices(fetch, read)
        _charge(fetch, -read.size)
        parked = await _park(fetch, read, wait)
        _charge(fetch, -_pass_bytes(fetch))
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
    session = fetch.context.session
    if len(fetch.plan.slots) > WOKEN_PARTITIONS_MAX:
        await session.next_turn()
    try:
        await await_memory(fetch.context, len(fetch.plan.slots))
    except RequestDropped:
        return FetchResponse()
    if session.closed:
        return FetchResponse()  # the end of the connection has woken the fetch
    read = _new_pass(fetch)
    await _read_on(fetch, read, _advance(fetch, read))
    return await _respond_in_slices(fetch, read)


def _charge(fetch: _Fetch, count: int) -> None:
    """Count `count` bytes of records in the byte budget until the connection counts the response.

    1. One append completes many parked fetches in the same step of the event loop.
    2. Each of them reads as many bytes as the budget has free.
    3. Without this count, they would together exceed the budget.
    """
    if count:
        fetch.context.reserve(count)


async def _read_on(fetch: _Fetch, read: FetchPass, cold: ColdFetch | None) -> None:
    """Read the remaining partitions. All records of the pass are charged at the end."""
    budget = fetch.context.broker.budget
    charged = 0
    while True:
        if cold is not None:
            expected = max(0, min(read.max_bytes - read.size, read.next_max_bytes))
            budget.reserve(expected)
            try:
                read.supply(await cold.partition.complete_read(cold.read.resolve()))
            except Refusal as refusal:
                read.supply(refusal)
            finally:
                budget.release(expected)
        _charge(fetch, read.size - charged)
        charged = read.size
        if read.is_complete:
            return
        if cold is None:
            await fetch.context.session.next_turn()
        if fetch.context.session.closed:
            return
        cold = _advance(fetch, read)


def _watch(fetch: _Fetch, readings: Sequence[Reading], wait: FetchWait) -> None:
    """Register for the bytes of the partitions that are missing."""
    for reading in readings:
        if reading.partition is not None:
            wait.watch(
                reading.partition.watermarks.fetch_watchers,
                fetch.limits.watermark,
                reading.slot.max_bytes - reading.size,
            )


async def _park(fetch: _Fetch, read: FetchPass, wait: FetchWait) -> bool:
    """Register for the bytes that are missing after a pass of more than one turn, and start the timer of `max_wait_ms`.

    Wake the fetch if a partition may have more bytes than at its read. Return False if the fetch is awake:

    1. The pass reads partition 0, and lets other work run before it reads partition 300.
    2. A producer appends to partition 0. No wait for it is registered yet.
    3. Without this check, the fetch would wait for the next append, or for `max_wait_ms`.
    """
    for readings in slices(read.readings):
        if wait.woken.done():
            return False  # the connection received another request
        _watch(fetch, readings, wait)
        if any(_has_advanced(fetch, reading) for reading in readings):
            wait.wake()
            return False
        if len(read.readings) > PARTITIONS_PER_TURN:
            await fetch.context.session.next_turn()
    if wait.woken.done():
        return False
    wait.start(fetch.limits.min_bytes - read.size, fetch.max_wait_ms)
    return True


def _has_advanced(fetch: _Fetch, reading: Reading) -> bool:
    if reading.partition is None:
        return False
    log, data = reading.partition.log, reading.data
    if fetch.limits.watermark is Watermark.LAST_STABLE_OFFSET:
        return log.last_stable_offset != data.last_stable_offset
    return log.high_watermark != data.high_watermark


# ---- responses ------------------------------------------------------------------------------------------------------


def _respond(fetch: _Fetch, read: FetchPass) -> FetchResponse:
    response = FetchResponse()
    _account(fetch, read.readings, response)
    _group(_finish(fetch, read, response), response.responses)
    return response


async def _respond_in_slices(fetch: _Fetch, read: FetchPass) -> FetchResponse:
    """Like `_respond`, with turns of the event loop between slices if the pass has many partitions."""
    if fetch.context.session.closed:
        return FetchResponse()
    if len(read.readings) <= PARTITIONS_PER_TURN:
        return _respond(fetch, read)
    response = FetchResponse()
    for readings in slices(read.readings):
        _account(fetch, readings, response)
        await fetch.context.session.next_turn()
    for changed in slices(_finish(fetch, read, response)):
        _group(changed, response.responses)
        await fetch.context.session.next_turn()
    fetch.context.encode_in_slices = True
    return response


def _account(fetch: _Fetch, readings: Sequence[Reading], response: FetchResponse) -> None:
    """Complete the results of some partitions, and count their records in the traffic of the partitions."""
    _translate(fetch.context, readings, response)
    if fetch.limits.watermark is not Watermark.LOG_END:
        for reading in readings:
            if reading.partition is not None:
                reading.partition.traffic.bytes_out += reading.size


def _finish(fetch: _Fetch, read: FetchPass, response: FetchResponse) -> SentPartitions:
    """Complete the fetch in its session. Return the partitions that the response contains."""
    results = [reading.data for reading in read.readings]
    error, session_id, changed = fetch.plan.finish(results, fetch.context.node.clock.monotonic_ms())
    response.error_code = error
    response.session_id = session_id
    return changed


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


def _group(results: SentPartitions, topics: list[FetchableTopicResponse]) -> None:
    """Append results to `topics`. Adjacent results of one topic share its entry: the order is that of the next read."""
    last: str | UUID | None = None
    if topics:
        last = topics[-1].topic or topics[-1].topic_id
    for slot, data in results:
        topic = slot.topic
        if topic == last:
            topics[-1].partitions.append(data)
            continue
        last = topic
        if isinstance(topic, UUID):
            topics.append(FetchableTopicResponse("", topic, [data]))
        else:
            topics.append(FetchableTopicResponse(topic, ZERO_UUID, [data]))


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
