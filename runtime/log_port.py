"""Port of an engine to the log of its shard. The broker and the controller implement it."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from odradek.runtime.shard import Marker, ShardRecord

ReplayVisitor: TypeAlias = Callable[[int, "ShardRecord | Marker", int], None]
"""Callback with the offset, the record or transaction marker, and the leader epoch of its batch."""
WatermarkCallback: TypeAlias = Callable[[int], None]
"""Callback with the new high watermark."""


class ShardLog(Protocol):
    """Log of one partition during one leader epoch of this broker."""

    @property
    def log_end_offset(self) -> int:
        """Offset of the next record."""

    @property
    def high_watermark(self) -> int:
        """Offset below which all records are committed."""

    def append(self, records: Sequence[ShardRecord], now_ms: int, guard: int = 0, *, deferred: bool = False) -> int:
        """Append `records` (at least one) as one atomic batch. Return the log end offset after it.

        `guard` is the verification guard for the first records of a transaction (KIP-890). It is invalid if a marker
        was appended since the log returned it. With `deferred`, the commit may take a few milliseconds longer to save
        work.

        The call may run subscribers before it returns, with a high watermark that covers the batch.

        Raises:
            Refusal: Nothing was written (NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, MESSAGE_TOO_LARGE,
                RECORD_LIST_TOO_LARGE and others).
            OSError: A disk operation fails. It is unknown what was written, so the engine drops the shard.
        """

    async def replay(self, visit: ReplayVisitor) -> None:
        """Call `visit` for each record and transaction marker from log start to log end, in order.

        An exception from `visit` ends the replay and is raised. Offset gaps, which compaction leaves, do not end it.
        """

    def subscribe(self, callback: WatermarkCallback) -> None:
        """Call `callback(high_watermark)` on the event loop after each advance of the high watermark."""

    def unsubscribe(self, callback: WatermarkCallback) -> None:
        """Remove `callback`. Ignore a callback that is not subscribed."""
