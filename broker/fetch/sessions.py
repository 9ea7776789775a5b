"""Incremental fetch sessions of consumers (KIP-227, Fetch version 7 and above): a core without clock and I/O.

The sessions of followers are in `odradek.broker.replication.leader_sessions`.

======================  ==============================================================================================
request (id, epoch)     meaning
======================  ==============================================================================================
(0, 0)                  A full fetch. It opens a session if the cache has capacity, or can evict other sessions.
(id, 0)                 Close session `id`, then continue as for (0, 0).
(any, -1)               A full fetch without a session. Close session `id` if it exists.
(id, n), n > 0          The request names the partitions whose parameters changed since the last request. The response
                        has the partitions that changed since the last response.
======================  ==============================================================================================

The response has session id 0 if no session exists after it. The epochs of the requests of a session are consecutive; 1
follows 2147483647.
"""

import random
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.fetch import PartitionData

SESSIONS_MIN_VERSION: Final = 7
"""First version of Fetch with fetch sessions (KIP-227)."""
TOPIC_ID_MIN_VERSION: Final = 13
"""First version of Fetch with topic ids (KIP-516)."""
NO_SESSION: Final = 0
"""Session id of a fetch without a session (FetchMetadata.INVALID_SESSION_ID)."""
INITIAL_EPOCH: Final = 0
"""Session epoch of a full fetch that opens a session (FetchMetadata.INITIAL_EPOCH)."""
FINAL_EPOCH: Final = -1
"""Session epoch of a full fetch without a session, which also closes the session of the request
(FetchMetadata.FINAL_EPOCH)."""
SESSION_EPOCH_MAX: Final = 2**31 - 1
"""Maximum session epoch: a signed 32-bit integer on the wire. The next epoch is 1."""
SESSION_ID_MAX: Final = 2**31 - 1
"""Maximum session id: a signed 32-bit integer on the wire."""
EVICTION_MS: Final = 120_000
"""Milliseconds without a request after which any new session may evict a session. A larger session may evict it this
long after its creation (KafkaBroker.MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS)."""

PARTITIONS_PER_SESSION_MAX: Final = 10_000
"""Maximum partitions per fetch session (about 4 MiB). A consumer with more partitions sends full fetches without a
session."""
PARTITIONS_MAX: Final = 200_000
"""Maximum partitions in all fetch sessions of a broker together, about 0.4 KiB each. Kafka bounds only the number of
sessions."""

FetchKey = tuple[str | UUID, int]
"""Topic and partition index. The topic is a name up to version 12 of Fetch, and a topic id from version 13 on
(KIP-516)."""


@dataclass(slots=True)
class FetchSlot:
    """One partition of a fetch: the reader's parameters, and in a session the watermarks that it received last."""

    topic: str | UUID
    index: int
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    sent_high_watermark: int = -1
    sent_log_start: int = -1

    @property
    def key(self) -> FetchKey:
        return self.topic, self.index

    def update(self, requested: "FetchSlot") -> None:
        """Apply the parameters of a later request of the session for this partition."""
        self.fetch_offset = requested.fetch_offset
        self.max_bytes = requested.max_bytes
        self.current_leader_epoch = requested.current_leader_epoch
        self.last_fetched_epoch = requested.last_fetched_epoch

    def record_sent(self, data: PartitionData) -> bool:
        """Record that a response has `data`. Return True if an incremental response must contain it.

        An advance of the last stable offset alone is no reason to send it (CachedPartition.maybeUpdateResponseData).
        After an error or a divergence, the next response contains the partition in any case, because the sent high
        watermark is reset.
        """
        changed = bool(data.records) or data.preferred_read_replica >= 0
        if self.sent_high_watermark != data.high_watermark:
            self.sent_high_watermark = data.high_watermark
            changed = True
        if self.sent_log_start != data.log_start_offset:
            self.sent_log_start = data.log_start_offset
            changed = True
        if data.error_code or data.diverging_epoch.epoch >= 0:
            self.sent_high_watermark = -1
            changed = True
        return changed


@dataclass(slots=True, eq=False)
class _Session:
    """One fetch session of a consumer. `epoch` is the epoch that its next request must have."""

    id: int
    uses_ids: bool
    created_ms: int
    used_ms: int
    slots: dict[FetchKey, FetchSlot]
    epoch: int = 1


SentPartitions = list[tuple[FetchSlot, PartitionData]]
"""The partitions of a response, in order."""


@dataclass(slots=True)
class FetchPlan:
    """The partitions of one fetch, in reading order. This class is a fetch without a session."""

    slots: list[FetchSlot]

    def finish(self, read: list[PartitionData], now_ms: int) -> tuple[ErrorCode, int, SentPartitions]:
        """Return top-level error, session id and partitions of the response; `read` is in the order of `slots`."""
        return ErrorCode.NONE, NO_SESSION, list(zip(self.slots, read, strict=True))


@dataclass(slots=True)
class _FullFetch(FetchPlan):
    """A full fetch that opens a session."""

    sessions: "FetchSessions"
    uses_ids: bool

    def finish(self, read: list[PartitionData], now_ms: int) -> tuple[ErrorCode, int, SentPartitions]:
        sent = list(zip(self.slots, read, strict=True))
        session_id = self.sessions.open(self.slots, uses_ids=self.uses_ids, now_ms=now_ms)
        if session_id != NO_SESSION:
            for slot, data in sent:
                slot.record_sent(data)
        return ErrorCode.NONE, session_id, sent


@dataclass(slots=True)
class _IncrementalFetch(FetchPlan):
    """A fetch of an existing session. `next_epoch` is the epoch of the session's next request."""

    session: _Session
    next_epoch: int

    def finish(self, read: list[PartitionData], now_ms: int) -> tuple[ErrorCode, int, SentPartitions]:
        session = self.session
        # 1. The client sends a request, gives up waiting, and sends the next request of the session on a new
        #    connection.
        # 2. The second request advances the epoch while the first one still waits for bytes.
        # 3. Only the second response may record partitions as sent: the client ignores the first.
        if session.epoch != self.next_epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH, NO_SESSION, []
        sent: SentPartitions = []
        for slot, data in zip(self.slots, read, strict=True):
            if not slot.record_sent(data):
                continue
            sent.append((slot, data))
            if data.records:
                # A partition with records moves to the end of the order, so that small byte limits starve no partition.
                session.slots[slot.key] = session.slots.pop(slot.key)
        return ErrorCode.NONE, session.id, sent


@dataclass(slots=True)
class FetchSessions:
    """Cache of the fetch sessions of a broker, at most `max.incremental.fetch.session.cache.slots` of them."""

    slots_max: int
    rng: random.Random
    _by_use: dict[int, _Session] = field(default_factory=dict)
    """Sessions by id, ordered by last use, oldest first."""
    partitions: int = 0
    """Number of partitions in all sessions together."""

    def __len__(self) -> int:
        return len(self._by_use)

    def plan(
        self,
        requested: list[FetchSlot],
        forgotten: list[FetchKey],
        *,
        session_id: int,
        session_epoch: int,
        uses_ids: bool,
        now_ms: int,
    ) -> FetchPlan:
        """Return the plan of one request: `requested` are its partitions, `forgotten` leave the session.

        Raise Refusal with a top-level error of sessions: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH or
        FETCH_SESSION_TOPIC_ID_ERROR.
        """
        if session_epoch in {INITIAL_EPOCH, FINAL_EPOCH}:
            self._close(session_id)
            slots = list({slot.key: slot for slot in requested}.values()) if len(requested) > 1 else requested
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
        return self._continue(session, requested, forgotten, now_ms)

    def held(self, session_id: int) -> Collection[FetchKey]:
        """Return the partitions of a session; an empty collection if it does not exist."""
        session = self._by_use.get(session_id)
        return () if session is None else session.slots

    def open(self, slots: list[FetchSlot], *, uses_ids: bool, now_ms: int) -> int:
        """Open a session with `slots` and return its id; NO_SESSION if there are no partitions, or no capacity."""
        if not slots or not self._evict_for(len(slots), now_ms):
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

    def _continue(
        self, session: _Session, requested: list[FetchSlot], forgotten: list[FetchKey], now_ms: int
    ) -> FetchPlan:
        held = session.slots
        before = len(held)
        for slot in requested:
            known = held.get(slot.key)
            if known is None:
                held[slot.key] = slot
            else:
                known.update(slot)
        for key in forgotten:
            held.pop(key, None)
        del self._by_use[session.id]
        self.partitions += len(held) - before
        # The epoch advances even if the session ends below: an earlier request in flight must not use the session any
        # more.
        session.epoch = 1 if session.epoch == SESSION_EPOCH_MAX else session.epoch + 1
        if not held:
            return FetchPlan(requested)
        if len(held) > before and not self._may_hold(len(held)):
            self.partitions -= len(held)
            # The session is closed. The client continues with a full fetch, with or without a new session.
            raise Refusal(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        self._by_use[session.id] = session
        session.used_ms = now_ms
        return _IncrementalFetch(list(held.values()), session, session.epoch)

    def _may_hold(self, size: int) -> bool:
        """Return True if a session may grow to `size` partitions, which `partitions` counts already."""
        return size <= PARTITIONS_PER_SESSION_MAX and self.partitions <= PARTITIONS_MAX

    def _evict_for(self, size: int, now_ms: int) -> bool:
        """Evict sessions until `size` more partitions fit; return False, and evict none, if that is not possible.

        Idle sessions are evicted first, in order of their last use, then one smaller session that has existed for
        EVICTION_MS.
        """
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
        """Return the session that a larger session may evict: the smallest active one older than EVICTION_MS."""
        candidates = [
            session
            for session in self._by_use.values()
            if now_ms - session.created_ms > EVICTION_MS >= now_ms - session.used_ms
        ]
        return min(candidates, key=lambda held: (len(held.slots), held.id), default=None)
