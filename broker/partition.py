"""One partition on this broker: its log, whether this broker leads it, and who waits for it.

Everything here is a plain call on the event loop, so a partition has one owner and no lock. What an append sets off runs
inside the append: the watermarks move (when the commit gate lets them), and whoever waited for that is told.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeVar

import structlog

from broker.commit_gate import CommitGate, CommitGateFactory, GroupFlush, Spawn
from broker.waiters import CommitCallback, CommitWait, FetchWatchers, OffsetWaiters
from protocol.errors import ErrorCode, Refusal
from protocol.schema import Buffer
from storage.config import LogConfig
from storage.log import AppendInfo, PartitionLog
from storage.producer_entry import Origin
from storage.reads import ColdRead, ReadResult

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


@dataclass(frozen=True, slots=True)
class Leadership:
    """What the metadata log says about the partition while this broker leads it."""

    leader_epoch: int
    replicas: int
    in_sync: int


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all partitions of a broker share."""

    commit_gate: CommitGateFactory
    spawn: Spawn
    resigned: "Callable[[Partition], None]"
    """Told whenever a partition that was led is led no more, whatever the reason."""


class Partition:
    """A hosted partition. `fetch_watchers` and the two queues of waiters belong to it for life."""

    __slots__ = (
        "_flush",
        "_gate",
        "_subscribers",
        "_surroundings",
        "acknowledged",
        "acknowledged_offset",
        "committed",
        "fetch_watchers",
        "in_sync",
        "index",
        "leader_epoch",
        "leader_epoch_start",
        "log",
        "min_in_sync",
        "replicas",
        "role",
        "topic",
        "topic_id",
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
        self.replicas = 1
        self.in_sync = 1
        self.min_in_sync = 1
        """The effective min.insync.replicas: more replicas than exist are never asked for."""
        self.acknowledged_offset = 0
        """Everything below is as safe on this broker as flush.messages asks."""
        self.committed = OffsetWaiters()
        """Produces with acks=all: they wait for the high watermark."""
        self.acknowledged = OffsetWaiters()
        """Produces with acks=1: they wait for this broker alone, which matters when it flushes first."""
        self.fetch_watchers = FetchWatchers()
        self._surroundings = surroundings
        self._gate: CommitGate | None = None
        self._flush: GroupFlush | None = None
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
    ) -> AppendInfo:
        """Append one batch as the leader; on return the watermarks are where the commit gate lets them be.

        Raises Refusal before anything is written, with the log's own reasons, or KAFKA_STORAGE_ERROR, after which the
        partition is offline and nothing of the batch is acknowledged.
        """
        if self.role is not Role.LEADER:
            raise Refusal(self.role.value)
        if acks == ACKS_ALL and self.in_sync < self.min_in_sync:
            raise Refusal(ErrorCode.NOT_ENOUGH_REPLICAS)
        log = self.log
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
            self.fetch_watchers.appended(log.log_end_offset, len(records))
            assert self._flush is not None
            self._flush.appended()
        return info

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
        self.replicas = leadership.replicas
        self.in_sync = leadership.in_sync
        self.min_in_sync = min(self.log.config.min_insync_replicas, self.replicas)
        if not self.online or (self.leads and self.leader_epoch == leadership.leader_epoch):
            return False
        self._close_gate()
        try:
            # At once, not with the first append: a consumer of this epoch may ask for its end right now.
            self.log.assign_epoch(leadership.leader_epoch)
        except OSError as error:
            self.take_offline(error)
            return False
        self.leader_epoch = leadership.leader_epoch
        self.leader_epoch_start = self.log.log_end_offset
        self.role = Role.LEADER
        name = f"{self.topic}-{self.index}"
        gate = self._surroundings.commit_gate(self.topic, self.index, self._advance_high_watermark)
        self._gate = gate
        # A new gate knows nothing of what the one before it was told and had not let through yet.
        self.acknowledged_offset = min(self.acknowledged_offset, self.log.high_watermark)
        self._flush = GroupFlush(
            self.log,
            name=name,
            messages=self.log.config.flush_messages,
            spawn=self._surroundings.spawn,
            acknowledgeable=self._acknowledge,
            failed=self.take_offline,
        )
        # What the log holds from before is committed by the same rule as what comes.
        self._flush.appended()
        return True

    def follow(self, leader_epoch: int) -> None:
        """Another broker leads, or none."""
        if self.online:
            self.leader_epoch = leader_epoch
            self._leave(Role.FOLLOWER)

    def take_offline(self, error: OSError) -> None:
        """The disk has refused something: nothing of this partition is acknowledged or served until a restart.

        What the log holds is not known any more, so it is neither written nor read again. Said once.
        """
        if self.online:
            say_offline(self.topic, self.index, error)
            self._leave(Role.OFFLINE)

    def delete(self) -> None:
        """The topic is deleted."""
        if self.role is not Role.DELETED:
            self._leave(Role.DELETED)

    def configure(self, config: LogConfig) -> None:
        """Properties of the topic have changed."""
        self.log.update_config(config)
        self.min_in_sync = min(config.min_insync_replicas, self.replicas)
        if self._flush is not None:
            self._flush.set_messages(config.flush_messages)

    def _leave(self, role: Role) -> None:
        led = self.leads
        self.role = role
        self._close_gate()
        self.committed.fail(role.value)
        self.acknowledged.fail(role.value)
        self.fetch_watchers.wake_all()
        if led:
            self._surroundings.resigned(self)

    def _close_gate(self) -> None:
        if self._gate is not None:
            self._gate.close()
            self._gate = None
        if self._flush is not None:
            self._flush.close()
            self._flush = None

    # ---- watermarks -------------------------------------------------------------------------------------------------

    def _acknowledge(self, offset: int) -> None:
        if offset <= self.acknowledged_offset:
            return  # flush.messages was lowered: more was acknowledged before than is flushed now
        self.acknowledged_offset = offset
        if offset >= self.acknowledged.next_offset:
            self.acknowledged.advance(offset)
        assert self._gate is not None
        self._gate.acknowledgeable(offset)

    def _advance_high_watermark(self, offset: int) -> None:
        log = self.log
        if offset <= log.high_watermark or self.role is not Role.LEADER:
            return
        stable = log.last_stable_offset
        log.update_high_watermark(offset)
        high_watermark = log.high_watermark
        assert log.last_stable_offset <= high_watermark <= log.log_end_offset
        self.fetch_watchers.advanced(
            high_watermark, log.last_stable_offset if log.last_stable_offset > stable else None
        )
        if high_watermark >= self.committed.next_offset:
            self.committed.advance(high_watermark)
        if self._subscribers:
            for callback in list(self._subscribers):
                callback(high_watermark)
