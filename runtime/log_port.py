"""The port through which an engine reaches the log of its shard. Implemented above (broker, cluster)."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from odradek.runtime.shard import Marker, ShardRecord

ReplayVisitor: TypeAlias = Callable[[int, "ShardRecord | Marker", int], None]
"""visit(offset, record or end-of-transaction marker, leader epoch of its batch)"""
WatermarkCallback: TypeAlias = Callable[[int], None]


class ShardLog(Protocol):
    """One log partition led by this broker, for as long as it leads it."""

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record will get."""

    @property
    def high_watermark(self) -> int:
        """Everything below is committed."""

    def append(self, records: Sequence[ShardRecord], now_ms: int, guard: int = 0, *, deferred: bool = False) -> int:
        """Append `records` (never empty) as one atomic batch; return the log end offset after it.

        `guard`, for the first records of a transaction: what the log gave out before the coordinator of the transaction was
        asked. A marker that came in between has withdrawn it (KIP-890). `deferred`: their commit may take a few milliseconds
        longer, if that saves work.

        Raises Refusal before anything is written (NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, MESSAGE_TOO_LARGE,
        RECORD_LIST_TOO_LARGE ...), and OSError when it is not known what was written: the shard is then dropped.
        May call subscribers (with a high watermark that already covers the batch) before it returns.
        """

    async def replay(self, visit: ReplayVisitor) -> None:
        """Call `visit` for every data record and marker from log start to log end, in order. What `visit` raises ends
        the replay and comes out of it. A gap (compaction) is no end: reading goes on behind it.
        """

    def subscribe(self, callback: WatermarkCallback) -> None:
        """Call `callback(high_watermark)` on the loop whenever it has advanced."""

    def unsubscribe(self, callback: WatermarkCallback) -> None:
        """Forget `callback`; unknown ones are ignored."""
