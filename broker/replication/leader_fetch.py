"""Fetch by a follower: its session says what it has, and is answered with what it lacks (see `odradek.broker.replication.leader_sessions`)."""

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
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from odradek.protocol.primitives import ZERO_UUID
from odradek.runtime.clock import Clock
from odradek.runtime.tasks import Spawn
from odradek.storage.log.reads import ColdRead, ReadResult

LINGER_ROUNDS: Final = 6
"""How often an answer goes around the loop before it leaves: some microseconds where nothing else happens. In a loop that is busy others'
records arrive meanwhile and go along, and every answer that need not be sent saves both brokers a request."""
DEFERRED_S: Final = 0.005
"""How long records that nobody waits for may wait for others to go along with."""
WATERMARKS_EVERY_MS: Final = 100
"""How often partitions that have no records for the follower are told for their high watermark alone, while others have some."""


@dataclass(slots=True)
class Gathering:
    """One pass over what is due in a session, in order of becoming due, `max_bytes` of records at most.

    Nothing counts as told before `finish`: an answer that turns out to be too small is thrown away. `final`: the time is up, so
    what could have waited is said, too.
    """

    sessions: ReplicaSessions
    session: ReplicaSession
    max_bytes: int
    now_ms: int
    final: bool
    rows: list[tuple[ReplicaSlot, PartitionData]] = field(default_factory=list)
    size: int = 0
    urgent: bool = False
    held_back_ms: int = 0
    """When more may be told of what is throttled; 0 where nothing is held back."""
    _slots: list[ReplicaSlot] = field(default_factory=list)
    _next: int = 0

    def begin(self) -> None:
        session = self.session
        session.hurry()
        self._slots = list(session.due)
        if self.final or session.eager or self.now_ms >= session.watermarks_told_ms + WATERMARKS_EVERY_MS:
            session.watermarks_told_ms = self.now_ms
            self._slots += [slot for slot in session.moved if slot not in session.due]

    def advance(self) -> ColdFetch | None:
        """Read on; None at the end."""
        slots = self._slots
        while self._next < len(slots):
            slot = slots[self._next]
            cold = self._look(slot)
            if cold is not None:
                assert slot.partition is not None
                return ColdFetch(slot.partition, cold)
            self._next += 1
        return None

    def supply(self, found: ReadResult | Refusal) -> None:
        """The outcome of the cold read that `advance` has stopped at."""
        slot = self._slots[self._next]
        self._next += 1
        if isinstance(found, Refusal):
            self._refuse(slot, found.error)
        elif not slot.unsettled and slot.partition is not None:  # else: looked at again with the next fetch
            self._add(slot, found)

    def _look(self, slot: ReplicaSlot) -> ColdRead | None:
        if slot.unsettled:
            self.sessions.settle(slot, self.now_ms)
        if slot.error:
            if self.final or not slot.patient:
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
        room = min(slot.max_bytes, self.max_bytes - self.size)
        if room <= 0 and self.size:
            return None
        in_sync = slot.replica is not None and slot.replica.in_sync
        held_back_ms = self.sessions.throttles.leader_wait_ms(partition, follower_in_sync=in_sync)
        if held_back_ms:
            self.held_back_ms = held_back_ms
            return None  # it stays due
        log = partition.log
        try:
            found = partition.read(
                slot.offset, max_bytes=max(room, 0), limit=log.log_end_offset, min_one_batch=not self.size
            )
        except Refusal as refusal:
            self._refuse(slot, refusal.error)
            return None
        if isinstance(found, ColdRead):
            return found
        self._add(slot, found)
        return None

    def _row(self, slot: ReplicaSlot) -> PartitionData:
        assert slot.partition is not None
        log = slot.partition.log
        row = empty_partition_data(slot.index)
        row.high_watermark = log.high_watermark
        row.last_stable_offset = log.last_stable_offset
        row.log_start_offset = log.log_start_offset
        return row

    def _add(self, slot: ReplicaSlot, found: ReadResult | None) -> None:
        row = self._row(slot)
        if found is not None and found.records:
            row.records = found.records
            self.size += len(found.records)
            assert slot.partition is not None
            self.sessions.throttles.leader_gave(slot.partition, len(found.records))
        elif slot.behind:
            return  # no room for its first batch: it stays due
        self.rows.append((slot, row))

    def _refuse(self, slot: ReplicaSlot, error: ErrorCode) -> None:
        slot.error = error
        self.rows.append((slot, error_partition_data(slot.index, error)))
        self.urgent = True

    @property
    def says_something(self) -> bool:
        """Is there a row that the follower has not been told?"""
        return any(
            slot.error or (row.high_watermark, row.log_start_offset) != (slot.told_high_watermark, slot.told_log_start)
            for slot, row in self.rows
        )

    def finish(self, context: RequestContext) -> list[FetchableTopicResponse]:
        """The rows that say anything, by topic; they count as told."""
        session = self.session
        due, moved, served = session.due, session.moved, session.served
        topics: dict[int | str, FetchableTopicResponse] = {}
        for slot, row in self.rows:
            error = slot.error
            moved.pop(slot, None)
            told = error or row.records or row.diverging_epoch.epoch >= 0
            # Something may have come while others were read from the disk: then it is told with the next answer.
            if told or not (slot.behind or slot.unsettled):
                due.pop(slot, None)
            if error:
                row.error_code = wire_error(context.api_key, context.api_version, error)
                slot.told_high_watermark = -1
            elif row.records or row.diverging_epoch.epoch >= 0:
                slot.told_high_watermark, slot.told_log_start = row.high_watermark, row.log_start_offset
                self._fetched(slot)
            elif (row.high_watermark, row.log_start_offset) == (slot.told_high_watermark, slot.told_log_start):
                continue
            else:
                slot.told_high_watermark, slot.told_log_start = row.high_watermark, row.log_start_offset
                _add_row(topics, slot, row)
                continue
            served.append(slot)
            _add_row(topics, slot, row)
        return list(topics.values())

    def _fetched(self, slot: ReplicaSlot) -> None:
        """The follower gets all there was now: it counts as caught up now if it comes back with that."""
        replica, partition = slot.replica, slot.partition
        if replica is not None and partition is not None:
            replica.fetched_ms = self.now_ms
            replica.leader_end = partition.log.log_end_offset


def _add_row(topics: dict[int | str, FetchableTopicResponse], slot: ReplicaSlot, row: PartitionData) -> None:
    topic = slot.topic
    key = topic.int if isinstance(topic, UUID) else topic  # a UUID is hashed in Python
    told = topics.get(key)
    if told is None:
        name, topic_id = ("", topic) if isinstance(topic, UUID) else (topic, ZERO_UUID)
        told = topics[key] = FetchableTopicResponse(name, topic_id, [])
    told.partitions.append(row)


@dataclass(frozen=True, slots=True)
class ReplicaFetches:
    """Answers followers. `spawn` runs what has to read from the device; `max_bytes` is fetch.max.bytes."""

    sessions: ReplicaSessions
    clock: Clock
    budget: ByteBudget
    spawn: Spawn
    max_bytes: int

    def handle(
        self, context: RequestContext, request: FetchRequest, replica_id: int, broker_epoch: int
    ) -> FetchResponse | Awaitable[FetchResponse]:
        """Raises Refusal with a session error."""
        if context.api_version < SESSIONS_MIN_VERSION:
            request.session_id, request.session_epoch = NO_SESSION, FINAL_EPOCH
        session = self.sessions.take(
            request,
            replica_id,
            broker_epoch,
            self.clock.monotonic_ms(),
            by_id=context.api_version >= TOPIC_ID_MIN_VERSION,
        )
        return _Fetch(self, context, request, session).start()


class _Fetch:
    """One request on its way (`odradek.broker.replication.leader_sessions.Parked`)."""

    __slots__ = (
        "_context",
        "_epoch",
        "_future",
        "_held_back",
        "_later",
        "_loop",
        "_owner",
        "_request",
        "_session",
        "_soon",
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
        self._held_back: TimerHandle | None = None
        self._timer: TimerHandle | None = None
        self._future: Future[FetchResponse] | None = None

    def start(self) -> FetchResponse | Awaitable[FetchResponse]:
        """Answer, or park: then the append wakes it, its time, or the next request of its connection.

        What is there already is told a little later, too: other requests that have arrived with this one may add to it.
        """
        if self._request.max_wait_ms <= 0:
            response = self._answer(final=True)
            if response is not None:
                return response
        else:
            session = self._session
            self._park()
            # This fetch may have been the acknowledgment that was lacking: then the watermark has moved before it was parked.
            own_news = session.eager and session.moved
            if own_news or self._owner.sessions.has_news(session, self._owner.clock.monotonic_ms()):
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
            self._later = self._loop.call_later(DEFERRED_S, self._hurry)

    def _hurry(self) -> None:
        self._later = None
        if self._session.parked is self:
            self._session.hurry()
            self.wake_soon()

    def _wake_after(self, held_back_ms: int) -> None:
        """Look again when the throttle has been paid: no append may come to wake it."""
        if self._held_back is None:
            self._held_back = self._loop.call_later(held_back_ms / 1_000, self._let_go)

    def _let_go(self) -> None:
        self._held_back = None
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
        sessions, session = self._owner.sessions, self._session
        if sessions.has_news(session, self._owner.clock.monotonic_ms()) or session.eager:
            self._settle(self._answer(final=False))

    def expire(self) -> None:
        if self._session.parked is self:
            self._settle(self._answer(final=True))

    def _settle(self, response: FetchResponse | None) -> None:
        if response is not None and self._future is not None and not self._future.done():
            self._future.set_result(response)

    def _unpark(self) -> None:
        if self._session.parked is self:
            self._session.parked = None
            self._context.session.cancel_on_next_request(self.expire)
        for timer in (self._timer, self._later, self._held_back):
            if timer is not None:
                timer.cancel()
        self._timer = self._later = self._held_back = None

    # ---- answering --------------------------------------------------------------------------------------------------

    def _answer(self, *, final: bool) -> FetchResponse | None:
        """The response; None when it is too small yet, or comes later, through the future."""
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
            if gathering.held_back_ms:
                self._wake_after(gathering.held_back_ms)
            return None
        self._unpark()
        return self._respond(gathering)

    def _suffices(self, gathering: Gathering) -> bool:
        if gathering.urgent or (self._session.eager and gathering.says_something):
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
        # Its bytes count from now on: the connection takes it in the loop's next round.
        budget.reserve(gathering.size)
        self._loop.call_soon(budget.release, gathering.size)
        if session.id == NO_SESSION:
            self._owner.sessions.end(session)
        return response
