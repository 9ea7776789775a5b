"""One partition on this broker: its role, its log, and the data path of leaders and followers.

Methods that change a partition never await, so a partition needs no lock. Before an append returns, it has woken
followers and readers, and has advanced the watermarks as far as the disk and the replicas permit.
"""

from collections.abc import Awaitable, Callable
from enum import Enum
from functools import partial
from typing import Any, Final, Protocol, TypeVar

import structlog

from odradek.broker.partition.leader_term import LeaderAndIsr, LeaderContext, LeaderTerm
from odradek.broker.partition.traffic import Traffic
from odradek.broker.partition.waiters import CommitCallback, CommitWait
from odradek.broker.partition.watermarks import Watermarks
from odradek.client_shares import Client
from odradek.cluster.replication.leader import IsrChangeResult, PendingIsrChange
from odradek.frozen import frozen_dataclass
from odradek.invariants.partition import PARTITION_LEADER_EPOCH, PARTITION_LEADER_TERM, PARTITION_REPLICATES
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.schema import Buffer
from odradek.protocol.special_values import ACKS_ALL, NO_LEADER_EPOCH
from odradek.storage.batches.validation import CheckedBatch
from odradek.storage.batches.work import WorkSlice
from odradek.storage.config import LogConfig
from odradek.storage.disk.port import ResourcesExhausted
from odradek.storage.log.append import AppendInfo
from odradek.storage.log.log import PartitionLog
from odradek.storage.log.reads import ColdRead, ReadResult
from odradek.storage.producers.entry import Origin

T = TypeVar("T")
_logger = structlog.get_logger(__name__)
NO_RESOURCES: Final = "the broker has no free file descriptor, memory or disk space; retry later"
"""Error message of a refusal that the client retries. The disk is intact, and the partition stays online."""


def log_offline(topic: str, index: int, error: OSError) -> None:
    """Log that the disk failed an operation of the partition."""
    _logger.error("partition offline", topic=topic, partition=index, reason=str(error))


def log_postponed(operation: str, topic: str, index: int, error: ResourcesExhausted) -> None:
    """Log that an operation of the partition waits, because no descriptor or memory is left."""
    _logger.warning(
        "operation postponed: no resources", operation=operation, topic=topic, partition=index, reason=str(error)
    )


class Role(Enum):
    """The role of this broker for a partition. The value is the error that refuses requests for the leader."""

    LEADER = ErrorCode.NONE
    FOLLOWER = ErrorCode.NOT_LEADER_OR_FOLLOWER
    OFFLINE = ErrorCode.KAFKA_STORAGE_ERROR
    DELETED = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class Cluster(Protocol):
    """The rest of the cluster, as partitions use it.

    `odradek.broker.replication`, a package above this one, implements it.
    """

    @property
    def lag_max_ms(self) -> int:
        """Return replica.lag.time.max.ms."""

    @property
    def fetch_wait_max_ms(self) -> int:
        """Return replica.fetch.wait.max.ms."""

    def broker_epoch_of(self, broker_id: int) -> int | None:
        """Return the broker epoch of `broker_id`.

        Return None if the broker may not join an ISR: it is unregistered, fenced or shutting down.
        """

    def went_offline(self, topic: str, index: int, error: OSError) -> None:
        """Report that the disk failed an operation of the partition, which stays offline until the broker restarts."""

    def change_isr(self, partition: "Partition", change: PendingIsrChange) -> None:
        """Send `change` to the controller. The response arrives through `Partition.complete_isr_change`."""


@frozen_dataclass(frozen=True, slots=True)
class PartitionContext:
    """The parts of the broker that all partitions use."""

    cluster: Cluster
    leader: LeaderContext
    leader_term: type[LeaderTerm]
    """The class of leader terms."""
    resigned: "Callable[[Partition], None]"
    """Called after a partition lost the role of leader, for any reason."""


class Partition:
    """A hosted partition. Its watermarks, and the requests that wait for them, stay the same through all roles."""

    __slots__ = (
        "_context",
        "index",
        "leader_epoch",
        "leader_epoch_start",
        "leader_term",
        "log",
        "role",
        "topic",
        "topic_id",
        "traffic",
        "watermarks",
    )

    def __init__(self, log: PartitionLog, context: PartitionContext) -> None:
        self.topic = log.topic
        self.index = log.partition
        self.topic_id = log.topic_id
        self.log = log
        self.role = Role.FOLLOWER
        self.leader_epoch = NO_LEADER_EPOCH
        self.leader_epoch_start = 0
        """Log end offset when the leader epoch began. A high watermark below it can be lower than the previous
        leader's."""
        self.leader_term: LeaderTerm | None = None
        """The state of the leader epoch; None if this broker does not lead the partition."""
        self.watermarks = Watermarks(log)
        self.traffic = Traffic()
        self._context = context

    def __repr__(self) -> str:
        return f"<{self.topic}-{self.index} {self.role.name} epoch {self.leader_epoch}>"

    # ---- role -------------------------------------------------------------------------------------------------------

    @property
    def online(self) -> bool:
        return self.role is Role.LEADER or self.role is Role.FOLLOWER

    @property
    def leads(self) -> bool:
        return self.role is Role.LEADER

    @property
    def follows(self) -> bool:
        return self.role is Role.FOLLOWER

    @property
    def may_be_deposed(self) -> bool:
        """True if this broker leads the partition, but its followers do not fetch from it as they should."""
        return self.leader_term is not None and not self.leader_term.is_confirmed

    def check_leader(self, current_leader_epoch: int = NO_LEADER_EPOCH) -> None:
        """Raise Refusal unless this broker leads the partition in the leader epoch of the request (KIP-320).

        FENCED_LEADER_EPOCH: the epoch of the request is older. UNKNOWN_LEADER_EPOCH: it is newer. Otherwise: the error
        of the role.
        """
        if current_leader_epoch not in {NO_LEADER_EPOCH, self.leader_epoch} and self.online:
            if current_leader_epoch < self.leader_epoch:
                raise Refusal(ErrorCode.FENCED_LEADER_EPOCH)
            raise Refusal(ErrorCode.UNKNOWN_LEADER_EPOCH)
        if self.role is not Role.LEADER:
            raise Refusal(self.role.value)

    def check_readable(self, current_leader_epoch: int = NO_LEADER_EPOCH) -> None:
        """Raise the errors of `check_leader` unless this broker hosts the partition in the request's epoch."""
        if self.role is Role.FOLLOWER and current_leader_epoch in {NO_LEADER_EPOCH, self.leader_epoch}:
            return
        self.check_leader(current_leader_epoch)

    @property
    def isr_suffices(self) -> bool:
        """True if the ISR has min.insync.replicas members, so that appends with acks=all are accepted."""
        term = self.leader_term
        return term is not None and len(term.replicas.isr) >= term.replicas.min_isr

    @property
    def maximal_isr_suffices(self) -> bool:
        """True if the maximal ISR (KIP-497) has min.insync.replicas members.

        If it has fewer, committed records with acks=all are responded to with NOT_ENOUGH_REPLICAS_AFTER_APPEND
        (Partition.checkEnoughReplicasReachOffset).
        """
        term = self.leader_term
        return term is not None and term.replicas.maximal_size >= term.replicas.min_isr

    def check_high_watermark_known(self) -> None:
        """Raise Refusal(OFFSET_NOT_AVAILABLE) while the high watermark is below `leader_epoch_start` (KIP-207)."""
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
        deferred: bool = False,
        work: WorkSlice | None = None,
        checked: CheckedBatch | None = None,
        client: Client | None = None,
    ) -> AppendInfo:
        """Append one batch as the leader. Followers may fetch a `deferred` batch a few milliseconds later.

        `work` and `checked` bound the check of records (`PartitionLog.append_as_leader`). Raise RecordCheckPending if
        the check needs more than one slice of `work`. A new producer counts for the share of `client`.

        Raise Refusal before anything is written: NOT_ENOUGH_REPLICAS (also if no descriptor or memory is left), the
        error of the role, or an error of the log. Raise Refusal(KAFKA_STORAGE_ERROR) if the disk failed: then the
        partition is offline and no record of the batch is acknowledged.
        """
        if self.role is not Role.LEADER:
            raise Refusal(self.role.value)
        term, log = self.leader_term, self.log
        if term is None:
            raise PARTITION_LEADER_TERM.violated(partition=self)
        if acks == ACKS_ALL and not self.isr_suffices:
            raise Refusal(ErrorCode.NOT_ENOUGH_REPLICAS)
        try:
            info = log.append_as_leader(
                records,
                leader_epoch=self.leader_epoch,
                origin=origin,
                now_ms=now_ms,
                monotonic_ms=self._context.leader.clock.monotonic_ms(),
                guard=guard,
                transaction_version=transaction_version,
                work=work,
                checked=checked,
                client=client,
            )
        except ResourcesExhausted as error:
            raise Refusal(ErrorCode.NOT_ENOUGH_REPLICAS, NO_RESOURCES) from error
        except OSError as error:
            self.take_offline(error)
            raise Refusal(ErrorCode.KAFKA_STORAGE_ERROR) from error
        if not info.duplicate:
            self.traffic.bytes_in += len(records)
            self.traffic.records_in += info.last_offset - info.first_offset + 1
            watermarks = self.watermarks
            watermarks.fetch_watchers.appended(log.log_end_offset, len(records))
            for follower in watermarks.followers.values():
                follower.appended(deferred=deferred)
            term.flush.appended()
        return info

    def replicate(self, records: Buffer, *, leader_epoch: int, now_ms: int) -> bool:
        """Append records that the leader of `leader_epoch` sent; return whether the log has grown.

        Raise Refusal before anything is written: CORRUPT_MESSAGE, OFFSET_OUT_OF_RANGE for records below the log end, or
        NOT_ENOUGH_REPLICAS if no descriptor or memory is left.
        Raise Refusal(KAFKA_STORAGE_ERROR) if the disk failed: then the partition is offline.
        """
        if self.role is not Role.FOLLOWER:
            raise PARTITION_REPLICATES.violated(partition=self, leader_epoch=leader_epoch)
        try:
            monotonic_ms = self._context.leader.clock.monotonic_ms()
            info = self.log.append_as_follower(
                records, now_ms=now_ms, monotonic_ms=monotonic_ms, leader_epoch=leader_epoch
            )
        except ResourcesExhausted as error:
            raise Refusal(ErrorCode.NOT_ENOUGH_REPLICAS, NO_RESOURCES) from error
        except OSError as error:
            self.take_offline(error)
            raise Refusal(ErrorCode.KAFKA_STORAGE_ERROR) from error
        if info is None:
            return False
        self.watermarks.fetch_watchers.appended(self.log.log_end_offset, len(records))
        return True

    def follow_watermarks(self, high_watermark: int, log_start_offset: int) -> None:
        """Apply the leader's high watermark, at most the log end of this replica, and the leader's log start offset."""
        self.watermarks.advance_high_watermark(min(high_watermark, self.log.log_end_offset))
        if log_start_offset > self.log.log_start_offset:
            self.log.advance_log_start(log_start_offset)

    @property
    def unflushed(self) -> int:
        """Return the number of records that are not on stable storage."""
        return self.log.log_end_offset - self.log.flushed_offset

    async def flush(self) -> None:
        """Flush all records to stable storage. A disk error takes the partition offline; it is not raised.

        If no descriptor or memory is left, return without a flush.
        """
        try:
            await self.log.flush()
        except ResourcesExhausted as error:
            log_postponed("flush", self.topic, self.index, error)
        except OSError as error:
            self.take_offline(error)

    def truncated(self) -> None:
        """Let the parked fetches read again after a truncation: the bytes that they counted may be removed."""
        self.watermarks.fetch_watchers.truncated(self.log.log_end_offset)

    def read(self, offset: int, *, max_bytes: int, limit: int, min_one_batch: bool) -> ReadResult | ColdRead:
        """Read whole batches from `offset` on, none at or beyond `limit`.

        Return a ColdRead if the data is not in memory; `complete_read` awaits it. Raise Refusal: OFFSET_OUT_OF_RANGE;
        OFFSET_NOT_AVAILABLE if no descriptor or memory is left; KAFKA_STORAGE_ERROR if the disk failed: then the
        partition is offline.
        """
        try:
            return self.log.read(offset, max_bytes=max_bytes, limit=limit, min_one_batch=min_one_batch)
        except ResourcesExhausted as error:
            raise Refusal(ErrorCode.OFFSET_NOT_AVAILABLE, NO_RESOURCES) from error
        except OSError as error:
            self.take_offline(error)
            raise Refusal(ErrorCode.KAFKA_STORAGE_ERROR) from error

    async def complete_read(self, reading: Awaitable[T]) -> T:
        """Await a read from the disk and return its result. Raise the errors of `read`."""
        try:
            return await reading
        except ResourcesExhausted as error:
            raise Refusal(ErrorCode.OFFSET_NOT_AVAILABLE, NO_RESOURCES) from error
        except OSError as error:
            self.take_offline(error)
            raise Refusal(ErrorCode.KAFKA_STORAGE_ERROR) from error

    def await_commit(self, wait: CommitWait[Any], end_offset: int, settle: CommitCallback) -> None:
        """Call `settle` when all offsets below `end_offset` are committed (acks=all), or the term ends."""
        if self.role is Role.LEADER:
            wait.expect(self.watermarks.committed, end_offset, settle)
        else:
            settle(self.role.value)

    def await_acknowledged(self, wait: CommitWait[Any], end_offset: int, settle: CommitCallback) -> None:
        """Call `settle` when this broker acknowledges all offsets below `end_offset` (acks=1), or the term ends."""
        if self.role is Role.LEADER:
            wait.expect(self.watermarks.acknowledged, end_offset, settle)
        else:
            settle(self.role.value)

    # ---- changes of the role ----------------------------------------------------------------------------------------

    def lead(self, state: LeaderAndIsr) -> bool:
        """Lead the partition according to `state`. Return True if a new leader epoch begins on this broker.

        A failed write to the log takes the partition offline; it raises no error.
        """
        if self.leader_term is not None and self.leader_epoch == state.leader_epoch:
            self.leader_term.update(state)
            self.leader_term.update_high_watermark()
            return False
        if not self.online:
            return False
        self._end_leader_term()
        self.watermarks.end_followers()
        try:
            latest_epoch = max(self.leader_epoch, self.log.epochs.latest)
            if state.leader_epoch < latest_epoch:
                raise PARTITION_LEADER_EPOCH.violated(partition=self, state=state, latest_epoch=latest_epoch)
            # Assign the epoch now, not with the first append: a client may send OffsetForLeaderEpoch for it
            # immediately.
            self.log.assign_epoch(state.leader_epoch)
        except OSError as error:
            self.take_offline(error)
            return False
        self.leader_epoch = state.leader_epoch
        self.leader_epoch_start = self.log.log_end_offset
        self.role = Role.LEADER
        self.watermarks.restart_acknowledgment()
        context = self._context
        self.leader_term = context.leader_term(
            self.watermarks,
            state,
            context.leader,
            change_isr=partial(context.cluster.change_isr, self),
            offline=self.take_offline,
        )
        # Records of earlier epochs count like new records: this replica acknowledges them, then the ISR rule applies.
        # This call acknowledges them.
        self.leader_term.flush.appended()
        return True

    def complete_isr_change(
        self, change: PendingIsrChange, error: ErrorCode, leader_epoch: int, partition_epoch: int, isr: tuple[int, ...]
    ) -> IsrChangeResult:
        """Apply the controller's result of the pending ISR change `change`. A committed ISR takes effect immediately.

        `leader_epoch`, `partition_epoch` and `isr` are the controller's state of the partition.
        """
        term = self.leader_term
        if term is None or term.replicas.leader_epoch != change.leader_epoch:
            return IsrChangeResult.SUPERSEDED
        replicas = term.replicas
        result = replicas.complete(change, error)
        if result is IsrChangeResult.COMMITTED and leader_epoch == replicas.leader_epoch:
            replicas.commit(replicas.replicas, isr, partition_epoch, self._context.leader.clock.monotonic_ms())
        term.update_high_watermark()
        return result

    def follow(self, leader_epoch: int) -> None:
        """Become or stay a follower in `leader_epoch`: another broker leads the partition, or it has no leader."""
        if self.online and (self.leads or self.leader_epoch != leader_epoch):
            self.leader_epoch = leader_epoch
            self._leave(Role.FOLLOWER)

    def take_offline(self, error: OSError) -> None:
        """Stop serving the partition until the broker restarts, because the disk failed an operation.

        The log is neither written nor read again, because its state is unknown. Further calls have no effect.
        """
        if self.online:
            log_offline(self.topic, self.index, error)
            self._close(Role.OFFLINE)
            self._context.cluster.went_offline(self.topic, self.index, error)

    def delete(self) -> None:
        """Stop serving the partition: its topic is deleted, or this broker is no longer a replica."""
        if self.role is not Role.DELETED:
            self._close(Role.DELETED)

    def configure(self, config: LogConfig) -> None:
        """Apply changed properties of the topic."""
        self.log.update_config(config)
        term = self.leader_term
        if term is not None:
            term.configure()
            term.flush.set_messages(config.flush_messages)
            if self.leader_term is term:  # A failed flush takes the partition offline and ends the term.
                term.update_high_watermark()

    def _close(self, role: Role) -> None:
        self.watermarks.close()
        self._leave(role)

    def _leave(self, role: Role) -> None:
        led = self.leads
        self.role = role
        self._end_leader_term()
        self.watermarks.fail_waiters(role.value)
        self.watermarks.end_followers()
        if led:
            self._context.resigned(self)

    def _end_leader_term(self) -> None:
        term, self.leader_term = self.leader_term, None
        if term is not None:
            term.close(self.role.value or ErrorCode.NOT_LEADER_OR_FOLLOWER)
