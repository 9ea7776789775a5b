"""Fetch: v4-18.

Behavior:
- Partitions are read in the order of the request (of the session) within its byte limits, see
  `odradek.broker.fetch.read`.
- An answer waits until there are `min_bytes`, at most `max_wait_ms`. It is woken by the watermark that its reader waits
  for: the high watermark (read_uncommitted), the last stable offset (read_committed), the log end (debugging, -2).
- A Fetch that waits is answered at once, early and maybe empty, when the same connection sends another request, which
  would otherwise be held up behind it: the order of responses is that of the requests.
- What is not in memory is read while the connection's next requests wait: one such read at a time for each of them.
- Where the byte budget runs short, an answer holds less than was asked for (`ByteBudget.response_capacity`), but one
  batch.
- Incremental sessions: see `odradek.broker.fetch.sessions`. One holds at most 10,000 partitions, all together 200,000:
  beyond, a full fetch opens none, and one that grows is closed (FETCH_SESSION_ID_NOT_FOUND), after which its client
  fetches in full.
- Followers, which fetch the log itself and acknowledge by it: see `odradek.broker.replication.leader_fetch`.
- Consumers from v11 on may read from a follower, up to what it knows to be committed. With the rack-aware selector the
  leader names a follower in the consumer's rack instead of giving records (KIP-392).
- read_committed: records up to the last stable offset, and exactly the aborted transactions that they meet.

Version notes:
- v5 log start offset; v7 sessions (KIP-227); v9 leader epochs (KIP-320); v11 preferred replica (KIP-392); v12 flexible,
  divergence by last fetched epoch (KIP-595); v13 topic ids (KIP-516); v15 replica state (KIP-903); v16 leader hints
  (KIP-951); v17 directory ids (KIP-853); v18 the high watermark of the reader (KIP-1166).
- v5 and earlier know no KAFKA_STORAGE_ERROR and get NOT_LEADER_OR_FOLLOWER.
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
from odradek.broker.fetch.sessions import FINAL_EPOCH, NO_SESSION, FetchKey, FetchPlan, FetchSlot
from odradek.broker.partition.partition import NO_EPOCH, Partition
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
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from odradek.protocol.primitives import ZERO_UUID

CONSUMER: Final = -1
READ_COMMITTED: Final = 1
SESSIONS_MIN_VERSION: Final = 7
TOPIC_ID_MIN_VERSION: Final = 13
REPLICA_STATE_MIN_VERSION: Final = 15
READ_REPLICA_MIN_VERSION: Final = 11
LEADER_HINT_MIN_VERSION: Final = 16
PATIENT_ERRORS: Final = (
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)
HINTED_ERRORS: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


@dataclass(slots=True)
class _Fetch:
    """One request on its way."""

    context: BrokerRequestContext
    plan: FetchPlan
    limits: FetchLimits
    max_wait_ms: int
    rack: str
    """Of the consumer, where it is to be sent to a replica near it; empty where not."""


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
    read = _survey(fetch)
    cold = read.advance()
    if cold is None and _answer_now(fetch, read):
        return _respond(fetch, read)
    # Before this call returns: what is appended, or asked for by this connection, between here and the first step of
    # stage two must find somebody to wake.
    wait = FetchWait()
    context.session.on_next_request(wait.wake)
    if cold is not None:
        # Answers of stored records are large: the next one is not made before the client has taken this one.
        return Ordered(_from_disk(fetch, read, cold, wait))
    _park(fetch, read, wait)
    return _when_woken(fetch, wait)


def _fetch_as_replica(
    context: BrokerRequestContext, request: FetchRequest, replica_id: int
) -> FetchResponse | Awaitable[FetchResponse]:
    if BROKER not in context.session.listener.roles or not context.allowed_on_cluster(AclOperation.CLUSTER_ACTION):
        raise Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    broker_epoch = request.replica_state.replica_epoch if context.api_version >= REPLICA_STATE_MIN_VERSION else -1
    context.quorum.peers.note_contact(replica_id)
    return context.broker.replica_fetches.handle(context, request, replica_id, broker_epoch)


def refuse(context: RequestContext, request: FetchRequest, error: ErrorCode, message: str | None) -> FetchResponse:
    """Top-level errors came with the sessions, v7; before, every partition says it."""
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


# ---- what is asked --------------------------------------------------------------------------------------------------


def _plan(context: BrokerRequestContext, request: FetchRequest) -> FetchPlan:
    version = context.api_version
    by_id = version >= TOPIC_ID_MIN_VERSION
    asked = [
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
        asked,
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
    committed_only = replica_id == CONSUMER and request.isolation_level == READ_COMMITTED
    if replica_id != CONSUMER:
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
        replica_id == CONSUMER and version < READ_REPLICA_MIN_VERSION,
    )


def _rack(context: BrokerRequestContext, request: FetchRequest, replica_id: int) -> str:
    if replica_id != CONSUMER or context.api_version < READ_REPLICA_MIN_VERSION:
        return ""
    return request.rack_id if context.node.config.replica_selector_class == RACK_AWARE else ""


# ---- reading --------------------------------------------------------------------------------------------------------


def _survey(fetch: _Fetch) -> FetchPass:
    """A fresh pass over all partitions of the plan. Those that cannot be read at all have their answer already."""
    allowed: dict[str, bool] = {}
    readings = [_reading(fetch, slot, allowed) for slot in fetch.plan.slots]
    max_bytes = min(fetch.limits.max_bytes, fetch.context.broker.budget.response_capacity())
    read = FetchPass(fetch.limits, readings, max_bytes)
    # What is not known at all does not end the waiting for the others (as in Kafka); any other error does.
    read.immediate = any(
        (reading.error and reading.error not in PATIENT_ERRORS)
        or reading.data.preferred_read_replica != READ_FROM_LEADER
        for reading in readings
    )
    return read


def _reading(fetch: _Fetch, slot: FetchSlot, allowed: dict[str, bool]) -> Reading:
    """`allowed` remembers, for this request, which topics the session may read."""
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
        sent = _sent_elsewhere(fetch, slot, partition)
        if sent is not None:
            return Reading(slot, sent, None, topic)
    return Reading(slot, empty_partition_data(slot.index), partition, topic)


def _sent_elsewhere(fetch: _Fetch, slot: FetchSlot, partition: Partition) -> PartitionData | None:
    """The answer that names a replica near the reader, and holds no records; None when it is to read here."""
    if slot.current_leader_epoch not in {NO_EPOCH, partition.leader_epoch}:
        return None
    context = fetch.context
    brokers = context.node.metadata.image.brokers
    named = preferred_replica(partition, slot.fetch_offset, fetch.rack, brokers, context.session.listener.name)
    if named == READ_FROM_LEADER:
        return None
    log = partition.log
    answer = empty_partition_data(slot.index)
    answer.high_watermark, answer.last_stable_offset = log.high_watermark, log.last_stable_offset
    answer.log_start_offset = log.log_start_offset
    answer.preferred_read_replica = named
    return answer


def _topic_name(fetch: _Fetch, slot: FetchSlot) -> str:
    if isinstance(slot.topic, str):
        return slot.topic
    image = fetch.context.node.metadata.image.topic_by_id(slot.topic)
    return "" if image is None else image.name


def _answer_now(fetch: _Fetch, read: FetchPass) -> bool:
    return read.is_sufficient or fetch.max_wait_ms <= 0 or all(reading.partition is None for reading in read.readings)


async def _from_disk(
    fetch: _Fetch, read: FetchPass, cold: ColdFetch, wait: FetchWait
) -> FetchResponse | Coroutine[Any, Any, FetchResponse]:
    """Stage one, where something is not in memory: bring it in. Where that is not enough, stage two waits for more."""
    parked = False
    try:
        await _read_on(fetch, read, cold)
        if _answer_now(fetch, read):
            return _handed_over(fetch, read)
        _park(fetch, read, wait)
        parked = True
        return _when_woken(fetch, wait)
    finally:
        if not parked:
            fetch.context.session.cancel_on_next_request(wait.wake)
            wait.wake()


async def _when_woken(fetch: _Fetch, wait: FetchWait) -> FetchResponse:
    """Stage two: wait for what is not there yet; read once more."""
    try:
        await wait.woken
    finally:
        fetch.context.session.cancel_on_next_request(wait.wake)
        wait.wake()
    read = _survey(fetch)
    await _read_on(fetch, read, read.advance())
    return _handed_over(fetch, read)


def _handed_over(fetch: _Fetch, read: FetchPass) -> FetchResponse:
    """The answer of a coroutine.

    Its bytes count from now on, or fetches that wake together would all see the same room.
    """
    budget = fetch.context.broker.budget
    budget.reserve(read.size)
    get_running_loop().call_soon(
        budget.release, read.size
    )  # right before the connection takes the answer, and counts it
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
    """Wait until enough has become readable, the time is up, or the connection has something else to ask."""
    if wait.woken.done():
        return  # it has asked during the cold read
    for reading in read.readings:
        if reading.partition is not None:
            wait.watch(
                reading.partition.watermarks.fetch_watchers,
                fetch.limits.watermark,
                reading.slot.max_bytes - reading.size,
            )
    wait.start(fetch.limits.min_bytes - read.size, fetch.max_wait_ms)


# ---- answering ------------------------------------------------------------------------------------------------------


def _respond(fetch: _Fetch, read: FetchPass) -> FetchResponse:
    context = fetch.context
    response = FetchResponse()
    _translate(context, read.readings, response)
    if fetch.limits.watermark is not Watermark.LOG_END:
        for reading in read.readings:
            if reading.partition is not None:
                reading.partition.traffic.bytes_out += reading.size
    answers = [reading.data for reading in read.readings]
    error, session_id, told = fetch.plan.finish(answers, context.node.clock.monotonic_ms())
    response.error_code = error
    response.session_id = session_id
    response.responses = _grouped(told, by_id=fetch.limits.by_id)
    return response


def _translate(context: BrokerRequestContext, readings: Sequence[Reading], response: FetchResponse) -> None:
    """Error codes as the version knows them, with hints to the leader where the version has room for one."""
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


def _grouped(told: list[tuple[FetchSlot, PartitionData]], *, by_id: bool) -> list[FetchableTopicResponse]:
    """Neighbors of one topic share an entry; the order stays, since it is the order of the next read."""
    topics: list[FetchableTopicResponse] = []
    last: str | UUID | None = None
    for slot, answer in told:
        topic = slot.topic
        if topics and topic == last:
            topics[-1].partitions.append(answer)
            continue
        last = topic
        if isinstance(topic, UUID):
            topics.append(FetchableTopicResponse("", topic, [answer]))
        else:
            topics.append(FetchableTopicResponse(topic, ZERO_UUID, [answer]))
    return topics


API: Final = Api(
    key=FetchRequest.API_KEY,
    min_version=4,
    max_version=18,
    request=FetchRequest,
    response=FetchResponse,
    handle=handle,
    refuse=refuse,
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
    listeners=API.listeners,
    early=is_metadata_fetch,
)
"""The row of Fetch before the broker is registered: it serves the metadata log."""
