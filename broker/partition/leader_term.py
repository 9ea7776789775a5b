"""The state of one partition while this broker leads it: from an append to its acknowledgment and its commit.

A record is committed when two conditions hold:

1. It is flushed on this broker as flush.messages requires (`odradek.broker.partition.flush.GroupFlush`).
2. All replicas that count for the high watermark have it (`odradek.cluster.replication.leader.LeaderReplicas`). If the
   leader is the only replica, condition 1 suffices.
"""

from collections.abc import Callable
from typing import Final

from odradek.broker.partition.flush import GroupFlush
from odradek.broker.partition.waiters import OffsetWaiters
from odradek.broker.partition.watermarks import Watermarks
from odradek.cluster.replication.leader import LeaderReplicas, PendingIsrChange, Replica
from odradek.frozen import frozen_dataclass
from odradek.invariants.invariant import CHECKS
from odradek.invariants.partition import HIGH_WATERMARK_REPLICATED
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.special_values import UNKNOWN_BROKER_EPOCH
from odradek.runtime.clock import Clock
from odradek.runtime.tasks import Spawn

TO_HIGH_WATERMARK: Final = -1
"""The offset in a DeleteRecords request that means the high watermark (DeleteRecordsRequest.HIGH_WATERMARK)."""


@frozen_dataclass(frozen=True, slots=True)
class LeaderAndIsr:
    """The state of a partition in the metadata log while this broker leads it."""

    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@frozen_dataclass(frozen=True, slots=True)
class LeaderContext:
    """The parts of the broker that all leader terms use."""

    node_id: int
    clock: Clock
    spawn: Spawn
    lag_max_ms: int
    """replica.lag.time.max.ms"""
    confirmed_ms: int
    """Maximum milliseconds since the last fetch of each follower for which this broker is sure that it leads."""
    broker_epoch_of: Callable[[int], int | None]
    """Return the epoch of a broker that may join an ISR: registered, not fenced, not shutting down. Return None for
    other brokers."""


class LeaderTerm:
    """State of one leader epoch of one partition on this broker. `close` ends it."""

    __slots__ = ("_change_isr", "_context", "_log", "_watermarks", "deletions", "flush", "replicas")

    def __init__(
        self,
        watermarks: Watermarks,
        state: LeaderAndIsr,
        context: LeaderContext,
        *,
        change_isr: Callable[[PendingIsrChange], None],
        offline: Callable[[OSError], None],
    ) -> None:
        """Begin the term in `state`.

        `change_isr` sends an ISR change to the controller. `offline` takes the partition offline after a failed flush.
        """
        log = watermarks.log
        self._watermarks = watermarks
        self._log = log
        self._context = context
        self._change_isr = change_isr
        self.replicas = LeaderReplicas(
            context.node_id, state.leader_epoch, log.log_end_offset, lag_max_ms=context.lag_max_ms
        )
        self.deletions = OffsetWaiters()
        """DeleteRecords requests that wait for the low watermark (KIP-107)."""
        self.flush = GroupFlush(
            log,
            name=f"{log.topic}-{log.partition}",
            messages=log.config.flush_messages,
            spawn=context.spawn,
            acknowledgeable=self._acknowledge,
            failed=offline,
        )
        self.update(state)

    def update(self, state: LeaderAndIsr) -> None:
        """Apply a new state of the same leader epoch."""
        replicas = self.replicas
        replicas.commit(state.replicas, state.isr, state.partition_epoch, self._context.clock.monotonic_ms())
        self.configure()
        self.register()
        for broker_id, follower in self._watermarks.followers.items():
            if broker_id in replicas.followers and not replicas.followers[broker_id].in_sync:
                follower.left_isr()

    def configure(self) -> None:
        """Apply min.insync.replicas of the topic, at most the number of replicas."""
        replicas = self.replicas
        replicas.min_isr = min(self._log.config.min_insync_replicas, len(replicas.replicas))

    def register(self) -> None:
        """Apply the broker registrations of the metadata image.

        1. A follower catches up while its broker is fenced, so it may not join the ISR.
        2. The broker is unfenced, and its next fetch waits at the leader because there are no new records.
        3. So the leader proposes the ISR with that follower here, without waiting for the fetch.
        """
        replicas = self.replicas
        replicas.register(self._context.broker_epoch_of)
        for replica in replicas.out_of_sync(self._context.clock.monotonic_ms()):
            self.propose_expansion(replica)
        self._advance_deletions()

    @property
    def is_confirmed(self) -> bool:
        """True if each follower in the ISR has fetched recently: the controller has elected no other leader before."""
        context = self._context
        return self.replicas.is_confirmed(context.clock.monotonic_ms(), context.confirmed_ms)

    def close(self, error: ErrorCode) -> None:
        """End the term; fail the waiting DeleteRecords requests with `error`."""
        self.flush.close()
        self.deletions.fail(error)

    # ---- log start --------------------------------------------------------------------------------------------------

    def delete_records(self, offset: int) -> int:
        """Move the log start to `offset` (TO_HIGH_WATERMARK: to the high watermark) and return it.

        Raise Refusal(POLICY_VIOLATION) if the topic's cleanup.policy forbids it, Refusal(OFFSET_OUT_OF_RANGE) if
        `offset` lies beyond the high watermark.
        """
        log = self._log
        if log.config.compacted and not log.config.deletes:
            raise Refusal(ErrorCode.POLICY_VIOLATION)
        start = log.high_watermark if offset == TO_HIGH_WATERMARK else offset
        if not 0 <= start <= log.high_watermark:
            raise Refusal(ErrorCode.OFFSET_OUT_OF_RANGE)
        if start > log.log_start_offset:
            log.advance_log_start(start)
            self.log_start_moved()
        return start

    def log_start_moved(self) -> None:
        """Report the new log start offset to the followers without an append: DeleteRecords waits for them."""
        for follower in self._watermarks.followers.values():
            follower.watermark_advanced()

    @property
    def low_watermark(self) -> int:
        """Return the lowest log start offset of all active replicas (KIP-107); -1 if that of one replica is unknown."""
        followers = self.replicas.followers.values()
        known = [replica.log_start for replica in followers if replica.registered_epoch is not None]
        return min((self._log.log_start_offset, *known))

    def _advance_deletions(self) -> None:
        if self.deletions:
            self.deletions.advance(self.low_watermark)

    # ---- this broker's log ------------------------------------------------------------------------------------------

    def _acknowledge(self, offset: int) -> None:
        # The offset can be lower than one acknowledged before, if flush.messages was lowered since.
        if self._watermarks.acknowledge(offset):
            self.advance_own_end(offset)

    def advance_own_end(self, offset: int) -> None:
        """Count all offsets below `offset` as held by this broker's replica."""
        replicas = self.replicas
        replicas.own_end = offset
        if replicas.alone:
            self._watermarks.advance_high_watermark(offset)
        else:
            self.update_high_watermark()

    def update_high_watermark(self) -> None:
        """Advance the high watermark as far as the replicas, the ISR and min.insync.replicas permit."""
        log = self._log
        committed = self.replicas.committed(log.log_end_offset, self._context.clock.monotonic_ms())
        if committed > log.high_watermark:
            if CHECKS.expensive and (missing := self.replicas.without(committed)):
                raise HIGH_WATERMARK_REPLICATED.violated(
                    log=log.directory, high_watermark=committed, own_end=self.replicas.own_end, missing_on=missing
                )
            self._watermarks.advance_high_watermark(committed)

    # ---- followers --------------------------------------------------------------------------------------------------

    def follower(self, broker_id: int, broker_epoch: int, *, knows_epoch: bool) -> Replica:
        """Return the replica on broker `broker_id`, which fetches with `broker_epoch`.

        Raise Refusal(UNKNOWN_LEADER_EPOCH) if that broker has no replica and its fetch has a leader epoch
        (`knows_epoch`): its metadata may be newer. Raise Refusal(NOT_LEADER_OR_FOLLOWER) if it has no replica and its
        fetch has no leader epoch, or if it registered again since `broker_epoch` (KIP-903).
        """
        replica = self.replicas.followers.get(broker_id)
        if replica is None:
            raise Refusal(ErrorCode.UNKNOWN_LEADER_EPOCH if knows_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER)
        registered = replica.registered_epoch
        if broker_epoch != UNKNOWN_BROKER_EPOCH and registered is not None and broker_epoch < registered:
            raise Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return replica

    def fetched(self, replica: Replica, broker_epoch: int, offset: int, now_ms: int) -> None:
        """Record that `replica` has all offsets below `offset`."""
        replica.broker_epoch = broker_epoch
        replica.fetched(offset, leader_end=self._log.log_end_offset, now_ms=now_ms)
        self.update_high_watermark()
        self._advance_deletions()
        if not replica.in_sync:
            self.propose_expansion(replica)

    def propose_expansion(self, replica: Replica) -> None:
        """Propose an ISR with `replica` to the controller, if `replica` has caught up."""
        self._propose(self.replicas.expansion(replica, self._log.high_watermark))

    def check_replica_lag(self, now_ms: int) -> None:
        """Propose an ISR without the replicas that did not catch up for replica.lag.time.max.ms."""
        self._propose(self.replicas.shrinkage(self._log.log_end_offset, now_ms))

    def _propose(self, change: PendingIsrChange | None) -> None:
        if change is not None:
            self._change_isr(change)
