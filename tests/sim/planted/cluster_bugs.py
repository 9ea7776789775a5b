"""Eight bugs that need several brokers. Each replaces one function (see `planted`)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from odradek.broker.partition.leader_term import LeaderTerm
from odradek.broker.partition.partition import Partition
from odradek.broker.quorum.storage import PartitionRaftStorage
from odradek.cluster.replication.leader import LeaderReplicas
from odradek.coordinator.txn.changes import to_ongoing
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.storage.producers.entry import ProducerUpdate

Make = Callable[[Callable[..., Any]], Callable[..., Any]]


def truncate_to_high_watermark(original: Callable[..., Any]) -> Callable[..., Any]:
    """A new follower truncates its log to its own high watermark, as brokers did before leader epochs (KIP-101)."""

    def follow(self: Partition, leader_epoch: int) -> None:
        changed = self.leader_epoch != leader_epoch
        original(self, leader_epoch)
        if changed and self.follows and self.log.high_watermark < self.log.log_end_offset:
            self.log.truncate_to(self.log.high_watermark, now_ms=0, monotonic_ms=0)
            self.truncated()

    return follow


def end_known_immediately(original: Callable[..., Any]) -> Callable[..., Any]:
    def check_high_watermark_known(self: Partition) -> None:
        """Accept ListOffsets before the leader knows the high watermark."""

    return check_high_watermark_known


def begin_in_memory(original: Callable[..., Any]) -> Callable[..., Any]:
    """The coordinator keeps the partitions of a transaction in memory and does not log them (Redpanda issue 6018)."""

    def decide_add(command: Any, now: Any) -> Any:
        decision = original(command, now)
        if not getattr(decision, "records", ()):
            return decision
        after = to_ongoing(
            now.txn,
            command.partitions,
            client_version=command.client_version,
            client_id=command.client_id,
            now_ms=now.now_ms,
        )
        for name in type(now.txn).__dataclass_fields__:
            object.__setattr__(now.txn, name, getattr(after, name))
        return replace(decision, records=(), keys=())

    return decide_add


def accept_stale_write(original: Callable[..., Any]) -> Callable[..., Any]:
    """The controller accepts an AlterPartition request of a deposed leader, or one with an older partition epoch."""

    def refused(state: Any, sender: int, request: Any, partition: Any) -> ErrorCode | None:
        error: ErrorCode | None = original(state, sender, request, partition)
        stale = {ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.INVALID_REQUEST}
        return None if error in stale else error

    return refused


def forget_vote(original: Callable[..., Any]) -> Callable[..., Any]:
    """A voter responds to a vote request, and its epoch and vote are never persisted. Its standing is."""

    async def save_hard_state(self: PartitionRaftStorage, state: Any) -> None:
        stored = self.load_hard_state()
        await original(self, state if stored is None else replace(stored, standing=state.standing))

    return save_hard_state


def acknowledge_before_append(original: Callable[..., Any]) -> Callable[..., Any]:
    """The leader counts sent records as replicated before the follower has appended them."""

    def fetched(self: LeaderTerm, replica: Any, broker_epoch: int, offset: int, now_ms: int) -> None:
        original(self, replica, broker_epoch, self._log.log_end_offset, now_ms)

    return fetched


def accept_deposed_coordinator(original: Callable[..., Any]) -> Callable[..., Any]:
    def check_marker(self: ProducerUpdate, marker: Any, epoch: int, transaction_version: int) -> None:
        try:
            original(self, marker, epoch, transaction_version)
        except Refusal as refusal:
            if refusal.error is not ErrorCode.TRANSACTION_COORDINATOR_FENCED:
                raise

    return check_marker


def shrink_without_controller(original: Callable[..., Any]) -> Callable[..., Any]:
    """The leader removes a follower from the ISR without the controller."""

    def shrinkage(self: LeaderReplicas, log_end: int, now_ms: int) -> None:
        change = original(self, log_end, now_ms)
        if change is not None:
            self.pending_change = None
            self.isr = change.isr
            self._mark()

    return shrinkage
