"""One partition on this broker: its log, whether this broker leads or follows it, and who waits for it.

Everything here is a plain call on the event loop, so a partition has one owner and no lock. What an append sets off runs
inside the append: followers and readers are woken, the watermarks move (when the commit gate and the replicas let them), and
whoever waited for that is told.
"""

from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any, Final, Protocol, TypeVar

import structlog

from odradek.broker.partition.leader_term import Leadership, Leading, Surroundings
from odradek.broker.partition.traffic import Traffic
from odradek.broker.partition.waiters import CommitCallback, CommitWait, FetchWatchers, OffsetWaiters
from odradek.cluster.replication.leader import IsrWish, Settled
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.schema import Buffer
from odradek.storage.config import LogConfig
from odradek.storage.log.log import AppendInfo, PartitionLog
from odradek.storage.log.reads import ColdRead, ReadResult
from odradek.storage.producers.entry import Origin

T = TypeVar("T")
LOG: Final = structlog.get_logger(__name__)

ACKS_ALL: Final = -1
NO_EPOCH: Final = -1
"""A request that does not know the leader epoch is not fenced by it."""


def say_offline(topic: str, index: int, error: OSError) -> None:
    LOG.error("partition offline", topic=topic, partition=index, error=str(error))


class Role(Enum):
    """What this broker is for the partition. The value is what requests for a leader are refused with."""

    LEADER = ErrorCode.NONE
    FOLLOWER = ErrorCode.NOT_LEADER_OR_FOLLOWER
    OFFLINE = ErrorCode.KAFKA_STORAGE_ERROR
    DELETED = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class FollowerWatch(Protocol):
    """One follower's fetch session, as the partition that it fetches from sees it (`odradek.broker.replication.leader_sessions`)."""

    def appended(self, *, unhurried: bool) -> None:
        """There is more to fetch; `unhurried`: it may go along with what comes next."""

    def moved(self) -> None:
        """A watermark or the log start has moved: to be told with the next answer."""

    def fell_out(self) -> None:
        """It is not in sync."""

    def ended(self) -> None:
        """This broker does not lead the partition any more, or leads it in another epoch."""

    def replaced(self) -> None:
        """Another session of the same follower is told instead."""


class Partition:
    """A hosted partition. `fetch_watchers`, `followers` and the two queues of waiters belong to it for life."""

    __slots__ = (
        "_subscribers",
        "_surroundings",
        "acknowledged",
        "acknowledged_offset",
        "committed",
        "fetch_watchers",
        "followers",
        "index",
        "leader_epoch",
        "leader_epoch_start",
        "leading",
        "log",
        "role",
        "topic",
        "topic_id",
        "traffic",
    )

    def __init__(self, log: PartitionLog, surroundings: Surroundings) -> None:
        self.topic = log.topic
        self.index = log.partition
        self.topic_id = log.topic_id
        self.log = log
        self.role = Role.FOLLOWER
        self.leader_epoch = NO_EPOCH
        self.leader_epoch_start = 0
        """Where this leadership began. Until the high watermark is there, nobody knows what was committed before."""
        self.leading: Leading | None = None
        """There while this broker leads."""
        self.followers: dict[int, FollowerWatch] = {}
        """By broker id: who is to be woken by an append."""
        self.acknowledged_offset = 0
        """Everything below is as safe on this broker as flush.messages asks."""
        self.committed = OffsetWaiters()
        """Produces with acks=all: they wait for the high watermark."""
        self.acknowledged = OffsetWaiters()
        """Produces with acks=1: they wait for this broker alone, which matters when it flushes first."""
        self.fetch_watchers = FetchWatchers()
        self.traffic = Traffic()
        self._surroundings = surroundings
        self._subscribers: dict[Callable[[int], None], None] = {}

    def __repr__(self) -> str:
        return f"<{self.topic}-{self.index} {self.role.name} epoch {self.leader_epoch}>"

    # ---- what it is -------------------------------------------------------------------------------------------------

    @property
    def online(self) -> bool:
        return self.role is Role.LEADER or self.role is Role.FOLLOWER

    @property
    def leads(self) -> bool:
        return self.role is Role.LEADER

    @property
    def follows(self) -> bool:
        return self.role is Role.FOLLOWER

    def check_leader(self, current_leader_epoch: int = NO_EPOCH) -> None:
        """Refuse unless this broker leads, in exactly the epoch that the request knows of (KIP-320)."""
        if current_leader_epoch not in {NO_EPOCH, self.leader_epoch} and self.online:
            if current_leader_epoch < self.leader_epoch:
                raise Refusal(ErrorCode.FENCED_LEADER_EPOCH)
            raise Refusal(ErrorCode.UNKNOWN_LEADER_EPOCH)
        if self.role is not Role.LEADER:
            raise Refusal(self.role.value)

    def check_readable(self, current_leader_epoch: int = NO_EPOCH) -> None:
        """As `check_leader`, but a follower will do."""
        if self.role is Role.FOLLOWER and current_leader_epoch in {NO_EPOCH, self.leader_epoch}:
            return
        self.check_leader(current_leader_epoch)

    @property
    def enough_in_sync(self) -> bool:
        """Are min.insync.replicas in sync, so that acks=all may be accepted?"""
        leading = self.leading
        return leading is not None and len(leading.replicas.isr) >= leading.replicas.min_isr

    @property
    def enough_remain(self) -> bool:
        """As `enough_in_sync`, counting those who are about to join: may what is committed be acknowledged?"""
        leading = self.leading
        return leading is not None and leading.replicas.maximal_size >= leading.replicas.min_isr

    def check_end_known(self) -> None:
        """Refuse while a new leader cannot tell how far its predecessor had committed (KIP-207)."""
        if self.log.high_watermark < self.leader_epoch_start:
            raise Refusal(ErrorCode.OFFSET_NOT_AVAILABLE)

    # ---- data -------------------------------------------------------------------------------------------------------

    def append(
        self,
        records: Buffer,
        *,
        origin: Origin,
        now_ms: int,
        guard: int = 0,
        transaction_version: int = -1,
        acks: int = ACKS_ALL,
        unhurried: bool = False,
    ) -> AppendInfo:
        """Append one batch as the leader; the watermarks are where the commit gate lets them be. `unhurried`: nobody waits.

        Raises Refusal before anything is written, with the log's own reasons, or KAFKA_STORAGE_ERROR, after which the
        partition is offline and nothing of the batch is acknowledged.
        """
        if self.role is not Role.LEADER:
            raise Refusal(self.role.value)
        leading, log = self.leading, self.log
        assert leading is not None
        if acks == ACKS_ALL and not self.enough_in_sync:
            raise Refusal(ErrorCode.NOT_ENOUGH_REPLICAS)
        try:
            info = log.append_as_leader(
                records,
                leader_epoch=self.leader_epoch,
                origin=origin,
                now_ms=now_ms,
                guard=guard,
                transaction_version=transaction_version,
            )
        except OSError as error:
            self.take_offline(error)
            raise Refusal(ErrorCode.KAFKA_STORAGE_ERROR) from error
        if not info.duplicate:
            self.traffic.bytes_in += len(records)
            self.traffic.records_in += info.last_offset - info.first_offset + 1
            self.fetch_watchers.appended(log.log_end_offset, len(records))
            for follower in self.followers.values():
                follower.appended(unhurried=unhurried)
            leading.flush.appended()
        return info

    def replicate(self, records: Buffer, *, leader_epoch: int, now_ms: int) -> bool:
        """Append what the leader of `leader_epoch` has sent; True when the log has grown.

        Raises Refusal before anything is written (CORRUPT_MESSAGE; OFFSET_OUT_OF_RANGE for what lies below the log end), or
        KAFKA_STORAGE_ERROR, after which the partition is offline.
        """
        assert self.role is Role.FOLLOWER, self
        try:
            info = self.log.append_as_follower(records, now_ms=now_ms, leader_epoch=leader_epoch)
        except OSError as error:
            self.take_offline(error)
            raise Refusal(ErrorCode.KAFKA_STORAGE_ERROR) from error
        if info is None:
            return False
        self.fetch_watchers.appended(self.log.log_end_offset, len(records))
        return True

    def follow_watermarks(self, high_watermark: int, log_start_offset: int) -> None:
        """The leader's high watermark and log start; what this log does not reach yet counts when it does."""
        self.advance_high_watermark(min(high_watermark, self.log.log_end_offset))
        if log_start_offset > self.log.log_start_offset:
            self.log.move_log_start(log_start_offset)

    @property
    def unflushed(self) -> int:
        """Records that are not on stable storage."""
        return self.log.log_end_offset - self.log.flushed_offset

    async def flush(self) -> None:
        """Bring everything to stable storage; a disk that refuses takes the partition offline."""
        try:
            await self.log.flush()
        except OSError as error:
            self.take_offline(error)

    def was_cut(self) -> None:
        """The log has been truncated: who was counting on what is gone reads again."""
        self.fetch_watchers.cut(self.log.log_end_offset)

    def read(self, offset: int, *, max_bytes: int, limit: int, min_one_batch: bool) -> ReadResult | ColdRead:
        """Whole batches from `offset` on, none at or beyond `limit`.

        Raises Refusal: OFFSET_OUT_OF_RANGE, or KAFKA_STORAGE_ERROR, after which the partition is offline.
        """
        try:
            return self.log.read(offset, max_bytes=max_bytes, limit=limit, min_one_batch=min_one_batch)
        except OSError as error:
            self.take_offline(error)
            raise Refusal(ErrorCode.KAFKA_STORAGE_ERROR) from error

    async def on_disk(self, reading: Awaitable[T]) -> T:
        """Await a read that may need the device. Raises as `read` does."""
        try:
            return await reading
        except OSError as error:
            self.take_offline(error)
            raise Refusal(ErrorCode.KAFKA_STORAGE_ERROR) from error

    def await_commit(self, wait: CommitWait[Any], end_offset: int, settle: CommitCallback) -> None:
        """Let `wait` wait until everything below `end_offset` is committed, or will not be by this leader."""
        if self.role is Role.LEADER:
            wait.expect(self.committed, end_offset, settle)
        else:
            settle(self.role.value)

    def await_acknowledged(self, wait: CommitWait[Any], end_offset: int, settle: CommitCallback) -> None:
        """As `await_commit`, for this broker alone (acks=1)."""
        if self.role is Role.LEADER:
            wait.expect(self.acknowledged, end_offset, settle)
        else:
            settle(self.role.value)

    def subscribe(self, callback: Callable[[int], None]) -> None:
        """Call `callback(high watermark)` whenever it has advanced."""
        self._subscribers[callback] = None

    def unsubscribe(self, callback: Callable[[int], None]) -> None:
        self._subscribers.pop(callback, None)

    # ---- roles ------------------------------------------------------------------------------------------------------

    def lead(self, leadership: Leadership) -> bool:
        """Lead, or go on leading, as `leadership` says; True when a new leader epoch begins here.

        Raises nothing: a log that cannot be written takes the partition offline.
        """
        if self.leading is not None and self.leader_epoch == leadership.leader_epoch:
            self.leading.update(leadership)
            self.leading.recount()
            return False
        if not self.online:
            return False
        self._close_leading()
        self._wake_followers()
        try:
            # At once, not with the first append: a consumer of this epoch may ask for its end right now.
            self.log.assign_epoch(leadership.leader_epoch)
        except OSError as error:
            self.take_offline(error)
            return False
        self.leader_epoch = leadership.leader_epoch
        self.leader_epoch_start = self.log.log_end_offset
        self.role = Role.LEADER
        # A new gate knows nothing of what the one before it was told and had not let through yet.
        self.acknowledged_offset = min(self.acknowledged_offset, self.log.high_watermark)
        self.leading = Leading(self, leadership, self._surroundings)
        # What the log holds from before is committed by the same rule as what comes.
        self.leading.flush.appended()
        return True

    def isr_answered(
        self, wish: IsrWish, error: ErrorCode, leader_epoch: int, partition_epoch: int, isr: tuple[int, ...]
    ) -> Settled:
        """What the controller says to a change of the ISR, which counts at once when it is granted."""
        leading = self.leading
        if leading is None or leading.replicas.leader_epoch != wish.leader_epoch:
            return Settled.SUPERSEDED
        replicas = leading.replicas
        settled = replicas.answered(wish, error)
        if settled is Settled.GRANTED and leader_epoch == replicas.leader_epoch:
            replicas.commit(replicas.replicas, isr, partition_epoch, self._surroundings.clock.monotonic_ms())
        leading.recount()
        return settled

    def follow(self, leader_epoch: int) -> None:
        """Another broker leads, or none."""
        if self.online and (self.leads or self.leader_epoch != leader_epoch):
            self.leader_epoch = leader_epoch
            self._leave(Role.FOLLOWER)

    def take_offline(self, error: OSError) -> None:
        """The disk has refused something: nothing of this partition is acknowledged or served until a restart.

        What the log holds is not known any more, so it is neither written nor read again. Said once.
        """
        if self.online:
            say_offline(self.topic, self.index, error)
            self._leave(Role.OFFLINE)
            self._surroundings.cluster.went_offline(self.topic, self.index, error)

    def delete(self) -> None:
        """The topic is deleted."""
        if self.role is not Role.DELETED:
            self._leave(Role.DELETED)

    def configure(self, config: LogConfig) -> None:
        """Properties of the topic have changed."""
        self.log.update_config(config)
        leading = self.leading
        if leading is not None:
            leading.configure()
            leading.flush.set_messages(config.flush_messages)
            if self.leading is leading:  # a flush that is refused ends it
                leading.recount()

    def _leave(self, role: Role) -> None:
        led = self.leads
        self.role = role
        self._close_leading()
        self.committed.fail(role.value)
        self.acknowledged.fail(role.value)
        self.fetch_watchers.wake_all()
        self._wake_followers()
        if led:
            self._surroundings.resigned(self)

    def _close_leading(self) -> None:
        leading, self.leading = self.leading, None
        if leading is not None:
            leading.close()

    def _wake_followers(self) -> None:
        for follower in list(self.followers.values()):
            follower.ended()

    # ---- watermarks -------------------------------------------------------------------------------------------------

    def advance_high_watermark(self, offset: int) -> None:
        """Everything below `offset` is committed; never back."""
        log = self.log
        if offset <= log.high_watermark or not self.online:
            return
        stable = log.last_stable_offset
        log.update_high_watermark(offset)
        high_watermark = log.high_watermark
        assert log.last_stable_offset <= high_watermark <= log.log_end_offset
        for follower in self.followers.values():
            follower.moved()
        self.fetch_watchers.advanced(
            high_watermark, log.last_stable_offset if log.last_stable_offset > stable else None
        )
        if high_watermark >= self.committed.next_offset:
            self.committed.advance(high_watermark)
        if self._subscribers:
            for callback in list(self._subscribers):
                callback(high_watermark)
