"""The fetch that a follower or an observer has sent, and the time of the next one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odradek.cluster.raft.messages import FetchRequest, FetchSnapshotRequest

if TYPE_CHECKING:
    from odradek.cluster.raft.messages import FetchReply, FetchSnapshotReply, SnapshotPart
    from odradek.cluster.raft.replica import Replica

SNAPSHOT_PART_BYTES_MAX: Final = 1024 * 1024
"""Maximum bytes of a snapshot per FetchSnapshot request."""


class Fetcher:
    """At most one fetch at a time. A fetch acknowledges the log, so the log must be durable when it is sent."""

    def __init__(self, replica: Replica, now_ms: int) -> None:
        self._replica = replica
        self._pending: FetchRequest | FetchSnapshotRequest | None = None
        self._pending_until_ms = 0
        self._next_ms = now_ms

    @property
    def pending(self) -> FetchRequest | FetchSnapshotRequest | None:
        """The request without a response."""
        return self._pending

    @property
    def next_deadline_ms(self) -> int | None:
        """When the pending fetch times out, or the next one is due. None: the log is not durable yet."""
        if self._pending is not None:
            return self._pending_until_ms
        return self._next_ms if self._log_is_durable else None

    @property
    def _log_is_durable(self) -> bool:
        return self._replica.log.stable_end == self._replica.log.end_offset

    def expire(self, now_ms: int) -> None:
        """Forget the pending fetch if its time-out is over."""
        if self._pending is not None and now_ms >= self._pending_until_ms:
            self._pending = None
            self._next_ms = now_ms

    def is_due(self, now_ms: int) -> bool:
        return self._pending is None and now_ms >= self._next_ms

    def is_due_and_durable(self, now_ms: int) -> bool:
        return self.is_due(now_ms) and self._log_is_durable

    def fetch_from(self, node_id: int, now_ms: int) -> None:
        """Fetch the records from the log end on from `node_id`."""
        replica = self._replica
        self._send(
            FetchRequest(
                replica.node_id,
                node_id,
                replica.epoch,
                replica.log.end_offset,
                replica.log.last_epoch,
                replica.high_watermark,
                replica.outbox.new_request_id(),
            ),
            now_ms,
        )

    def fetch_snapshot(self, last_part: SnapshotPart, now_ms: int) -> None:
        """Fetch the bytes of the leader's snapshot after `last_part`."""
        replica = self._replica
        self._send(
            FetchSnapshotRequest(
                replica.node_id,
                replica.leader_id,
                replica.epoch,
                last_part.snapshot,
                last_part.position + len(last_part.data),
                SNAPSHOT_PART_BYTES_MAX,
                replica.outbox.new_request_id(),
            ),
            now_ms,
        )

    def _send(self, request: FetchRequest | FetchSnapshotRequest, now_ms: int) -> None:
        self._pending = request
        self._pending_until_ms = now_ms + self._replica.config.request_timeout_ms
        self._replica.outbox.send(request)

    def accept(self, reply: FetchReply | FetchSnapshotReply, now_ms: int) -> bool:
        """Return True if `reply` belongs to the pending fetch. The fetch is then complete."""
        pending = self._pending
        if pending is None or reply.request_id != pending.request_id or reply.source != pending.target:
            return False
        self._pending = None
        self._next_ms = now_ms
        return True

    def back_off(self, now_ms: int) -> None:
        """Delay the next fetch after a response that was of no use."""
        self._next_ms = now_ms + self._replica.config.retry_backoff_ms
