"""Requests that wait for the watermarks of a partition: produce requests for a commit, fetches for readable bytes.

The call that advances a watermark wakes the waiting requests before it returns, in the order of their arrival. A
wake-up stores a result or resolves a future; it never runs a request handler.
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
"""Called exactly once: with NONE when the offset is reached, or with the error that ended the wait."""

NO_WAITER: Final = 2**63
"""The next offset of an empty queue: higher than every log offset, which is a signed 64-bit integer."""
GROWTH_ENTRIES_MAX: Final = 4_096
"""Maximum batches beyond the last stable offset whose sizes one partition keeps (about 0.3 MiB); above it,
neighbors are merged."""


class OffsetWaiters:
    """Queue of callbacks that wait for one watermark, ordered by offset."""

    __slots__ = ("_offsets", "_waiting", "next_offset")

    def __init__(self) -> None:
        self._offsets: deque[int] = deque()
        self._waiting: deque[CommitCallback] = deque()
        self.next_offset = NO_WAITER
        """The lowest offset in the queue. The hot path compares it with the watermark to save a call of `advance`."""

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, offset: int, callback: CommitCallback) -> None:
        """Call `callback(NONE)` as soon as the watermark is at `offset` or above. Equal offsets keep their order."""
        if not self._offsets or offset >= self._offsets[-1]:
            self._offsets.append(offset)
            self._waiting.append(callback)
            self.next_offset = self._offsets[0]
            return
        # A duplicate batch waits for the offset of the original, which can be lower than the offsets of newer batches.
        position = bisect_right(self._offsets, offset)
        self._offsets.insert(position, offset)
        self._waiting.insert(position, callback)
        self.next_offset = self._offsets[0]

    def discard(self, callback: CommitCallback) -> None:
        """Remove `callback` without calling it. Ignore an unknown callback."""
        if callback in self._waiting:
            position = self._waiting.index(callback)
            del self._waiting[position]
            del self._offsets[position]
            self.next_offset = self._offsets[0] if self._offsets else NO_WAITER

    def advance(self, watermark: int) -> None:
        """Call with NONE, and remove, all callbacks whose offset is at or below `watermark`."""
        offsets, waiting = self._offsets, self._waiting
        while offsets and offsets[0] <= watermark:
            offsets.popleft()
            waiting.popleft()(ErrorCode.NONE)
        self.next_offset = offsets[0] if offsets else NO_WAITER

    def fail(self, error: ErrorCode) -> None:
        """Call with `error`, and remove, all callbacks: the watermark will not reach their offsets on this broker."""
        waiting = self._waiting
        self._offsets.clear()
        self.next_offset = NO_WAITER
        while waiting:
            waiting.popleft()(error)


class CommitWait(Generic[R]):
    """One request that waits until each of its partitions has committed or failed, or until its time-out.

    `future` yields `response`. The callbacks passed to `expect` fill the response in before that.
    """

    __slots__ = ("_pending", "_response", "_started", "_timer", "future")

    def __init__(self, response: R) -> None:
        self._response = response
        self._pending: dict[_PartitionWait, None] = {}
        self._started = False
        self._timer: TimerHandle | None = None
        self.future: Future[R] = get_running_loop().create_future()

    def expect(self, queue: OffsetWaiters, offset: int, settle: CommitCallback) -> None:
        """Wait for `offset` of one more partition. `settle` receives NONE or the error, exactly once."""
        partition_wait = _PartitionWait(self, queue, settle)
        self._pending[partition_wait] = None
        queue.add(offset, partition_wait)

    def start(self, timeout_ms: int) -> "Future[R]":
        """Start the time-out, after the last `expect`.

        The returned future is already done if no partition is pending.
        """
        self._started = True
        if self._pending:
            self._timer = get_running_loop().call_later(max(timeout_ms, 0) / 1_000, self._expire)
        else:
            self._finish()
        return self.future

    def settled(self, partition_wait: "_PartitionWait") -> None:
        """Remove a partition that committed or failed, and complete the request with the last one."""
        del self._pending[partition_wait]
        if not self._pending and self._started:
            self._finish()

    def _expire(self) -> None:
        pending, self._pending = self._pending, {}
        for partition_wait in pending:
            # 1. The high watermark does not advance, because a follower failed.
            # 2. Each request times out, and the producer sends the batch again.
            # 3. Without this line the queue keeps one more callback for each retry.
            partition_wait.queue.discard(partition_wait)
            partition_wait.settle(ErrorCode.REQUEST_TIMED_OUT)
        self._finish()

    def _finish(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self.future.done():  # The future is cancelled when the node stops.
            self.future.set_result(self._response)


class _PartitionWait:
    """Callback in an OffsetWaiters queue for one partition of a CommitWait."""

    __slots__ = ("queue", "settle", "wait")

    def __init__(self, wait: "CommitWait[Any]", queue: OffsetWaiters, settle: CommitCallback) -> None:
        self.wait = wait
        self.queue = queue
        self.settle = settle

    def __call__(self, error: ErrorCode) -> None:
        self.settle(error)
        self.wait.settled(self)


class Watermark(Enum):
    """The end of a fetch: for followers, read_uncommitted consumers and read_committed consumers, in this order."""

    LOG_END = "log end"
    HIGH_WATERMARK = "high watermark"
    LAST_STABLE_OFFSET = "last stable offset"


class FetchWait:
    """One parked fetch over any number of partitions. `woken` is done when the fetch should read again and respond.

    The wait counts the bytes that become readable as watermarks advance, at most the reader's remaining capacity per
    partition. So the logs are not read again before the response has min_bytes.
    """

    __slots__ = ("_missing", "_queues", "_timer", "woken")

    def __init__(self) -> None:
        self._missing = 0
        self._queues: list[_WatermarkQueue] = []
        self._timer: TimerHandle | None = None
        self.woken: Future[None] = get_running_loop().create_future()

    def watch(self, watchers: "FetchWatchers", watermark: Watermark, cap_bytes: int) -> None:
        """Count the bytes of one partition that become readable below `watermark`, at most `cap_bytes`."""
        queue = watchers.queue(watermark)
        queue.waiting[self] = cap_bytes
        self._queues.append(queue)

    def start(self, missing_bytes: int, timeout_ms: int) -> None:
        """Wait until `missing_bytes` more bytes are readable, or for `timeout_ms`; call it after the last `watch`."""
        assert missing_bytes > 0
        self._missing = missing_bytes
        self._timer = get_running_loop().call_later(timeout_ms / 1_000, self.wake)

    def readable(self, size: int) -> None:
        """Count `size` bytes that became readable."""
        self._missing -= size
        if self._missing <= 0:
            self.wake()

    def wake(self) -> None:
        """End the wait, whatever number of bytes is readable. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        queues, self._queues = self._queues, []
        for queue in queues:
            queue.waiting.pop(self, None)
        if not self.woken.done():
            self.woken.set_result(None)


class _WatermarkQueue:
    """The parked fetches that wait for one watermark of one partition."""

    __slots__ = ("position", "waiting")

    def __init__(self) -> None:
        self.position = 0
        """Bytes appended below the watermark since the log was opened."""
        self.waiting: dict[FetchWait, int] = {}
        """Parked fetches, with the bytes that each can still take from this partition."""

    def advance(self, position: int) -> None:
        """Count the bytes up to `position`, which is at or after the present one, for all parked fetches."""
        # Count at least one byte. The watermark did advance, even if a merge of batches hides by how many bytes.
        grown = max(position - self.position, 1)
        self.position = position
        for wait, cap in list(self.waiting.items()):
            if cap > 0:
                counted = min(grown, cap)
                self.waiting[wait] = cap - counted
                wait.readable(counted)


class FetchWatchers:
    """The parked fetches of one partition, with the sizes of its batches beyond the last stable offset."""

    __slots__ = ("_bytes", "_ends", "_high_watermark", "_log_end", "_stable", "_total")

    def __init__(self) -> None:
        self._log_end, self._high_watermark, self._stable = _WatermarkQueue(), _WatermarkQueue(), _WatermarkQueue()
        # Batches beyond the last stable offset: their end offsets, and the bytes appended up to each since the log was
        # opened.
        self._ends: deque[int] = deque()
        self._bytes: deque[int] = deque()
        self._total = 0

    def __len__(self) -> int:
        return len(self._log_end.waiting) + len(self._high_watermark.waiting) + len(self._stable.waiting)

    def queue(self, watermark: Watermark) -> _WatermarkQueue:
        """Return the parked fetches that wait for `watermark`."""
        if watermark is Watermark.LOG_END:
            return self._log_end
        return self._stable if watermark is Watermark.LAST_STABLE_OFFSET else self._high_watermark

    def appended(self, end_offset: int, size: int) -> None:
        """Add a batch of `size` bytes; `end_offset` is the new log end."""
        self._total += size
        self._ends.append(end_offset)
        self._bytes.append(self._total)
        if self._log_end.waiting:
            self._log_end.advance(self._total)
        else:
            self._log_end.position = self._total
        if len(self._ends) > GROWTH_ENTRIES_MAX:
            self._merge()

    def advanced(self, high_watermark: int, stable_offset: int | None) -> None:
        """Apply an advance of the high watermark, and of the last stable offset unless `stable_offset` is None."""
        ends = self._ends
        if stable_offset is not None and (not ends or stable_offset >= ends[-1]):
            # The most frequent case: all consumers can read all appended batches.
            self._move(self._high_watermark, self._total)
            self._move(self._stable, self._total)
            ends.clear()
            self._bytes.clear()
            return
        self._move(self._high_watermark, self._bytes_below(high_watermark, self._high_watermark.position))
        if stable_offset is not None:
            self._move(self._stable, self._bytes_below(stable_offset, self._stable.position))
            for _ in range(bisect_right(ends, stable_offset)):
                ends.popleft()
                self._bytes.popleft()

    def truncated(self, end_offset: int) -> None:
        """Remove the batches beyond the new log end `end_offset`, and let all parked fetches read again."""
        ends = self._ends
        while ends and ends[-1] > end_offset:
            ends.pop()
            self._bytes.pop()
        self.wake_all()

    def wake_all(self) -> None:
        """Let all parked fetches read again: the partition changed its role, lost its disk or was deleted."""
        for queue in (self._log_end, self._high_watermark, self._stable):
            for wait in list(queue.waiting):
                wait.wake()

    def _bytes_below(self, offset: int, position: int) -> int:
        """Return the bytes appended below `offset`, at least `position`."""
        batches = bisect_right(self._ends, offset)
        return max(self._bytes[batches - 1], position) if batches else position

    @staticmethod
    def _move(queue: _WatermarkQueue, position: int) -> None:
        if queue.waiting:
            queue.advance(position)
        else:
            queue.position = position

    def _merge(self) -> None:
        # An open transaction can hold back the last stable offset over any number of batches. Of each two neighbors
        # the first entry is removed: its bytes count when the watermark reaches the end of the second.
        for entries in (self._ends, self._bytes):
            merged = list(entries)[(len(entries) - 1) % 2 :: 2]
            entries.clear()
            entries.extend(merged)
