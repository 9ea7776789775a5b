"""A log in memory whose high watermark moves when the test says so, and a clock that does the same."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from odradek.protocol.errors import ErrorCode, Refusal
from odradek.runtime.log_port import ReplayVisitor
from odradek.runtime.shard import Marker, ShardRecord


class FakeClock:
    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.now_ms = now_ms
        self.monotonic_offset_ms = 0
        """Added to `now_ms`: set it when the wall clock jumps."""
        self.expiry_offset_ms = 0
        """Added to `now_ms` for the expiry time."""

    def wall_ms(self) -> int:
        return self.now_ms

    def expiry_ms(self) -> int:
        return self.now_ms + self.expiry_offset_ms

    def monotonic_ms(self) -> int:
        return self.now_ms + self.monotonic_offset_ms

    def monotonic_us(self) -> int:
        return self.monotonic_ms() * 1_000


class FakeShardLog:
    """`lag=True` keeps the high watermark where it is until `commit()`."""

    def __init__(self, *, lag: bool = False, leader_epoch: int = 0) -> None:
        self.entries: list[tuple[int, ShardRecord | Marker, int]] = []
        self.batches: list[tuple[ShardRecord, ...]] = []
        self.guards: list[int] = []
        self.times_ms: list[int] = []
        """Time of each append, in ms."""
        self.high_watermark = 0
        self.lag = lag
        self.leader_epoch = leader_epoch
        self.refuse: ErrorCode | None = None
        self.broken = False
        self.subscribers: list[Callable[[int], None]] = []
        self.before_replay: Callable[[], None] = lambda: None

    @property
    def log_end_offset(self) -> int:
        return self.entries[-1][0] + 1 if self.entries else 0

    def append(self, records: Sequence[ShardRecord], now_ms: int, guard: int = 0, *, deferred: bool = False) -> int:
        assert records
        self.guards.append(guard)
        if self.refuse is not None:
            raise Refusal(self.refuse)
        if self.broken:
            raise OSError("the disk is gone")
        for record in records:  # what is read back is what the bytes hold, and no memo
            self.entries.append((self.log_end_offset, replace(record, memo=None), self.leader_epoch))
        self.batches.append(tuple(records))
        self.times_ms.append(now_ms)
        if not self.lag:
            self.commit()
        return self.log_end_offset

    def append_marker(self, marker: Marker) -> int:
        """Append a transaction marker and return its offset."""
        if self.refuse is not None:
            raise Refusal(self.refuse)
        offset = self.log_end_offset
        self.entries.append((offset, marker, self.leader_epoch))
        if not self.lag:
            self.commit()
        return offset

    async def replay(self, visit: ReplayVisitor) -> None:
        self.before_replay()
        if self.broken:
            raise OSError("the disk is gone")
        for offset, entry, leader_epoch in list(self.entries):
            visit(offset, entry, leader_epoch)

    def subscribe(self, callback: Callable[[int], None]) -> None:
        self.subscribers.append(callback)

    def unsubscribe(self, callback: Callable[[int], None]) -> None:
        if callback in self.subscribers:
            self.subscribers.remove(callback)

    def commit(self, upto: int | None = None) -> None:
        self.high_watermark = self.log_end_offset if upto is None else upto
        for callback in list(self.subscribers):
            callback(self.high_watermark)

    def truncate(self, end: int) -> None:
        """Forget everything from `end` on, as after a crash."""
        self.entries = [entry for entry in self.entries if entry[0] < end]
        self.high_watermark = min(self.high_watermark, end)

    def successor(self, *, lag: bool | None = None, upto: int | None = None) -> "FakeShardLog":
        """The same log under the next leader; it ends before `upto`. Nothing is known to be committed when lagging."""
        log = FakeShardLog(lag=self.lag if lag is None else lag, leader_epoch=self.leader_epoch + 1)
        log.entries = [entry for entry in self.entries if upto is None or entry[0] < upto]
        log.high_watermark = 0 if log.lag else log.log_end_offset
        return log
