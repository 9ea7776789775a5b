"""Incremental fetch sessions of consumers (KIP-227, fetch v7+): pure bookkeeping, no clock and no IO.

Followers have sessions of their own: see `odradek.broker.replication.leader_sessions`.

======================  ===============================================================================================
request (id, epoch)     meaning
======================  ===============================================================================================
(0, 0)                  a full fetch; a session is opened if the cache has, or can make, room
(id, 0)                 session `id` is closed, then as above
(any, -1)               a full fetch without a session; session `id` is closed if it exists
(id, n), n > 0          only what changed since the last request; answered with what changed since the last answer
======================  ===============================================================================================

The response carries session id 0 when no session exists after it. Requests of a session carry consecutive epochs;
after 2147483647 comes 1.
"""

import random
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.fetch import PartitionData

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
EPOCH_MAX: Final = 2**31 - 1
SESSION_ID_MAX: Final = 2**31 - 1
EVICTION_MS: Final = 120_000
"""A session idle for longer may be evicted by anyone; one that exists for longer, by a larger one."""

PARTITIONS_PER_SESSION_MAX: Final = 10_000
"""Who fetches more asks for all of them every time, without a session: dearer, and nothing is missing."""
PARTITIONS_MAX: Final = 200_000
"""In all sessions of a broker together; each takes about half a kilobyte. Kafka has no limit but that of the sessions."""

FetchKey = tuple[str | UUID, int]
"""(topic name up to v12, topic id from v13; partition index)."""


@dataclass(slots=True)
class FetchSlot:
    """One partition of a fetch: what the reader asks for, and (in a session) what it was told last."""

    topic: str | UUID
    index: int
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    told_high_watermark: int = -1
    told_log_start: int = -1

    @property
    def key(self) -> FetchKey:
        return self.topic, self.index

    def ask_again(self, asked: "FetchSlot") -> None:
        """Take over what a later request of the session asks for this partition."""
        self.fetch_offset = asked.fetch_offset
        self.max_bytes = asked.max_bytes
        self.current_leader_epoch = asked.current_leader_epoch
        self.last_fetched_epoch = asked.last_fetched_epoch

    def tell(self, answer: PartitionData) -> bool:
        """Remember `answer` as told; True if it says anything that an incremental response must carry.

        A last stable offset that moved alone is no reason. An error or a divergence forgets the watermark, so that the
        next good answer is sent whatever it says.
        """
        news = bool(answer.records) or answer.preferred_read_replica >= 0
        if self.told_high_watermark != answer.high_watermark:
            self.told_high_watermark = answer.high_watermark
            news = True
        if self.told_log_start != answer.log_start_offset:
            self.told_log_start = answer.log_start_offset
            news = True
        if answer.error_code or answer.diverging_epoch.epoch >= 0:
            self.told_high_watermark = -1
            news = True
        return news


@dataclass(slots=True, eq=False)
class _Session:
    id: int
    uses_ids: bool
    created_ms: int
    used_ms: int
    slots: dict[FetchKey, FetchSlot]
    epoch: int = 1


Answered = list[tuple[FetchSlot, PartitionData]]


@dataclass(slots=True)
class FetchPlan:
    """One fetch: the partitions to read, in order, and how its answer is cut down to what the session needs."""

    slots: list[FetchSlot]

    def finish(self, answers: list[PartitionData], now_ms: int) -> tuple[ErrorCode, int, Answered]:
        """(top-level error, session id, what the response carries); `answers` stand in the order of `slots`."""
        return ErrorCode.NONE, NO_SESSION, list(zip(self.slots, answers, strict=True))


@dataclass(slots=True)
class _FullFetch(FetchPlan):
    sessions: "FetchSessions"
    uses_ids: bool

    def finish(self, answers: list[PartitionData], now_ms: int) -> tuple[ErrorCode, int, Answered]:
        told = list(zip(self.slots, answers, strict=True))
        session_id = self.sessions.open(self.slots, uses_ids=self.uses_ids, now_ms=now_ms)
        if session_id != NO_SESSION:
            for slot, answer in told:
                slot.tell(answer)
        return ErrorCode.NONE, session_id, told


@dataclass(slots=True)
class _IncrementalFetch(FetchPlan):
    session: _Session
    next_epoch: int

    def finish(self, answers: list[PartitionData], now_ms: int) -> tuple[ErrorCode, int, Answered]:
        session = self.session
        # Two requests of one session in flight: the later one has moved the epoch on, and only it may be answered.
        if session.epoch != self.next_epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH, NO_SESSION, []
        told: Answered = []
        for slot, answer in zip(self.slots, answers, strict=True):
            if not slot.tell(answer):
                continue
            told.append((slot, answer))
            if answer.records:
                # What was served goes to the end of the line, so that small byte limits starve no partition.
                session.slots[slot.key] = session.slots.pop(slot.key)
        return ErrorCode.NONE, session.id, told


@dataclass(slots=True)
class FetchSessions:
    """The cache of all sessions of a broker (`max.incremental.fetch.session.cache.slots`)."""

    slots_max: int
    rng: random.Random
    _by_use: dict[int, _Session] = field(default_factory=dict)
    """Ordered by last use, oldest first."""
    partitions: int = 0
    """Held in all sessions."""

    def __len__(self) -> int:
        return len(self._by_use)

    def plan(
        self,
        asked: list[FetchSlot],
        forgotten: list[FetchKey],
        *,
        session_id: int,
        session_epoch: int,
        uses_ids: bool,
        now_ms: int,
    ) -> FetchPlan:
        """What this request reads. Raises Refusal with one of the three session errors (top-level errors)."""
        if session_epoch in {INITIAL_EPOCH, FINAL_EPOCH}:
            self._close(session_id)
            slots = list({slot.key: slot for slot in asked}.values()) if len(asked) > 1 else asked
            if session_epoch == FINAL_EPOCH:
                return FetchPlan(slots)
            return _FullFetch(slots, self, uses_ids)
        session = self._by_use.get(session_id)
        if session is None:
            raise Refusal(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != session_epoch:
            raise Refusal(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_ids != uses_ids:
            raise Refusal(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        return self._continue(session, asked, forgotten, now_ms)

    def open(self, slots: list[FetchSlot], *, uses_ids: bool, now_ms: int) -> int:
        """A new session over `slots`; NO_SESSION when there is nothing to hold or no room."""
        if not slots or not self._make_room(len(slots), now_ms):
            return NO_SESSION
        session_id = self.rng.randint(1, SESSION_ID_MAX)
        while session_id in self._by_use:
            session_id = self.rng.randint(1, SESSION_ID_MAX)
        held = {slot.key: slot for slot in slots}
        self._by_use[session_id] = _Session(session_id, uses_ids, now_ms, now_ms, held)
        self.partitions += len(held)
        return session_id

    def _close(self, session_id: int) -> None:
        session = self._by_use.pop(session_id, None)
        if session is not None:
            self.partitions -= len(session.slots)

    def _continue(self, session: _Session, asked: list[FetchSlot], forgotten: list[FetchKey], now_ms: int) -> FetchPlan:
        held = session.slots
        before = len(held)
        for slot in asked:
            known = held.get(slot.key)
            if known is None:
                held[slot.key] = slot
            else:
                known.ask_again(slot)
        for key in forgotten:
            held.pop(key, None)
        del self._by_use[session.id]
        self.partitions += len(held) - before
        # Also where the session ends here: a request before this one is not answered from it any more.
        session.epoch = 1 if session.epoch == EPOCH_MAX else session.epoch + 1
        if not held:
            return FetchPlan(asked)
        if len(held) > before and not self._may_hold(len(held)):
            self.partitions -= len(held)
            # It is gone, and the client begins again with a full fetch, which may find no room for a session.
            raise Refusal(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        self._by_use[session.id] = session
        session.used_ms = now_ms
        return _IncrementalFetch(list(held.values()), session, session.epoch)

    def _may_hold(self, size: int) -> bool:
        """A session that has grown to `size` partitions."""
        return size <= PARTITIONS_PER_SESSION_MAX and self.partitions <= PARTITIONS_MAX

    def _make_room(self, size: int, now_ms: int) -> bool:
        """Idle sessions go, the eldest first, or else one that is smaller; all that is needed, or none."""
        if size > PARTITIONS_PER_SESSION_MAX:
            return False
        closing: list[_Session] = []
        count, held = len(self._by_use), self.partitions + size
        for session in self._by_use.values():
            fits = count < self.slots_max and held <= PARTITIONS_MAX
            if fits or now_ms - session.used_ms <= EVICTION_MS:
                break
            closing.append(session)
            count, held = count - 1, held - len(session.slots)
        if count >= self.slots_max:
            victim = self._smallest_old(now_ms)
            if victim is None or size <= len(victim.slots):
                return False
            closing.append(victim)
            count, held = count - 1, held - len(victim.slots)
        if count >= self.slots_max or held > PARTITIONS_MAX:
            return False
        for session in closing:
            self._close(session.id)
        return True

    def _smallest_old(self, now_ms: int) -> _Session | None:
        """The session that a larger new one may replace: the smallest of those in use that have existed for long."""
        candidates = [
            session
            for session in self._by_use.values()
            if now_ms - session.created_ms > EVICTION_MS >= now_ms - session.used_ms
        ]
        return min(candidates, key=lambda held: (len(held.slots), held.id), default=None)
