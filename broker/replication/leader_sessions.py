"""Fetch sessions of followers at the leader. A fetch costs time for the changed partitions, not for all partitions.

On the wire these are Kafka's incremental fetch sessions (KIP-227). A request of a consumer examines all partitions of
its session (`odradek.broker.fetch.sessions`). A follower's session can hold thousands of partitions, and each fetch
acknowledges the last one. So each partition notifies its `ReplicaSlot` in the session of an append or a watermark, and
a response contains the slots that are *due*. A fetch without urgent slots is parked; the next append wakes it.
"""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol
from uuid import UUID

from odradek.broker.fetch.read import divergence
from odradek.broker.fetch.sessions import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, SESSION_EPOCH_MAX, SESSION_ID_MAX
from odradek.broker.partition.partition import Partition
from odradek.broker.partition.registry import Partitions
from odradek.broker.replication.throttle import ReplicaThrottles
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.fetch import EpochEndOffset, FetchPartition, FetchRequest
from odradek.protocol.special_values import NO_LEADER_EPOCH
from odradek.runtime.clock import NEVER_MS

if TYPE_CHECKING:
    from odradek.cluster.replication.leader import Replica

SESSIONS_PER_REPLICA_MAX: Final = 16
"""Maximum fetch sessions per follower. A Kafka broker opens one per fetcher thread (num.replica.fetchers, default
1)."""
LOGS_CREATED_PER_REQUEST_MAX: Final = 4
"""Maximum logs of new partitions that one fetch creates. A log takes about 0.2 ms, on a slow disk more than 1 ms. The
partitions beyond this number are fetched as soon as the broker has created their logs in slices."""
SPARE_SLOTS_MAX: Final = 10_000
"""Maximum slots of one follower in all its sessions, beyond the partitions of this broker (about 1 KiB per slot). They
are for partitions that this broker does not know yet, and for the former session of a follower that opens a new one.
"""
TRANSIENT_ERRORS: Final = (
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
)
"""Errors that mean that the follower's metadata are newer than this broker's. They are sent only at the end of the
fetch's wait:

1. A follower applies a leader election before the new leader does, and fetches with the new leader epoch.
2. The new leader parks the fetch instead of returning UNKNOWN_LEADER_EPOCH.
3. It applies the election and wakes the fetch, and the follower loses no time to a retry."""


class Parked(Protocol):
    """The parked fetch of a session."""

    def wake_soon(self) -> None:
        """Respond within a few iterations of the event loop, together with what is appended until then."""

    def wake_later(self) -> None:
        """Respond in a few milliseconds, unless `wake_soon` is called before."""

    def expire(self) -> None:
        """Respond now, even if no slot is due."""


class ReplicaSlot:
    """One partition in a follower's session. It receives the partition's events (`FollowerWatch`)."""

    __slots__ = (
        "behind",
        "diverging",
        "error",
        "index",
        "last_epoch",
        "leader_epoch",
        "log_start",
        "max_bytes",
        "offset",
        "partition",
        "replica",
        "sent_high_watermark",
        "sent_log_start",
        "session",
        "topic",
        "unresolved",
    )

    def __init__(self, session: "ReplicaSession", topic: str | UUID, index: int) -> None:
        self.session = session
        self.topic = topic
        self.index = index
        self.partition: Partition | None = None
        self.replica: Replica | None = None
        self.offset = self.max_bytes = 0
        self.log_start = -1
        self.leader_epoch = self.last_epoch = NO_LEADER_EPOCH
        self.error = ErrorCode.NONE
        self.diverging: EpochEndOffset | None = None
        self.sent_high_watermark = self.sent_log_start = -1
        self.behind = False
        """True if the log has records at or after `offset`."""
        self.unresolved = True
        """True if the partition, its leader epoch and the follower's offset have to be checked before the next
        response."""

    def update(self, requested: FetchPartition) -> None:
        """Apply the parameters of a request for this partition."""
        self.offset = requested.fetch_offset
        self.log_start = requested.log_start_offset
        self.max_bytes = requested.partition_max_bytes
        self.leader_epoch = requested.current_leader_epoch
        self.last_epoch = requested.last_fetched_epoch
        self.unresolved = True
        self.session.due[self] = None

    def appended(self, *, deferred: bool) -> None:
        session = self.session
        if not self.behind:
            self.behind = True
            if self.replica is not None:
                self.replica.leader_advanced()
        if deferred:
            session.deferred[self] = None
            if session.parked is not None:
                session.parked.wake_later()
            return
        session.due[self] = None
        if session.parked is not None:
            session.parked.wake_soon()

    def watermark_advanced(self) -> None:
        session = self.session
        session.advanced[self] = None
        if session.eager and session.parked is not None:
            session.parked.wake_soon()

    def left_isr(self) -> None:
        self.session.out_of_sync[self] = None

    def ended(self) -> None:
        session = self.session
        self.unresolved = True
        session.due[self] = None
        if session.parked is not None:
            session.parked.wake_soon()

    def replaced(self) -> None:
        self.session.replaced[self] = None

    def attach(self, partition: Partition, replica: "Replica") -> None:
        """Receive the events of `partition` from now on, in place of an earlier session of the same follower."""
        self.partition = partition
        self.replica = replica
        replica.activity = self.session
        before = partition.watermarks.followers.get(self.session.replica_id)
        partition.watermarks.followers[self.session.replica_id] = self
        if before is not None and before is not self:
            before.replaced()

    def detach(self) -> None:
        """Stop receiving the events of the partition."""
        partition = self.partition
        if partition is not None and partition.watermarks.followers.get(self.session.replica_id) is self:
            del partition.watermarks.followers[self.session.replica_id]
        if self.replica is not None and self.replica.activity is self.session:
            self.replica.activity = None
        self.partition = self.replica = None

    @property
    def transient(self) -> bool:
        """True if the slot has an error that ends when this broker applies newer metadata."""
        return self.error in TRANSIENT_ERRORS

    @property
    def urgent(self) -> bool:
        """True if the response must not wait: the slot has records, a divergence or a permanent error."""
        if self.error:
            return not self.transient
        return self.behind or self.diverging is not None


@dataclass(slots=True, eq=False)
class ReplicaSession:
    """One fetch session of one follower. `epoch` is the session epoch that its next request must have."""

    id: int
    replica_id: int
    uses_ids: bool
    eager: bool
    """True if an advance of the high watermark alone ends the wait: consumers may fetch from followers (KIP-392)."""
    broker_epoch: int = -1
    epoch: int = 1
    last_fetch_ms: int = 0
    slots: dict[tuple[int | str, int], ReplicaSlot] = field(default_factory=dict)
    """Slots by topic and partition index. The topic is its name, or its id as an integer: hashing a UUID is slow."""
    due: dict[ReplicaSlot, None] = field(default_factory=dict)
    """Slots for the next response."""
    advanced: dict[ReplicaSlot, None] = field(default_factory=dict)
    """Slots of which at most the watermarks changed. Responses contain them once per WATERMARKS_EVERY_MS."""
    watermarks_sent_ms: int = NEVER_MS
    """Monotonic time of the last response with the slots of `advanced`."""
    deferred: dict[ReplicaSlot, None] = field(default_factory=dict)
    """Slots with deferred appends: due after DEFERRED_S, or with the next response if that comes first."""
    out_of_sync: dict[ReplicaSlot, None] = field(default_factory=dict)
    """Slots whose replica is not in the ISR. Each fetch checks if it may join: for example, its broker was unfenced
    meanwhile."""
    replaced: dict[ReplicaSlot, None] = field(default_factory=dict)
    """Slots that lost their partition to another session of the same follower.

    1. The follower gives up a connection and opens a new session on another connection.
    2. The last request of the old session, delayed in the network, arrives after that and takes over its partitions.
    3. The next fetch of the new session takes them back, because its slots are in `replaced`.
    """
    served: list[ReplicaSlot] = field(default_factory=list)
    """Slots in the last response with records or an error. They are due again, unless the next request updates or
    removes them."""
    parked: Parked | None = None
    incomplete: bool = False
    """True if the last response did not have all due slots: the next fetch is not parked."""

    def release_deferred(self) -> None:
        """Make the deferred slots due."""
        self.due.update(self.deferred)
        self.deferred.clear()

    def set_broker_epoch(self, broker_epoch: int) -> None:
        """Apply a new broker epoch of the follower to all slots: a broker that registers again keeps its session."""
        self.broker_epoch = broker_epoch
        for slot in self.slots.values():
            if slot.replica is not None:
                slot.replica.broker_epoch = broker_epoch


class ReplicaSessions:
    """The fetch sessions of all followers at this broker."""

    def __init__(self, partitions: Partitions, rng: random.Random, *, eager: bool, throttles: ReplicaThrottles) -> None:
        """`eager` is `ReplicaSession.eager` of all sessions."""
        self.throttles = throttles
        self._partitions = partitions
        self._rng = rng
        self._eager = eager
        self._sessions: dict[int, ReplicaSession] = {}
        self._awaiting_election: dict[tuple[str | UUID, int], dict[ReplicaSlot, None]] = {}
        """Slots with a transient error, by topic and partition index."""
        self._held: Counter[int] = Counter()
        """Number of slots in all sessions of each follower."""

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[ReplicaSession]:
        return iter(list(self._sessions.values()))

    def elected(self, partition: Partition) -> None:
        """Wake the fetches with a transient error for `partition`, because a leader epoch began on this broker."""
        for key in ((partition.topic_id, partition.index), (partition.topic, partition.index)):
            for slot in self._awaiting_election.pop(key, ()):
                slot.ended()

    # ---- requests ---------------------------------------------------------------------------------------------------

    def receive(
        self, request: FetchRequest, replica_id: int, broker_epoch: int, now_ms: int, *, by_id: bool
    ) -> ReplicaSession:
        """Apply a fetch of a follower, which acknowledges the records before its offsets, and return its session.

        Raise Refusal with FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH or FETCH_SESSION_TOPIC_ID_ERROR. A
        session that exceeds the slots of its follower ends with FETCH_SESSION_ID_NOT_FOUND.
        """
        session = self._session(request, replica_id, by_id=by_id)
        if session.broker_epoch != broker_epoch:
            session.set_broker_epoch(broker_epoch)
        session.last_fetch_ms = now_ms
        for served in session.served:
            session.due[served] = None
        session.served = []
        for replaced in session.replaced:
            replaced.unresolved = True
            session.due[replaced] = None
        session.replaced = {}
        slots = session.slots
        for forgotten in request.forgotten_topics_data:
            for index in forgotten.partitions:
                self._forget(session, slots.pop((forgotten.topic_id.int if by_id else forgotten.topic, index), None))
        capacity, logs_to_create = SPARE_SLOTS_MAX - self._held[replica_id], LOGS_CREATED_PER_REQUEST_MAX
        for topic in request.topics:
            key = topic.topic_id.int if by_id else topic.topic
            for requested in topic.partitions:
                slot = slots.get((key, requested.partition))
                if slot is None:
                    if capacity <= 0:
                        capacity = self._free_capacity(session)
                    capacity -= 1
                    self._held[replica_id] += 1
                    name = topic.topic_id if by_id else topic.topic
                    slot = slots[key, requested.partition] = ReplicaSlot(session, name, requested.partition)
                slot.update(requested)
                if slot.partition is None and self._partitions.awaits_log(slot.topic, slot.index):
                    logs_to_create -= 1
                self.resolve(slot, now_ms, may_open=logs_to_create >= 0)
                if not slot.error and not slot.urgent:
                    del session.due[slot]
                    session.advanced[slot] = None
        if session.out_of_sync:
            self._propose_expansions(session)
        return session

    def _propose_expansions(self, session: ReplicaSession) -> None:
        """Propose the ISR with each replica of the session that is out of sync and has caught up."""
        for slot in list(session.out_of_sync):
            replica, partition = slot.replica, slot.partition
            if replica is None or partition is None or partition.leader_term is None or replica.in_sync:
                del session.out_of_sync[slot]
            else:
                partition.leader_term.propose_expansion(replica)

    def _session(self, request: FetchRequest, replica_id: int, *, by_id: bool) -> ReplicaSession:
        session_id, epoch = request.session_id, request.session_epoch
        if epoch in {INITIAL_EPOCH, FINAL_EPOCH}:
            self.close(session_id)
            opened = ReplicaSession(NO_SESSION, replica_id, by_id, self._eager)
            if epoch == INITIAL_EPOCH:
                self._store(opened)
            return opened
        session = self._sessions.get(session_id)
        if session is None or session.replica_id != replica_id:
            raise Refusal(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            raise Refusal(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_ids != by_id:
            raise Refusal(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.epoch = 1 if epoch == SESSION_EPOCH_MAX else epoch + 1
        return session

    def _free_capacity(self, session: ReplicaSession) -> int:
        """Return the number of slots that `session` may add. End older sessions of its follower if that is necessary.

        End `session`, and raise Refusal(FETCH_SESSION_ID_NOT_FOUND), if it may add none.
        """
        replica_id = session.replica_id
        limit = SPARE_SLOTS_MAX + self._partitions.count
        for other in [each for each in self._sessions.values() if each.replica_id == replica_id]:
            if self._held[replica_id] >= limit and other is not session:
                self.close(other.id)
        if self._held[replica_id] < limit:
            return limit - self._held[replica_id]
        self._sessions.pop(session.id, None)
        self.end(session)
        raise Refusal(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)

    def _store(self, session: ReplicaSession) -> None:
        own = [other.id for other in self._sessions.values() if other.replica_id == session.replica_id]
        if len(own) >= SESSIONS_PER_REPLICA_MAX:
            self.close(own[0])
        while session.id == NO_SESSION or session.id in self._sessions:
            session.id = self._rng.randint(1, SESSION_ID_MAX)
        self._sessions[session.id] = session

    def close(self, session_id: int) -> None:
        """End session `session_id`. An unknown id is ignored."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.end(session)

    def end(self, session: ReplicaSession) -> None:
        """Detach all slots of `session`, and expire its parked fetch."""
        while session.slots:
            self._forget(session, session.slots.popitem()[1])
        if session.parked is not None:
            session.parked.expire()

    def _forget(self, session: ReplicaSession, slot: ReplicaSlot | None) -> None:
        if slot is None:
            return
        self._held[session.replica_id] -= 1
        if not self._held[session.replica_id]:
            del self._held[session.replica_id]
        session.due.pop(slot, None)
        session.advanced.pop(slot, None)
        session.deferred.pop(slot, None)
        session.out_of_sync.pop(slot, None)
        session.replaced.pop(slot, None)
        key = slot.topic, slot.index
        waiting = self._awaiting_election.get(key)
        if waiting is not None:
            waiting.pop(slot, None)
            if not waiting:
                del self._awaiting_election[key]
        slot.detach()

    def resolve(self, slot: ReplicaSlot, now_ms: int, *, may_open: bool = True) -> None:
        """Check leader epoch, divergence and offset of a slot, and store the error or apply the follower's progress.

        If not `may_open`, a partition whose log is not open gets a transient error, until this broker has opened it.
        If the checks pass, all records before the slot's offset count as replicated to the follower.
        """
        session = slot.session
        slot.unresolved = False
        slot.error = ErrorCode.NONE
        slot.diverging = None
        try:
            partition = self._find(slot, may_open=may_open)
            partition.check_leader(slot.leader_epoch)
            term, log = partition.leader_term, partition.log
            assert term is not None
            replica = term.follower(
                session.replica_id, session.broker_epoch, knows_epoch=slot.leader_epoch != NO_LEADER_EPOCH
            )
            if slot.last_epoch != NO_LEADER_EPOCH:
                slot.diverging = divergence(partition, slot.last_epoch, slot.offset)
            if slot.diverging is None and not log.log_start_offset <= slot.offset <= log.log_end_offset:
                raise Refusal(ErrorCode.OFFSET_OUT_OF_RANGE)
        except Refusal as refusal:
            slot.error = refusal.error
            if refusal.error in TRANSIENT_ERRORS:
                self._awaiting_election.setdefault((slot.topic, slot.index), {})[slot] = None
            return
        slot.attach(partition, replica)
        slot.behind = slot.offset < log.log_end_offset
        replica.log_start = slot.log_start
        if slot.diverging is None:
            term.fetched(replica, session.broker_epoch, slot.offset, now_ms)
        if not replica.in_sync:
            session.out_of_sync[slot] = None

    def _find(self, slot: ReplicaSlot, *, may_open: bool) -> Partition:
        topic, known = slot.topic, slot.partition
        if known is not None and known.leads:
            return known
        if not may_open and self._partitions.awaits_log(topic, slot.index):
            raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if isinstance(topic, UUID):
            return self._partitions.find_by_id(topic, slot.index)
        return self._partitions.find(topic, slot.index)

    def has_urgent(self, session: ReplicaSession, now_ms: int, resolve_max: int) -> bool:
        """Return True if a due slot is urgent. Resolve the unresolved due slots.

        If more than `resolve_max` are unresolved, resolve that number of them and return True.
        """
        urgent = False
        for slot in session.due:
            if slot.unresolved:
                if resolve_max <= 0:
                    return True
                resolve_max -= 1
                self.resolve(slot, now_ms)
            urgent = urgent or slot.urgent
        return urgent
