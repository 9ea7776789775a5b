"""The replicas of one partition as its leader sees them: who has what, who is in sync, what is committed. Pure.

One object for one leader epoch. It holds what followers have fetched, the in-sync replicas that the metadata log knows (the
*committed* ISR), and at most one wish to change them that is on its way to the controller. Whoever might be in sync (the
*maximal* ISR: committed ones plus those the wish adds) holds back the high watermark: the controller may elect any of them.

Sources: kafka-facts 8.1, 8.2; KIP-497 (AlterPartition), KIP-903 (broker epochs), KIP-966 (no commit below min.insync.replicas).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

UNKNOWN: Final = -1
NEVER_MS: Final = -(2**62)


class Settled(Enum):
    """What an answer to AlterPartition means for the wish it answers."""

    GRANTED = "the metadata log has it"
    TAKEN_BACK = "refused: the committed ISR holds, another wish may be formed at once"
    SUPERSEDED = "the metadata log says something newer, which is on its way here"
    AGAIN = "nothing is known: the same wish is sent once more"


OUTCOMES: Final = {
    ErrorCode.NONE: Settled.GRANTED,
    ErrorCode.OPERATION_NOT_ATTEMPTED: Settled.TAKEN_BACK,
    ErrorCode.INELIGIBLE_REPLICA: Settled.TAKEN_BACK,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Settled.SUPERSEDED,
    ErrorCode.UNKNOWN_TOPIC_ID: Settled.SUPERSEDED,
    ErrorCode.FENCED_LEADER_EPOCH: Settled.SUPERSEDED,
    ErrorCode.INVALID_UPDATE_VERSION: Settled.SUPERSEDED,
    ErrorCode.INVALID_REQUEST: Settled.SUPERSEDED,
    ErrorCode.NEW_LEADER_ELECTED: Settled.SUPERSEDED,
}
"""Every other error is AGAIN."""


@dataclass(frozen=True, slots=True)
class IsrWish:
    """The in-sync replicas that the leader wants, formed on the committed state of `partition_epoch`."""

    isr: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int


class Pulse(Protocol):
    """How a follower is heard of: it fetches many partitions at a time, and names only those of which there is news."""

    heard_ms: int
    """When it fetched last, this partition or others with it."""


@dataclass(slots=True, eq=False)
class Replica:
    """A follower. Times are monotonic ms; `caught_up_ms` is when it last had everything its leader had."""

    broker_id: int
    log_end: int = UNKNOWN
    log_start: int = UNKNOWN
    broker_epoch: int = UNKNOWN
    caught_up_ms: int = NEVER_MS
    fetched_ms: int = NEVER_MS
    leader_end: int = UNKNOWN
    """The leader's log end when this follower fetched last."""
    pulse: Pulse | None = None
    """None while it does not fetch this partition."""
    in_sync: bool = False
    maybe_in_sync: bool = False
    """In the maximal ISR."""
    registered_epoch: int | None = None
    """Its broker epoch in the metadata; None while it may not join: not registered, fenced or shutting down."""

    def fetched(self, offset: int, *, leader_end: int, now_ms: int) -> None:
        """It has everything below `offset`, and asks for more."""
        if offset >= leader_end:
            self.caught_up_ms = now_ms
        elif offset >= self.leader_end and self.fetched_ms > self.caught_up_ms:
            self.caught_up_ms = self.fetched_ms
        self.log_end = offset
        self.fetched_ms = now_ms
        self.leader_end = leader_end

    def left_behind(self) -> None:
        """Its leader has got more. It had everything until then, and kept fetching until it was heard of last."""
        if self.pulse is not None:
            self.caught_up_ms = max(self.caught_up_ms, self.pulse.heard_ms)

    @property
    def eligible(self) -> bool:
        """May it join the ISR, for all that the metadata says?"""
        return self.registered_epoch is not None and self.broker_epoch in {UNKNOWN, self.registered_epoch}


class LeaderReplicas:
    """One leadership. `own_end` is how far this broker's own copy counts: what it has, as safely as flush.messages asks."""

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
        "replicas",
        "wish",
    )

    def __init__(self, broker_id: int, leader_epoch: int, epoch_start: int, *, lag_max_ms: int) -> None:
        """`epoch_start` is the log end at the election; `lag_max_ms` is replica.lag.time.max.ms."""
        self.broker_id = broker_id
        self.leader_epoch = leader_epoch
        self.epoch_start = epoch_start
        self.own_end = 0
        self.min_isr = 1
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        self.partition_epoch = UNKNOWN
        self.wish: IsrWish | None = None
        self.followers: dict[int, Replica] = {}
        self.alone = True
        """No other replica exists: what is here is committed."""
        self._lag_max_ms = lag_max_ms
        self._others: tuple[Replica, ...] = ()

    # ---- what the metadata log says ---------------------------------------------------------------------------------

    def commit(self, replicas: tuple[int, ...], isr: tuple[int, ...], partition_epoch: int, now_ms: int) -> bool:
        """The metadata log has this state; False where a newer one is known here already.

        A wish that was formed on an older state is void. Replicas that are in sync at the election count as caught up then.
        """
        if partition_epoch < self.partition_epoch:
            return False
        first = self.partition_epoch == UNKNOWN
        if self.wish is not None and partition_epoch > self.wish.partition_epoch:
            self.wish = None
        self.replicas, self.isr, self.partition_epoch = replicas, isr, partition_epoch
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
        self._mark()
        return True

    def register(self, epoch_of: Callable[[int], int | None]) -> None:
        """`epoch_of(broker id)`: the broker epoch of a broker that may join an ISR, None for others."""
        for replica in self._others:
            replica.registered_epoch = epoch_of(replica.broker_id)

    def _mark(self) -> None:
        wished = () if self.wish is None else self.wish.isr
        for replica in self._others:
            replica.in_sync = replica.broker_id in self.isr
            replica.maybe_in_sync = replica.in_sync or replica.broker_id in wished

    # ---- what is committed ------------------------------------------------------------------------------------------

    def committed(self, log_end: int, now_ms: int) -> int:
        """The offset below which everything is on all replicas that might be in sync, -1 while too few are.

        One that has caught up and is about to join counts too, or the watermark would run away from it for ever.
        """
        if len(self.isr) < self.min_isr:
            return UNKNOWN
        lowest = self.own_end
        for replica in self._others:
            if replica.log_end < lowest and (replica.maybe_in_sync or self._about_to_join(replica, log_end, now_ms)):
                lowest = replica.log_end
        return lowest

    def _about_to_join(self, replica: Replica, log_end: int, now_ms: int) -> bool:
        return self._keeps_up(replica, log_end, now_ms) and replica.eligible

    def _keeps_up(self, replica: Replica, log_end: int, now_ms: int) -> bool:
        return replica.log_end == log_end or now_ms - replica.caught_up_ms <= self._lag_max_ms

    @property
    def maximal_size(self) -> int:
        """Members of the maximal ISR."""
        return len(self.isr) if self.wish is None else len({*self.isr, *self.wish.isr})

    # ---- who is in sync ---------------------------------------------------------------------------------------------

    def expansion(self, replica: Replica, high_watermark: int) -> IsrWish | None:
        """The wish to take `replica` in, now that it has fetched; None when it is in, may not join or is not there yet."""
        if replica.in_sync or self.wish is not None or replica.log_end < max(high_watermark, self.epoch_start):
            return None
        if not replica.eligible:
            return None
        return self._wish((*self.isr, replica.broker_id))

    def waiting(self, now_ms: int) -> list[Replica]:
        """Replicas that are not in sync and are heard of."""
        earliest_ms = now_ms - self._lag_max_ms
        return [
            each
            for each in self._others
            if not each.in_sync and each.pulse is not None and each.pulse.heard_ms >= earliest_ms
        ]

    def shrinkage(self, log_end: int, now_ms: int) -> IsrWish | None:
        """The wish to be rid of those who have lagged for too long."""
        if self.wish is not None:
            return None
        late = [each.broker_id for each in self._others if each.in_sync and not self._keeps_up(each, log_end, now_ms)]
        if not late:
            return None
        return self._wish(tuple(broker_id for broker_id in self.isr if broker_id not in late))

    def _wish(self, isr: tuple[int, ...]) -> IsrWish:
        self.wish = IsrWish(isr, self.leader_epoch, self.partition_epoch)
        self._mark()
        return self.wish

    def wanted_epochs(self, wish: IsrWish, own_broker_epoch: int) -> tuple[tuple[int, int], ...]:
        """(broker id, broker epoch) as AlterPartition names its members; -1 where none has been heard."""
        return tuple((each, own_broker_epoch if each == self.broker_id else self._epoch_of(each)) for each in wish.isr)

    def _epoch_of(self, broker_id: int) -> int:
        replica = self.followers.get(broker_id)
        return UNKNOWN if replica is None else replica.broker_epoch

    def answered(self, wish: IsrWish, error: ErrorCode) -> Settled:
        """What becomes of `wish`. The state that comes with GRANTED is told through `commit`.

        A superseded wish stays until the metadata arrives: it may have been carried out.
        """
        if self.wish is not wish:
            return Settled.SUPERSEDED
        settled = OUTCOMES.get(error, Settled.AGAIN)
        if settled in {Settled.TAKEN_BACK, Settled.GRANTED}:
            self.wish = None
            self._mark()
        return settled
