"""What waits for a partition to get further: produces for a commit, fetches for something to read.

Both are woken by the event they wait for, in the order in which they came, from inside the call that moved the
watermark. A wake-up only notes a result or resolves a future; it never runs a handler.
"""

from asyncio import Future, TimerHandle, get_running_loop
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Any, Final, Generic, TypeVar

from odradek.protocol.errors import ErrorCode

R = TypeVar("R")

CommitCallback = Callable[[ErrorCode], None]
"""Called once: NONE when the offset is reached, or why it never will be."""

NOBODY_WAITS: Final = 2**63
GROWTH_ENTRIES_MAX: Final = 4_096
"""Batches whose sizes are remembered beyond the last stable offset; when there are more, neighbours are merged."""


class OffsetWaiters:
    """Callbacks that wait for one watermark, each for its own offset."""

    __slots__ = ("_offsets", "_waiting", "next_offset")

    def __init__(self) -> None:
        self._offsets: deque[int] = deque()
        self._waiting: deque[CommitCallback] = deque()
        self.next_offset = NOBODY_WAITS
        """The lowest offset that anybody waits for: a look at it saves the call of `advance`."""

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, offset: int, callback: CommitCallback) -> None:
        """Call `callback(NONE)` once the watermark is at `offset` or above. Equal offsets keep their order."""
        if not self._offsets or offset >= self._offsets[-1]:
            self._offsets.append(offset)
            self._waiting.append(callback)
            self.next_offset = self._offsets[0]
            return
        # A duplicate waits for the offset of its first copy, which lies behind newer ones.
        at = bisect_right(self._offsets, offset)
        self._offsets.insert(at, offset)
        self._waiting.insert(at, callback)
        self.next_offset = self._offsets[0]

    def discard(self, callback: CommitCallback) -> None:
        """Its request has been answered without it. Unknown callbacks are ignored."""
        if callback in self._waiting:
            at = self._waiting.index(callback)
            del self._waiting[at]
            del self._offsets[at]
            self.next_offset = self._offsets[0] if self._offsets else NOBODY_WAITS

    def advance(self, watermark: int) -> None:
        offsets, waiting = self._offsets, self._waiting
        while offsets and offsets[0] <= watermark:
            offsets.popleft()
            waiting.popleft()(ErrorCode.NONE)
        self.next_offset = offsets[0] if offsets else NOBODY_WAITS

    def fail(self, error: ErrorCode) -> None:
        """Nobody's offset will be reached here any more."""
        waiting = self._waiting
        self._offsets.clear()
        self.next_offset = NOBODY_WAITS
        while waiting:
            waiting.popleft()(error)


class CommitWait(Generic[R]):
    """One request that is answered when all its partitions are committed or have failed, or its time is up.

    `future` yields `response`, which the callbacks of `expect` have filled in by then.
    """

    __slots__ = ("_left", "_response", "_started", "_timer", "future")

    def __init__(self, response: R) -> None:
        self._response = response
        self._left: dict[_Expected, None] = {}
        self._started = False
        self._timer: TimerHandle | None = None
        self.future: Future[R] = get_running_loop().create_future()

    def expect(self, queue: OffsetWaiters, offset: int, settle: CommitCallback) -> None:
        """One more partition to wait for: `settle` gets the outcome, once."""
        expected = _Expected(self, queue, settle)
        self._left[expected] = None
        queue.add(offset, expected)

    def start(self, timeout_ms: int) -> "Future[R]":
        """Everything is expected: wait for at most `timeout_ms`. The future is done on return if nothing is missing."""
        self._started = True
        if self._left:
            self._timer = get_running_loop().call_later(max(timeout_ms, 0) / 1_000, self._expire)
        else:
            self._finish()
        return self.future

    def settled(self, expected: "_Expected") -> None:
        del self._left[expected]
        if not self._left and self._started:
            self._finish()

    def _expire(self) -> None:
        left, self._left = self._left, {}
        for expected in left:
            # A watermark that stands still would otherwise collect the waiters of every repetition.
            expected.queue.discard(expected)
            expected.settle(ErrorCode.REQUEST_TIMED_OUT)
        self._finish()

    def _finish(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self.future.done():  # cancelled when the node stops
            self.future.set_result(self._response)


class _Expected:
    """One partition of a CommitWait; what its queue calls."""

    __slots__ = ("queue", "settle", "wait")

    def __init__(self, wait: "CommitWait[Any]", queue: OffsetWaiters, settle: CommitCallback) -> None:
        self.wait = wait
        self.queue = queue
        self.settle = settle

    def __call__(self, error: ErrorCode) -> None:
        self.settle(error)
        self.wait.settled(self)


class Watermark(Enum):
    """What a parked fetch is waiting for: which end of the log its reader may see."""

    LOG_END = "log end"
    HIGH_WATERMARK = "high watermark"
    LAST_STABLE_OFFSET = "last stable offset"


class FetchWait:
    """One parked fetch over any number of partitions. `woken` is done when it should be answered.

    Bytes that become readable are counted as the watermarks move, at most `cap` for a partition, so nothing is read
    again before there is enough.
    """

    __slots__ = ("_lines", "_missing", "_timer", "woken")

    def __init__(self) -> None:
        self._missing = 0
        self._lines: list[_Line] = []
        self._timer: TimerHandle | None = None
        self.woken: Future[None] = get_running_loop().create_future()

    def watch(self, watchers: "FetchWatchers", watermark: Watermark, cap_bytes: int) -> None:
        """Count the bytes of one partition that become readable below `watermark`, at most `cap_bytes` (the reader's capacity)."""
        line = watchers.line(watermark)
        line.waiting[self] = cap_bytes
        self._lines.append(line)

    def start(self, missing_bytes: int, timeout_ms: int) -> None:
        """Everything is watched: wait for so many bytes, and for so long, at most."""
        assert missing_bytes > 0
        self._missing = missing_bytes
        self._timer = get_running_loop().call_later(timeout_ms / 1_000, self.wake)

    def readable(self, size: int) -> None:
        self._missing -= size
        if self._missing <= 0:
            self.wake()

    def wake(self) -> None:
        """Answer now, whatever is there. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        lines, self._lines = self._lines, []
        for line in lines:
            line.waiting.pop(self, None)
        if not self.woken.done():
            self.woken.set_result(None)


class _Line:
    """Those who wait for one watermark of one partition, with the bytes that each has room for."""

    __slots__ = ("mark", "waiting")

    def __init__(self) -> None:
        self.mark = 0
        """Bytes that had been appended below the watermark when it moved last."""
        self.waiting: dict[FetchWait, int] = {}

    def reach(self, total: int) -> None:
        """The watermark has moved, and now lies behind `total` bytes."""
        # At least one byte: it did move, even where neighbours were merged and their sizes are not known apart.
        grown = max(total - self.mark, 1)
        self.mark = total
        for wait, cap in list(self.waiting.items()):
            if cap > 0:
                counted = min(grown, cap)
                self.waiting[wait] = cap - counted
                wait.readable(counted)


class FetchWatchers:
    """The parked fetches of one partition, and the sizes of its latest batches to count for them."""

    __slots__ = ("_bytes", "_ends", "_high_watermark", "_log_end", "_stable", "_total")

    def __init__(self) -> None:
        self._log_end, self._high_watermark, self._stable = _Line(), _Line(), _Line()
        # Batches beyond the last stable offset: end offset, and bytes appended up to there since the log was opened.
        self._ends: deque[int] = deque()
        self._bytes: deque[int] = deque()
        self._total = 0

    def __len__(self) -> int:
        return len(self._log_end.waiting) + len(self._high_watermark.waiting) + len(self._stable.waiting)

    def line(self, watermark: Watermark) -> _Line:
        if watermark is Watermark.LOG_END:
            return self._log_end
        return self._stable if watermark is Watermark.LAST_STABLE_OFFSET else self._high_watermark

    def appended(self, end_offset: int, size: int) -> None:
        """A batch of `size` bytes now ends the log at `end_offset`."""
        self._total += size
        self._ends.append(end_offset)
        self._bytes.append(self._total)
        if self._log_end.waiting:
            self._log_end.reach(self._total)
        else:
            self._log_end.mark = self._total
        if len(self._ends) > GROWTH_ENTRIES_MAX:
            self._merge()

    def advanced(self, high_watermark: int, stable_offset: int | None) -> None:
        """The high watermark has moved, and the last stable offset too unless it is None."""
        ends = self._ends
        if stable_offset is not None and (not ends or stable_offset >= ends[-1]):
            # By far the most frequent: everything that was appended can be read by everybody.
            self._move(self._high_watermark, self._total)
            self._move(self._stable, self._total)
            ends.clear()
            self._bytes.clear()
            return
        self._move(self._high_watermark, self._bytes_below(high_watermark, self._high_watermark.mark))
        if stable_offset is not None:
            self._move(self._stable, self._bytes_below(stable_offset, self._stable.mark))
            for _ in range(bisect_right(ends, stable_offset)):
                ends.popleft()
                self._bytes.popleft()

    def truncated(self, end_offset: int) -> None:
        """Forget the batches at or beyond `end_offset`, where the log now ends, and let all waiting fetches read again."""
        ends = self._ends
        while ends and ends[-1] > end_offset:
            ends.pop()
            self._bytes.pop()
        self.wake_all()

    def wake_all(self) -> None:
        """Leadership, the directory or the partition itself is gone: everybody learns it by reading again."""
        for line in (self._log_end, self._high_watermark, self._stable):
            for wait in list(line.waiting):
                wait.wake()

    def _bytes_below(self, offset: int, mark: int) -> int:
        at = bisect_right(self._ends, offset)
        return max(self._bytes[at - 1], mark) if at else mark

    @staticmethod
    def _move(line: _Line, total: int) -> None:
        if line.waiting:
            line.reach(total)
        else:
            line.mark = total

    def _merge(self) -> None:
        # A transaction that stays open holds back the last stable offset over any number of batches. Of two
        # neighbours the first goes, and its bytes are counted when the second is reached.
        for kept in (self._ends, self._bytes):
            merged = list(kept)[(len(kept) - 1) % 2 :: 2]
            kept.clear()
            kept.extend(merged)
