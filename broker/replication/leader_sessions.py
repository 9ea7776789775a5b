"""The leader's half of replication: fetch sessions of followers, at a cost of what has changed and not of what is fetched.

On the wire these are Kafka's incremental fetch sessions (KIP-227). A consumer's session is looked through as a whole with every
request (`odradek.broker.fetch.sessions`); a follower has a partition of everybody's in its session and acknowledges with its next
fetch, so here each partition tells the sessions that fetch it what has happened to it (`ReplicaSlot`), and an answer is made of
the slots that have something to tell (*due*). A fetch that has nothing to carry parks; the append itself wakes it.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol
from uuid import UUID

from odradek.broker.fetch.read import divergence
from odradek.broker.fetch.sessions import EPOCH_MAX, FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, SESSION_ID_MAX
from odradek.broker.partition.partition import NO_EPOCH, Partition
from odradek.broker.partition.registry import Partitions
from odradek.broker.replication.throttle import ReplicaThrottles
from odradek.cluster.replication.leader import NEVER_MS
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.fetch import EpochEndOffset, FetchPartition, FetchRequest

if TYPE_CHECKING:
    from odradek.cluster.replication.leader import Replica

SESSIONS_PER_REPLICA_MAX: Final = 16
"""A Kafka broker has one for each of its fetcher threads."""
PATIENT_ERRORS: Final = (
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
)
"""The follower has newer metadata than this broker: they are told only when the fetch's time is up, so that a new leader
answers its followers the moment it becomes one."""


class Parked(Protocol):
    """A fetch that waits for something to tell."""

    def wake_soon(self) -> None:
        """Answer within a few rounds of the loop: what else is appended in them goes along."""

    def wake_later(self) -> None:
        """Answer in a few milliseconds, if nothing else comes before."""

    def expire(self) -> None:
        """Answer now with whatever there is."""


class ReplicaSlot:
    """One partition of a follower's session (`odradek.broker.partition.watermarks.FollowerWatch`)."""

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
        "session",
        "told_high_watermark",
        "told_log_start",
        "topic",
        "unsettled",
    )

    def __init__(self, session: "ReplicaSession", topic: str | UUID, index: int) -> None:
        self.session = session
        self.topic = topic
        self.index = index
        self.partition: Partition | None = None
        self.replica: Replica | None = None
        self.offset = self.max_bytes = 0
        self.log_start = -1
        self.leader_epoch = self.last_epoch = NO_EPOCH
        self.error = ErrorCode.NONE
        self.diverging: EpochEndOffset | None = None
        self.told_high_watermark = self.told_log_start = -1
        self.behind = False
        """There is something to fetch."""
        self.unsettled = True
        """It has to be found out again whether this broker leads the partition."""

    def ask(self, asked: FetchPartition) -> None:
        """What the follower wants now."""
        self.offset = asked.fetch_offset
        self.log_start = asked.log_start_offset
        self.max_bytes = asked.partition_max_bytes
        self.leader_epoch = asked.current_leader_epoch
        self.last_epoch = asked.last_fetched_epoch
        self.unsettled = True
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
        session.moved[self] = None
        if session.eager and session.parked is not None:
            session.parked.wake_soon()

    def left_isr(self) -> None:
        self.session.outside[self] = None

    def ended(self) -> None:
        session = self.session
        self.unsettled = True
        session.due[self] = None
        if session.parked is not None:
            session.parked.wake_soon()

    def replaced(self) -> None:
        self.session.replaced[self] = None

    def attach(self, partition: Partition, replica: "Replica") -> None:
        self.partition = partition
        self.replica = replica
        replica.activity = self.session
        before = partition.watermarks.followers.get(self.session.replica_id)
        partition.watermarks.followers[self.session.replica_id] = self
        if before is not None and before is not self:
            before.replaced()

    def detach(self) -> None:
        partition = self.partition
        if partition is not None and partition.watermarks.followers.get(self.session.replica_id) is self:
            del partition.watermarks.followers[self.session.replica_id]
        if self.replica is not None and self.replica.activity is self.session:
            self.replica.activity = None
        self.partition = self.replica = None

    @property
    def patient(self) -> bool:
        """It has an error that may pass by itself any moment."""
        return self.error in PATIENT_ERRORS

    @property
    def urgent(self) -> bool:
        """Must an answer leave now, because of this?"""
        if self.error:
            return not self.patient
        return self.behind or self.diverging is not None


@dataclass(slots=True, eq=False)
class ReplicaSession:
    """One fetch session of one follower. `epoch` is what its next request must carry."""

    id: int
    replica_id: int
    uses_ids: bool
    eager: bool
    """Whether a high watermark that moves alone is told at once, for those who read from followers (KIP-392)."""
    broker_epoch: int = -1
    epoch: int = 1
    last_fetch_ms: int = 0
    slots: dict[tuple[int | str, int], ReplicaSlot] = field(default_factory=dict)
    """By topic id, as a number since a UUID is hashed in Python, or topic name, and partition."""
    due: dict[ReplicaSlot, None] = field(default_factory=dict)
    moved: dict[ReplicaSlot, None] = field(default_factory=dict)
    """Slots that have at most watermarks to tell, which can wait a little (see `odradek.broker.replication.leader_fetch`)."""
    watermarks_told_ms: int = NEVER_MS
    deferred: dict[ReplicaSlot, None] = field(default_factory=dict)
    """Slots that have records which nobody waits for: due in a moment, or when anything else is told."""
    outside: dict[ReplicaSlot, None] = field(default_factory=dict)
    """Slots whose replica is not in sync: whether it may join is seen with every fetch, as its reasons may lie elsewhere."""
    replaced: dict[ReplicaSlot, None] = field(default_factory=dict)
    """Slots whose partition another session of the follower has named since. One that nobody goes on with does so, too, when its request arrives
    late, on a connection that was given up: whichever session is fetched from next has its partitions back."""
    served: list[ReplicaSlot] = field(default_factory=list)
    """Slots whose records were sent last: to be sent again, unless the follower goes on from there or drops them."""
    parked: Parked | None = None

    def hurry(self) -> None:
        """What could wait has waited long enough."""
        self.due.update(self.deferred)
        self.deferred.clear()

    def registered(self, broker_epoch: int) -> None:
        """Whose it is: a broker that lives on and registers anew does not name its partitions again."""
        self.broker_epoch = broker_epoch
        for slot in self.slots.values():
            if slot.replica is not None:
                slot.replica.broker_epoch = broker_epoch


class ReplicaSessions:
    """All of them. Calls belong on the event loop."""

    def __init__(self, partitions: Partitions, rng: random.Random, *, eager: bool, throttles: ReplicaThrottles) -> None:
        """`eager`: see `ReplicaSession`."""
        self.throttles = throttles
        self._partitions = partitions
        self._rng = rng
        self._eager = eager
        self._sessions: dict[int, ReplicaSession] = {}
        self._unresolved: dict[tuple[str | UUID, int], dict[ReplicaSlot, None]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[ReplicaSession]:
        return iter(list(self._sessions.values()))

    def elected(self, partition: Partition) -> None:
        """A leader epoch has begun: followers that knew of it earlier have been waiting."""
        for key in ((partition.topic_id, partition.index), (partition.topic, partition.index)):
            for slot in self._unresolved.pop(key, ()):
                slot.ended()

    # ---- requests ---------------------------------------------------------------------------------------------------

    def take(
        self, request: FetchRequest, replica_id: int, broker_epoch: int, now_ms: int, *, by_id: bool
    ) -> ReplicaSession:
        """The session of the request, which has told what it knows. Raises Refusal with one of the session errors."""
        session = self._session(request, replica_id, by_id=by_id)
        if session.broker_epoch != broker_epoch:
            session.registered(broker_epoch)
        session.last_fetch_ms = now_ms
        for unconfirmed in session.served:
            session.due[unconfirmed] = None
        session.served = []
        for taken in session.replaced:
            taken.unsettled = True
            session.due[taken] = None
        session.replaced = {}
        slots = session.slots
        for forgotten in request.forgotten_topics_data:
            for index in forgotten.partitions:
                self._forget(session, slots.pop((forgotten.topic_id.int if by_id else forgotten.topic, index), None))
        for topic in request.topics:
            key = topic.topic_id.int if by_id else topic.topic
            for asked in topic.partitions:
                slot = slots.get((key, asked.partition))
                if slot is None:
                    name = topic.topic_id if by_id else topic.topic
                    slot = slots[key, asked.partition] = ReplicaSlot(session, name, asked.partition)
                slot.ask(asked)
                self.settle(slot, now_ms)
                if not slot.error and not slot.urgent:
                    del session.due[slot]
                    session.moved[slot] = None
        if session.outside:
            self._take_in(session)
        return session

    def _take_in(self, session: ReplicaSession) -> None:
        for slot in list(session.outside):
            replica, partition = slot.replica, slot.partition
            if replica is None or partition is None or partition.leader_term is None or replica.in_sync:
                del session.outside[slot]
            else:
                partition.leader_term.propose_expansion(replica)

    def _session(self, request: FetchRequest, replica_id: int, *, by_id: bool) -> ReplicaSession:
        session_id, epoch = request.session_id, request.session_epoch
        if epoch in {INITIAL_EPOCH, FINAL_EPOCH}:
            self.close(session_id)
            made = ReplicaSession(NO_SESSION, replica_id, by_id, self._eager)
            if epoch == INITIAL_EPOCH:
                self._keep(made)
            return made
        session = self._sessions.get(session_id)
        if session is None or session.replica_id != replica_id:
            raise Refusal(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            raise Refusal(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_ids != by_id:
            raise Refusal(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        return session

    def _keep(self, session: ReplicaSession) -> None:
        own = [each.id for each in self._sessions.values() if each.replica_id == session.replica_id]
        if len(own) >= SESSIONS_PER_REPLICA_MAX:
            self.close(own[0])
        while session.id == NO_SESSION or session.id in self._sessions:
            session.id = self._rng.randint(1, SESSION_ID_MAX)
        self._sessions[session.id] = session

    def close(self, session_id: int) -> None:
        """End that session; unknown ones are ignored."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.end(session)

    def end(self, session: ReplicaSession) -> None:
        """Nothing is told to that session any more."""
        for slot in session.slots.values():
            self._forget(session, slot)
        if session.parked is not None:
            session.parked.expire()

    def _forget(self, session: ReplicaSession, slot: ReplicaSlot | None) -> None:
        if slot is None:
            return
        session.due.pop(slot, None)
        session.moved.pop(slot, None)
        session.deferred.pop(slot, None)
        session.outside.pop(slot, None)
        session.replaced.pop(slot, None)
        key = slot.topic, slot.index
        waiting = self._unresolved.get(key)
        if waiting is not None:
            waiting.pop(slot, None)
            if not waiting:
                del self._unresolved[key]
        slot.detach()

    def settle(self, slot: ReplicaSlot, now_ms: int) -> None:
        """Find out whether this broker leads what the slot asks for; if so, what it has counts from now on."""
        session = slot.session
        slot.unsettled = False
        slot.error = ErrorCode.NONE
        slot.diverging = None
        try:
            partition = self._find(slot)
            partition.check_leader(slot.leader_epoch)
            term, log = partition.leader_term, partition.log
            assert term is not None
            replica = term.follower(session.replica_id, session.broker_epoch, knows_epoch=slot.leader_epoch != NO_EPOCH)
            if slot.last_epoch != NO_EPOCH:
                slot.diverging = divergence(partition, slot.last_epoch, slot.offset)
            if slot.diverging is None and not log.log_start_offset <= slot.offset <= log.log_end_offset:
                raise Refusal(ErrorCode.OFFSET_OUT_OF_RANGE)
        except Refusal as refusal:
            slot.error = refusal.error
            if refusal.error in PATIENT_ERRORS:
                self._unresolved.setdefault((slot.topic, slot.index), {})[slot] = None
            return
        slot.attach(partition, replica)
        slot.behind = slot.offset < log.log_end_offset
        replica.log_start = slot.log_start
        if slot.diverging is None:
            term.fetched(replica, session.broker_epoch, slot.offset, now_ms)
        if not replica.in_sync:
            session.outside[slot] = None

    def _find(self, slot: ReplicaSlot) -> Partition:
        topic, known = slot.topic, slot.partition
        if known is not None and known.leads:
            return known
        if isinstance(topic, UUID):
            return self._partitions.find_by_id(topic, slot.index)
        return self._partitions.find(topic, slot.index)

    def has_news(self, session: ReplicaSession, now_ms: int) -> bool:
        """Is anything due that must not wait?"""
        found = False
        for slot in session.due:
            if slot.unsettled:
                self.settle(slot, now_ms)
            found = found or slot.urgent
        return found
