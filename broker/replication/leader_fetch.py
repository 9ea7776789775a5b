"""Respond to the fetches of followers: wait for due slots of the session, and read their records.

The sessions are in `odradek.broker.replication.leader_sessions`.
"""

from asyncio import Future, Handle, TimerHandle, get_running_loop
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from odradek.broker.fetch.read import ColdFetch, empty_partition_data, error_partition_data
from odradek.broker.fetch.sessions import FINAL_EPOCH, NO_SESSION, SESSIONS_MIN_VERSION, TOPIC_ID_MIN_VERSION
from odradek.broker.quota.byte_budget import ByteBudget
from odradek.broker.replication.leader_sessions import ReplicaSession, ReplicaSessions, ReplicaSlot
from odradek.broker.requests.context import RequestContext
from odradek.broker.requests.error_map import wire_error
from odradek.frozen import frozen_dataclass
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from odradek.protocol.primitives import ZERO_UUID
from odradek.runtime.clock import Clock
from odradek.runtime.tasks import Spawn
from odradek.storage.log.reads import ColdRead, ReadResult

LINGER_ROUNDS: Final = 6
"""Iterations of the event loop between the first wake-up of a parked fetch and its response. On an idle broker they
take some microseconds. On a busy one, records of other requests arrive in them, and one response takes the place of
several."""
DEFERRED_S: Final = 0.005
"""Maximum delay of deferred appends, in seconds: no client waits for their commit, so they wait for other records to
join."""
SLOTS_PER_RESPONSE_MAX: Final = 256
"""Maximum partitions per response, and unresolved ones per pass. One pass over them takes about 3 ms of the event loop.
The other due partitions are in the next responses, which do not wait for records."""
WATERMARKS_EVERY_MS: Final = 100
"""Minimum interval of responses with partitions without records, in milliseconds. Such partitions only report a new
high watermark; in each response, they would cost more than the records of the others."""


@dataclass(slots=True)
class Gathering:
    """One pass over the due slots of a session, in the order in which they became due.

    Only `finish` records slots as sent, so the driver can discard a response that is too small.
    """

    sessions: ReplicaSessions
    session: ReplicaSession
    max_bytes: int
    """Maximum bytes of records in the response."""
    now_ms: int
    final: bool
    """True if the fetch waits no longer: the response also contains transient errors and watermarks."""
    rows: list[tuple[ReplicaSlot, PartitionData]] = field(default_factory=list)
    """Slots that were read, with their part of the response."""
    size: int = 0
    """Bytes of records in `rows`."""
    urgent: bool = False
    """True if a row must not wait for min_bytes."""
    throttle_ms: int = 0
    """Milliseconds after which a throttled slot may be read; 0 if no slot is throttled."""
    _slots: list[ReplicaSlot] = field(default_factory=list)
    _next: int = 0
    _resolved: int = 0
    """Slots that the pass has resolved."""

    def begin(self) -> None:
        """Select the slots of the pass."""
        session = self.session
        session.release_deferred()
        self._slots = list(session.due)
        if (
            self.final
            or session.eager
            or session.incomplete
            or self.now_ms >= session.watermarks_sent_ms + WATERMARKS_EVERY_MS
        ):
            session.watermarks_sent_ms = self.now_ms
            self._slots += [slot for slot in session.advanced if slot not in session.due]

    def advance(self) -> ColdFetch | None:
        """Read up to the next slot whose data is not in memory. Return its read, or None at the end of the pass."""
        slots, rows, end = self._slots, self.rows, len(self._slots)
        # Without a session, the next fetch has the same partitions in the same order, so the response must have all.
        limit = SLOTS_PER_RESPONSE_MAX if self.session.id != NO_SESSION else end + 1
        while self._next < end and len(rows) < limit and self._resolved < limit:
            slot = slots[self._next]
            cold = self._read(slot)
            if cold is not None:
                assert slot.partition is not None
                return ColdFetch(slot.partition, cold)
            self._next += 1
        return None

    @property
    def incomplete(self) -> bool:
        """True if the pass has not reached its last slot."""
        return self._next < len(self._slots)

    def supply(self, result: ReadResult | Refusal) -> None:
        """Apply the result of the read that `advance` returned."""
        slot = self._slots[self._next]
        self._next += 1
        if isinstance(result, Refusal):
            self._refuse(slot, result.error)
        elif not slot.unresolved and slot.partition is not None:
            self._add(slot, result)
        # Otherwise the leader term ended during the read: the slot stays due, and the next fetch resolves it.

    def _read(self, slot: ReplicaSlot) -> ColdRead | None:
        if slot.unresolved:
            self._resolved += 1
            self.sessions.resolve(slot, self.now_ms)
        if slot.error:
            if self.final or not slot.transient:
                self._refuse(slot, slot.error)
            return None
        partition = slot.partition
        assert partition is not None
        if slot.diverging is not None:
            row = self._row(slot)
            row.diverging_epoch = slot.diverging
            self.rows.append((slot, row))
            self.urgent = True
            return None
        if not slot.behind:
            self._add(slot, None)
            return None
        capacity = min(slot.max_bytes, self.max_bytes - self.size)
        if capacity <= 0 and self.size:
            return None
        in_sync = slot.replica is not None and slot.replica.in_sync
        throttle_ms = self.sessions.throttles.leader_wait_ms(partition, follower_in_sync=in_sync)
        if throttle_ms:
            self.throttle_ms = throttle_ms
            return None  # The slot stays due.
        log = partition.log
        try:
            result = partition.read(
                slot.offset, max_bytes=max(capacity, 0), limit=log.log_end_offset, min_one_batch=not self.size
            )
        except Refusal as refusal:
            self._refuse(slot, refusal.error)
            return None
        if isinstance(result, ColdRead):
            return result
        self._add(slot, result)
        return None

    def _row(self, slot: ReplicaSlot) -> PartitionData:
        assert slot.partition is not None
        log = slot.partition.log
        row = empty_partition_data(slot.index)
        row.high_watermark = log.high_watermark
        row.last_stable_offset = log.last_stable_offset
        row.log_start_offset = log.log_start_offset
        return row

    def _add(self, slot: ReplicaSlot, result: ReadResult | None) -> None:
        row = self._row(slot)
        if result is not None and result.records:
            row.records = result.records
            self.size += len(result.records)
            assert slot.partition is not None
            self.sessions.throttles.record_leader_bytes(slot.partition, len(result.records))
        elif slot.behind:
            return  # Its first batch exceeds the remaining bytes: the slot stays due.
        self.rows.append((slot, row))

    def _refuse(self, slot: ReplicaSlot, error: ErrorCode) -> None:
        slot.error = error
        self.rows.append((slot, error_partition_data(slot.index, error)))
        self.urgent = True

    @property
    def has_changes(self) -> bool:
        """True if a row has an error, or watermarks that the follower has not received."""
        return any(
            slot.error or (row.high_watermark, row.log_start_offset) != (slot.sent_high_watermark, slot.sent_log_start)
            for slot, row in self.rows
        )

    def finish(self, context: RequestContext) -> list[FetchableTopicResponse]:
        """Record the changed rows as sent, and return them by topic."""
        session = self.session
        session.incomplete = self.incomplete
        due, advanced, served = session.due, session.advanced, session.served
        topics: dict[int | str, FetchableTopicResponse] = {}
        for slot, row in self.rows:
            error = slot.error
            advanced.pop(slot, None)
            complete = error or row.records or row.diverging_epoch.epoch >= 0
            # An append during the reads from disk may have made a slot due again that has no records in this response.
            if complete or not (slot.behind or slot.unresolved):
                due.pop(slot, None)
            if error:
                row.error_code = wire_error(context.api_key, context.api_version, error)
                slot.sent_high_watermark = -1
            elif row.records or row.diverging_epoch.epoch >= 0:
                slot.sent_high_watermark, slot.sent_log_start = row.high_watermark, row.log_start_offset
                self._fetched(slot)
            elif (row.high_watermark, row.log_start_offset) == (slot.sent_high_watermark, slot.sent_log_start):
                continue
            else:
                slot.sent_high_watermark, slot.sent_log_start = row.high_watermark, row.log_start_offset
                _add_row(topics, slot, row)
                continue
            served.append(slot)
            _add_row(topics, slot, row)
        return list(topics.values())

    def _fetched(self, slot: ReplicaSlot) -> None:
        """Record time and log end of this response.

        If the next fetch is at that log end or above, the replica was caught up at this time
        (Replica.updateFetchStateOrThrow).
        """
        replica, partition = slot.replica, slot.partition
        if replica is not None and partition is not None:
            replica.fetched_ms = self.now_ms
            replica.leader_end = partition.log.log_end_offset


def _add_row(topics: dict[int | str, FetchableTopicResponse], slot: ReplicaSlot, row: PartitionData) -> None:
    topic = slot.topic
    key = topic.int if isinstance(topic, UUID) else topic  # the hash of a UUID is slow Python code
    rows = topics.get(key)
    if rows is None:
        name, topic_id = ("", topic) if isinstance(topic, UUID) else (topic, ZERO_UUID)
        rows = topics[key] = FetchableTopicResponse(name, topic_id, [])
    rows.partitions.append(row)


@frozen_dataclass(frozen=True, slots=True)
class ReplicaFetches:
    """Handler of the fetches of followers. `spawn` runs reads from the disk; `max_bytes` is fetch.max.bytes."""

    sessions: ReplicaSessions
    clock: Clock
    budget: ByteBudget
    spawn: Spawn
    max_bytes: int

    def handle(
        self, context: RequestContext, request: FetchRequest, replica_id: int, broker_epoch: int
    ) -> FetchResponse | Awaitable[FetchResponse]:
        """Return the response to one fetch, or an awaitable of it. Raise Refusal with a top-level error of sessions."""
        if context.api_version < SESSIONS_MIN_VERSION:
            request.session_id, request.session_epoch = NO_SESSION, FINAL_EPOCH
        session = self.sessions.receive(
            request,
            replica_id,
            broker_epoch,
            self.clock.monotonic_ms(),
            by_id=context.api_version >= TOPIC_ID_MIN_VERSION,
        )
        return _Fetch(self, context, request, session).start()


class _Fetch:
    """One fetch of a follower (`odradek.broker.replication.leader_sessions.Parked`)."""

    __slots__ = (
        "_context",
        "_epoch",
        "_future",
        "_later",
        "_loop",
        "_owner",
        "_request",
        "_session",
        "_soon",
        "_throttle_timer",
        "_timer",
    )

    def __init__(
        self, owner: ReplicaFetches, context: RequestContext, request: FetchRequest, session: ReplicaSession
    ) -> None:
        self._owner = owner
        self._context = context
        self._request = request
        self._session = session
        self._epoch = session.epoch
        self._loop = get_running_loop()
        self._soon: Handle | None = None
        self._later: TimerHandle | None = None
        self._throttle_timer: TimerHandle | None = None
        self._timer: TimerHandle | None = None
        self._future: Future[FetchResponse] | None = None

    def start(self) -> FetchResponse | Awaitable[FetchResponse]:
        """Return the response, or park the fetch until an append, its time-out, or the next request of its connection.

        A fetch that finds records is parked for LINGER_ROUNDS, too: requests that arrived together with it may append
        more.
        """
        if self._request.max_wait_ms <= 0:
            response = self._gather(final=True)
            if response is not None:
                return response
        else:
            session = self._session
            self._park()
            # This fetch may itself have advanced the high watermark, before it was parked.
            own_advance = session.eager and session.advanced
            if own_advance or self._must_respond():
                self.wake_soon()
        assert self._future is not None
        return self._future

    # ---- waiting ----------------------------------------------------------------------------------------------------

    def _park(self) -> None:
        self._future = self._loop.create_future()
        self._timer = self._loop.call_later(self._request.max_wait_ms / 1_000, self.expire)
        self._session.parked = self
        if self._session.deferred:
            self.wake_later()
        self._context.session.on_next_request(self.expire)

    def wake_soon(self) -> None:
        if self._soon is None:
            self._soon = self._loop.call_soon(self._linger, LINGER_ROUNDS)

    def wake_later(self) -> None:
        if self._later is None:
            self._later = self._loop.call_later(DEFERRED_S, self._release_deferred)

    def _release_deferred(self) -> None:
        self._later = None
        if self._session.parked is self:
            self._session.release_deferred()
            self.wake_soon()

    def _wake_after_throttle(self, throttle_ms: int) -> None:
        """Wake the fetch when a throttled slot may be read: perhaps no append wakes it before."""
        if self._throttle_timer is None:
            self._throttle_timer = self._loop.call_later(throttle_ms / 1_000, self._throttle_ended)

    def _throttle_ended(self) -> None:
        self._throttle_timer = None
        self.wake_soon()

    def _linger(self, rounds: int) -> None:
        if rounds > 1:
            self._soon = self._loop.call_soon(self._linger, rounds - 1)
        else:
            self._wake()

    def _wake(self) -> None:
        self._soon = None
        if self._session.parked is not self:
            return
        if self._must_respond() or self._session.eager:
            self._settle(self._gather(final=False))

    def _must_respond(self) -> bool:
        """Return True if a due slot is urgent, or if the follower or this broker divided a large fetch."""
        owner, session = self._owner, self._session
        urgent = owner.sessions.has_urgent(session, owner.clock.monotonic_ms(), SLOTS_PER_RESPONSE_MAX)
        return urgent or session.incomplete or self._request.min_bytes <= 0

    def expire(self) -> None:
        if self._session.parked is self:
            self._settle(self._gather(final=True))

    def _settle(self, response: FetchResponse | None) -> None:
        if response is not None and self._future is not None and not self._future.done():
            self._future.set_result(response)

    def _unpark(self) -> None:
        if self._session.parked is self:
            self._session.parked = None
            self._context.session.cancel_on_next_request(self.expire)
        for timer in (self._timer, self._later, self._throttle_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._later = self._throttle_timer = None

    # ---- response ---------------------------------------------------------------------------------------------------

    def _gather(self, *, final: bool) -> FetchResponse | None:
        """Return the response; None if it is still too small, or if a read from disk delays it."""
        owner = self._owner
        max_bytes = min(self._request.max_bytes, owner.max_bytes, owner.budget.response_capacity())
        gathering = Gathering(owner.sessions, self._session, max_bytes, owner.clock.monotonic_ms(), final)
        gathering.begin()
        cold = gathering.advance()
        if cold is not None:
            self._unpark()
            if self._future is None:
                self._future = self._loop.create_future()
            owner.spawn(self._from_disk(gathering, cold), "read for a follower")
            return None
        if not final and not self._suffices(gathering):
            if gathering.throttle_ms:
                self._wake_after_throttle(gathering.throttle_ms)
            return None
        self._unpark()
        return self._respond(gathering)

    def _suffices(self, gathering: Gathering) -> bool:
        if gathering.urgent or gathering.incomplete or self._session.incomplete:
            return True
        if self._session.eager and gathering.has_changes:
            return True
        return gathering.size >= min(self._request.min_bytes, max(gathering.max_bytes, 1))

    async def _from_disk(self, gathering: Gathering, cold: ColdFetch | None) -> None:
        budget = self._owner.budget
        while cold is not None:
            expected = max(0, gathering.max_bytes - gathering.size)
            budget.reserve(expected)
            try:
                gathering.supply(await cold.partition.complete_read(cold.read.resolve()))
            except Refusal as refusal:
                gathering.supply(refusal)
            finally:
                budget.release(expected)
            cold = gathering.advance()
        self._settle(self._respond(gathering))

    def _respond(self, gathering: Gathering) -> FetchResponse:
        session, budget = self._session, self._owner.budget
        if session.epoch != self._epoch:
            return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        response = FetchResponse(session_id=session.id, responses=gathering.finish(self._context))
        # Reserve the bytes until the connection takes over the response, in the next iteration of the event loop.
        budget.reserve(gathering.size)
        self._loop.call_soon(budget.release, gathering.size)
        if session.id == NO_SESSION:
            self._owner.sessions.end(session)
        return response
