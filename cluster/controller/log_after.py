"""The metadata log as the log of a shard whose state contains the first records already."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from odradek.cluster.raft.driver import RaftDriver
    from odradek.runtime.log_port import ReplayVisitor, WatermarkCallback
    from odradek.runtime.shard import ShardRecord


class LogAfter:
    """Log of the controller (`ShardLog`). Its replay begins after the offset of a published image.

    Kafka's inactive controllers replay the log continuously. Here each node publishes the metadata image, and a new
    active controller replays only the records that were not committed before its election.
    """

    def __init__(self, driver: RaftDriver, offset: int) -> None:
        """`offset` is the last offset that the state of the shard contains, or -1."""
        self._driver = driver
        self._offset = offset

    @property
    def log_end_offset(self) -> int:
        return self._driver.log_end_offset

    @property
    def high_watermark(self) -> int:
        return self._driver.high_watermark

    def append(self, records: Sequence[ShardRecord], now_ms: int, guard: int = 0, *, deferred: bool = False) -> int:
        return self._driver.append(records, now_ms, guard, deferred=deferred)

    async def replay(self, visit: ReplayVisitor) -> None:
        await self._driver.replay(visit, self._offset + 1)

    def subscribe(self, callback: WatermarkCallback) -> None:
        self._driver.subscribe(callback)

    def unsubscribe(self, callback: WatermarkCallback) -> None:
        self._driver.unsubscribe(callback)
