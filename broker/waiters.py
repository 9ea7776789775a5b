"""What waits for a partition to get further: produces for a commit, fetches for something to read.

Both are woken by the event they wait for, in the order in which they came, from inside the call that moved the
watermark. A wake-up only notes a result or resolves a future; it never runs a handler.
"""

from asyncio import Future, TimerHandle, get_running_loop
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from broker.partition import Partition

R = TypeVar("R")

CommitCallback = Callable[[ErrorCode], None]
"""Called once: NONE when the offset is reached, or why it never will be."""

GROWTH_ENTRIES_MAX: Final = 4_096
"""Batches whose sizes are remembered beyond the last stable offset; when there are more, neighbours are merged."""


class OffsetWaiters:
    """Callbacks that wait for one watermark, each for its own offset."""

    __slots__ = ("_offsets", "_waiting")

    def __init__(self) -> None:
        self._offsets: deque[int] = deque()
        self._waiting: deque[CommitCallback] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, offset: int, callback: CommitCallback) -> None:
        """Call `callback(NONE)` once the watermark is at `offset` or above. Equal offsets keep their order."""
        if not self._offsets or offset >= self._offsets[-1]:
            self._offsets.append(offset)
            self._waiting.append(callback)
            return
        # A duplicate waits for the offset of its first copy, which lies behind newer ones.
        at = bisect_right(self._offsets, offset)
        self._offsets.insert(at, offset)
        self._waiting.insert(at, callback)

    def advance(self, watermark: int) -> None:
        offsets, waiting = self._offsets, self._waiting
        while offsets and offsets[0] <= watermark:
            offsets.popleft()
            waiting.popleft()(ErrorCode.NONE)

    def fail(self, error: ErrorCode) -> None:
        """Nobody's offset will be reached here any more."""
        waiting = self._waiting
        self._offsets.clear()
        while waiting:
            waiting.popleft()(error)


class CommitWait(Generic[R]):
    """One request that is answered when all its partitions are committed or have failed, or its time is up.

    `future` yields `response`, which the callbacks of `expect` have filled in by then.
    """

    __slots__ = ("_expected", "_left", "_response", "_started", "_timer", "future")

    def __init__(self, response: R) -> None:
        self._response = response
        self._expected = 0
        self._left: dict[int, CommitCallback] = {}
        self._started = False
        self._timer: TimerHandle | None = None
        self.future: Future[R] = get_running_loop().create_future()

    def expect(self, settle: CommitCallback) -> CommitCallback:
        """One more partition to wait for; hand the result to its `OffsetWaiters`. `settle` gets the outcome once."""
        number = self._expected
        self._expected += 1
        self._left[number] = settle

        def settled(error: ErrorCode) -> None:
            if self._left.pop(number, None) is None:
                return
            settle(error)
            if not self._left and self._started:
                self._finish()

        return settled

    def start(self, timeout_ms: int) -> "Future[R]":
        """Everything is expected: wait for at most `timeout_ms`. The future is done on return if nothing is missing."""
        self._started = True
        if self._left:
            self._timer = get_running_loop().call_later(max(timeout_ms, 0) / 1_000, self._expire)
        else:
            self._finish()
        return self.future

    def _expire(self) -> None:
        left, self._left = self._left, {}
        for settle in left.values():
            settle(ErrorCode.REQUEST_TIMED_OUT)
        self._finish()

    def _finish(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self.future.done():  # cancelled when the node stops
            self.future.set_result(self._response)


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

    __slots__ = ("_missing", "_timer", "_watched", "woken")

    def __init__(self, missing_bytes: int) -> None:
        assert missing_bytes > 0
        self._missing = missing_bytes
        self._watched: list[tuple[FetchWatchers, Watermark]] = []
        self._timer: TimerHandle | None = None
        self.woken: Future[None] = get_running_loop().create_future()

    def watch(self, partition: "Partition", watermark: Watermark, cap_bytes: int) -> None:
        """Count what becomes readable below `watermark`, `cap_bytes` at most (what the reader still has room for)."""
        watchers = partition.fetch_watchers
        watchers.add(self, watermark, cap_bytes)
        self._watched.append((watchers, watermark))

    def start(self, timeout_ms: int) -> None:
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
        watched, self._watched = self._watched, []
        for watchers, watermark in watched:
            watchers.remove(self, watermark)
        if not self.woken.done():
            self.woken.set_result(None)


class FetchWatchers:
    """The parked fetches of one partition, and the sizes of its latest batches to count for them."""

    __slots__ = ("_bytes", "_ends", "_marks", "_total", "_watching")

    def __init__(self) -> None:
        self._watching: dict[Watermark, dict[FetchWait, int]] = {mark: {} for mark in Watermark}
        # Batches beyond the lowest watermark: end offset, and bytes appended up to there since the log was opened.
        self._ends: deque[int] = deque()
        self._bytes: deque[int] = deque()
        self._total = 0
        self._marks: dict[Watermark, int] = dict.fromkeys(Watermark, 0)

    def __len__(self) -> int:
        return sum(len(watching) for watching in self._watching.values())

    def add(self, wait: FetchWait, watermark: Watermark, cap_bytes: int) -> None:
        self._watching[watermark][wait] = cap_bytes

    def remove(self, wait: FetchWait, watermark: Watermark) -> None:
        self._watching[watermark].pop(wait, None)

    def appended(self, end_offset: int, size: int) -> None:
        """A batch of `size` bytes now ends the log at `end_offset`."""
        self._total += size
        self._ends.append(end_offset)
        self._bytes.append(self._total)
        if self._watching[Watermark.LOG_END]:
            self._count(Watermark.LOG_END, self._total)
        self._marks[Watermark.LOG_END] = self._total
        if len(self._ends) > GROWTH_ENTRIES_MAX:
            self._merge()

    def advanced(self, watermark: Watermark, offset: int) -> None:
        """`watermark` is at `offset` now. The last stable offset moves last, since it never leads."""
        at = bisect_right(self._ends, offset)
        reached = self._bytes[at - 1] if at else self._marks[watermark]
        if self._watching[watermark]:
            self._count(watermark, reached)
        self._marks[watermark] = reached
        if watermark is Watermark.LAST_STABLE_OFFSET:
            for _ in range(at):
                self._ends.popleft()
                self._bytes.popleft()

    def wake_all(self) -> None:
        """Leadership, the directory or the partition itself is gone: everybody learns it by reading again."""
        for watching in self._watching.values():
            for wait in list(watching):
                wait.wake()

    def _count(self, watermark: Watermark, reached: int) -> None:
        # At least one byte: the watermark did move, even where neighbours were merged and their sizes are not known apart.
        grown = max(reached - self._marks[watermark], 1)
        watching = self._watching[watermark]
        for wait, cap in list(watching.items()):
            if cap <= 0:
                continue
            counted = min(grown, cap)
            watching[wait] = cap - counted
            wait.readable(counted)

    def _merge(self) -> None:
        # A transaction that stays open holds back the last stable offset over any number of batches. Of two
        # neighbours the first goes, and its bytes are counted when the second is reached.
        for kept in (self._ends, self._bytes):
            merged = list(kept)[(len(kept) - 1) % 2 :: 2]
            kept.clear()
            kept.extend(merged)
