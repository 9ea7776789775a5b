"""The replicas of one partition as its leader sees them: log ends, ISR, and the high watermark that follows from them.

One object serves one leader epoch. It has the offsets that the followers have fetched, the ISR that the metadata log
has committed, and at most one pending ISR change. The *maximal ISR* is the committed ISR plus the replicas that the
pending change adds. The controller may elect any replica of it, so every replica of it holds back the high watermark.

Sources: Kafka's Partition and PartitionState; KIP-497 (AlterPartition), KIP-903 (broker epochs), KIP-966 (no commit
below min.insync.replicas).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

from odradek.frozen import frozen_dataclass
from odradek.invariants.partition import ISR_WITHIN_REPLICAS, ONE_PENDING_ISR_CHANGE
from odradek.protocol.errors import ErrorCode
from odradek.protocol.special_values import UNKNOWN_BROKER_EPOCH, UNKNOWN_OFFSET
from odradek.runtime.clock import NEVER_MS

if TYPE_CHECKING:
    from collections.abc import Callable

NO_PARTITION_EPOCH: Final = -1
"""Partition epoch before the first state of the metadata log is applied."""


class IsrChangeResult(Enum):
    """The meaning of an AlterPartition response for the pending ISR change."""

    COMMITTED = "the metadata log has the change"
    REJECTED = "the committed ISR is unchanged; another change may follow immediately"
    SUPERSEDED = "the metadata log has a later state, which has not arrived here yet"
    RETRY = "the result is unknown; the same change is sent again"


RESULTS: Final = {
    ErrorCode.NONE: IsrChangeResult.COMMITTED,
    ErrorCode.OPERATION_NOT_ATTEMPTED: IsrChangeResult.REJECTED,
    ErrorCode.INELIGIBLE_REPLICA: IsrChangeResult.REJECTED,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: IsrChangeResult.SUPERSEDED,
    ErrorCode.UNKNOWN_TOPIC_ID: IsrChangeResult.SUPERSEDED,
    ErrorCode.FENCED_LEADER_EPOCH: IsrChangeResult.SUPERSEDED,
    ErrorCode.INVALID_UPDATE_VERSION: IsrChangeResult.SUPERSEDED,
    ErrorCode.INVALID_REQUEST: IsrChangeResult.SUPERSEDED,
    ErrorCode.NEW_LEADER_ELECTED: IsrChangeResult.SUPERSEDED,
}
"""The result by error code. All other errors are RETRY."""


@frozen_dataclass(frozen=True, slots=True)
class PendingIsrChange:
    """An ISR that the leader requests, based on the committed state of `partition_epoch`."""

    isr: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int


class FetchActivity(Protocol):
    """The fetch session of a follower. It covers many partitions and names only those with new records."""

    last_fetch_ms: int
    """Monotonic time of the follower's last fetch, for this partition or for other ones."""


@dataclass(slots=True, eq=False)
class Replica:
    """A follower of the partition. Times are monotonic milliseconds."""

    broker_id: int
    log_end: int = UNKNOWN_OFFSET
    log_start: int = UNKNOWN_OFFSET
    broker_epoch: int = UNKNOWN_BROKER_EPOCH
    caught_up_ms: int = NEVER_MS
    """The last time at which the follower had all records of the leader."""
    fetched_ms: int = NEVER_MS
    leader_end: int = UNKNOWN_OFFSET
    """The leader's log end offset at the follower's last fetch."""
    activity: FetchActivity | None = None
    """None while the follower does not fetch this partition."""
    in_sync: bool = False
    maybe_in_sync: bool = False
    """The replica is in the maximal ISR."""
    registered_epoch: int | None = None
    """Broker epoch in the metadata. None while the follower is unregistered, fenced or shutting down."""
    removed_ms: int = NEVER_MS
    """The last time at which the metadata removed the replica from the ISR."""

    def fetched(self, offset: int, *, leader_end: int, now_ms: int) -> None:
        """Note that the follower has all records below `offset` and fetches from there."""
        if offset >= leader_end:
            self.caught_up_ms = now_ms
        elif offset >= self.leader_end and self.fetched_ms > self.caught_up_ms:
            self.caught_up_ms = self.fetched_ms
        self.log_end = offset
        self.fetched_ms = now_ms
        self.leader_end = leader_end

    def leader_advanced(self) -> None:
        """Note that the leader has appended records. Until then the follower was caught up, as of its last fetch."""
        if self.activity is not None:
            self.caught_up_ms = max(self.caught_up_ms, self.activity.last_fetch_ms)

    @property
    def eligible(self) -> bool:
        """True if the metadata allows the replica to join the ISR."""
        return self.registered_epoch is not None and self.broker_epoch in {UNKNOWN_BROKER_EPOCH, self.registered_epoch}


class LeaderReplicas:
    """The replicas in one leader term.

    `own_end`: the log end offset of this broker that is as durable as flush.messages requires.
    """

    __slots__ = (
        "_lag_max_ms",
        "_others",
        "alone",
        "broker_id",
        "epoch_start",
        "followers",
        "isr",
        "leader_epoch",
        "min_isr",
        "own_end",
        "partition_epoch",
        "pending_change",
        "replicas",
    )

    def __init__(self, broker_id: int, leader_epoch: int, epoch_start: int, *, lag_max_ms: int) -> None:
        """`epoch_start` is the log end offset at the election; `lag_max_ms` is replica.lag.time.max.ms."""
        self.broker_id = broker_id
        self.leader_epoch = leader_epoch
        self.epoch_start = epoch_start
        self.own_end = 0
        self.min_isr = 1
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        self.partition_epoch = NO_PARTITION_EPOCH
        self.pending_change: PendingIsrChange | None = None
        self.followers: dict[int, Replica] = {}
        self.alone = True
        """The partition has no other replica: all records of the leader are committed."""
        self._lag_max_ms = lag_max_ms
        self._others: tuple[Replica, ...] = ()

    # ---- metadata ---------------------------------------------------------------------------------------------------

    def commit(self, replicas: tuple[int, ...], isr: tuple[int, ...], partition_epoch: int, now_ms: int) -> bool:
        """Apply a state of the metadata log. Return False if a later state is already applied.

        A pending change that is based on an earlier state is void. The ISR at the election counts as caught up.
        """
        if partition_epoch < self.partition_epoch:
            return False
        first = self.partition_epoch == NO_PARTITION_EPOCH
        if self.pending_change is not None and partition_epoch > self.pending_change.partition_epoch:
            self.pending_change = None
        self.replicas = replicas
        self.isr = isr
        self.partition_epoch = partition_epoch
        known = self.followers
        self.followers = {
            broker_id: known.get(broker_id) or Replica(broker_id)
            for broker_id in replicas
            if broker_id != self.broker_id
        }
        self._others = tuple(self.followers.values())
        self.alone = not self._others
        for replica in self._others:
            if first and replica.broker_id in isr:
                replica.caught_up_ms = now_ms
            if replica.in_sync and replica.broker_id not in isr:
                replica.removed_ms = now_ms
        self._mark()
        return True

    def register(self, epoch_of: Callable[[int], int | None]) -> None:
        """Update the registered broker epochs of the followers.

        `epoch_of(broker id)` returns the epoch of a broker that may join an ISR, and None for other brokers.
        """
        for replica in self._others:
            replica.registered_epoch = epoch_of(replica.broker_id)

    def _mark(self) -> None:
        requested = () if self.pending_change is None else self.pending_change.isr
        for replica in self._others:
            replica.in_sync = replica.broker_id in self.isr
            replica.maybe_in_sync = replica.in_sync or replica.broker_id in requested

    def is_confirmed(self, now_ms: int, recent_ms: int) -> bool:
        """Return True if each follower in the ISR has fetched within `recent_ms`.

        1. A leader is isolated. The controller elects another replica of the ISR, and consumers read new records there.
        2. The network recovers. A consumer without a leader epoch in its fetches returns to the former leader, which
           has not received the metadata yet. The consumer's offset is above the log end of the former leader.
        3. OFFSET_OUT_OF_RANGE would make the consumer reset its offset. But the followers do not fetch here any more.
        """
        return all(
            replica.activity is not None and now_ms - replica.activity.last_fetch_ms <= recent_ms
            for replica in self._others
            if replica.in_sync
        )

    # ---- the high watermark -----------------------------------------------------------------------------------------

    def committed(self, log_end: int, now_ms: int) -> int:
        """Return the offset below which all replicas of the maximal ISR have all records.

        UNKNOWN_OFFSET: the ISR is too small.

        A replica that is caught up and may join the ISR counts, too. Otherwise the high watermark would move on before
        it can join.
        """
        if len(self.isr) < self.min_isr:
            return UNKNOWN_OFFSET
        lowest = self.own_end
        for replica in self._others:
            if replica.log_end < lowest and (replica.maybe_in_sync or self._about_to_join(replica, log_end, now_ms)):
                lowest = replica.log_end
        return lowest

    def without(self, offset: int) -> list[int]:
        """Return the members of the maximal ISR that lack records below `offset`."""
        lagging = [replica.broker_id for replica in self._others if replica.maybe_in_sync and replica.log_end < offset]
        return lagging if self.own_end >= offset else [self.broker_id, *lagging]

    def _about_to_join(self, replica: Replica, log_end: int, now_ms: int) -> bool:
        return self._keeps_up(replica, log_end, now_ms) and replica.eligible

    def _keeps_up(self, replica: Replica, log_end: int, now_ms: int) -> bool:
        return replica.log_end == log_end or now_ms - replica.caught_up_ms <= self._lag_max_ms

    @property
    def maximal_size(self) -> int:
        """Size of the maximal ISR."""
        return len(self.isr) if self.pending_change is None else len({*self.isr, *self.pending_change.isr})

    # ---- changes of the ISR -----------------------------------------------------------------------------------------

    def expansion(self, replica: Replica, high_watermark: int) -> PendingIsrChange | None:
        """Request to add `replica` after its fetch. None: it is in the ISR, may not join it, or lacks records.

        A fetch session can have a replica of an earlier term, or one that was removed from the partition.
        """
        if replica.in_sync or self.pending_change is not None or self.followers.get(replica.broker_id) is not replica:
            return None
        if replica.log_end < max(high_watermark, self.epoch_start) or not replica.eligible:
            return None
        return self._request((*self.isr, replica.broker_id))

    def out_of_sync(self, now_ms: int) -> list[Replica]:
        """Return the replicas that are not in sync but have fetched within replica.lag.time.max.ms.

        They have fetched since they were removed from the ISR. The controller removes a failed broker from the ISRs of
        many partitions in slices, before it fences the broker.
        """
        earliest_ms = now_ms - self._lag_max_ms
        return [
            each
            for each in self._others
            if not each.in_sync
            and each.activity is not None
            and each.activity.last_fetch_ms >= earliest_ms
            and each.activity.last_fetch_ms > each.removed_ms
        ]

    def shrinkage(self, log_end: int, now_ms: int) -> PendingIsrChange | None:
        """Request to remove the replicas that lag for longer than replica.lag.time.max.ms. None: there are none."""
        if self.pending_change is not None:
            return None
        late = [each.broker_id for each in self._others if each.in_sync and not self._keeps_up(each, log_end, now_ms)]
        if not late:
            return None
        return self._request(tuple(broker_id for broker_id in self.isr if broker_id not in late))

    def _request(self, isr: tuple[int, ...]) -> PendingIsrChange:
        if self.pending_change is not None:
            raise ONE_PENDING_ISR_CHANGE.violated(broker_id=self.broker_id, pending=self.pending_change, isr=isr)
        if self.broker_id not in isr or not set(isr) <= set(self.replicas):
            raise ISR_WITHIN_REPLICAS.violated(broker_id=self.broker_id, isr=isr, replicas=self.replicas)
        self.pending_change = PendingIsrChange(isr, self.leader_epoch, self.partition_epoch)
        self._mark()
        return self.pending_change

    def isr_with_epochs(self, change: PendingIsrChange, own_broker_epoch: int) -> tuple[tuple[int, int], ...]:
        """Return (broker id, broker epoch) of the requested ISR, for AlterPartition.

        The epoch is -1 if it is unknown.
        """
        return tuple(
            (each, own_broker_epoch if each == self.broker_id else self._epoch_of(each)) for each in change.isr
        )

    def _epoch_of(self, broker_id: int) -> int:
        replica = self.followers.get(broker_id)
        return UNKNOWN_BROKER_EPOCH if replica is None else replica.broker_epoch

    def complete(self, change: PendingIsrChange, error: ErrorCode) -> IsrChangeResult:
        """Apply the controller's response to `change`. `commit` applies the state that comes with COMMITTED.

        A superseded change stays pending until the metadata arrives: the controller may have carried it out.
        """
        if self.pending_change is not change:
            return IsrChangeResult.SUPERSEDED
        result = RESULTS.get(error, IsrChangeResult.RETRY)
        if result in {IsrChangeResult.REJECTED, IsrChangeResult.COMMITTED}:
            self.pending_change = None
            self._mark()
        return result
