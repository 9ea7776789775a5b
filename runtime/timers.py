"""Deadlines on the wall clock, in one ordered queue on one loop timer."""

import heapq
from asyncio import TimerHandle, get_running_loop
from collections.abc import Callable, Hashable
from typing import Any

from runtime.clock import Clock
from runtime.shard import Timer

RECHECK_MS_MAX = 1_000
"""The loop runs on monotonic time: a jump of the wall clock is noticed after this long at most."""
STALE_MAX = 1_024
"""Cancelled entries that may lie in the queue beyond the live ones before it is swept."""


class TimerQueue:
    """Fires the command of each timer when the wall clock has reached its deadline.

    Equal deadlines fire in the order in which they were set. `fire` may set further timers.
    """

    def __init__(self, clock: Clock, fire: Callable[[Any], None]) -> None:
        """Nothing is armed before the first `set`."""
        self._clock = clock
        self._fire = fire
        self._heap: list[tuple[int, int, Hashable]] = []
        self._live: dict[Hashable, tuple[int, Any]] = {}  # key -> (sequence number of the valid entry, command)
        self._sequence = 0
        self._handle: TimerHandle | None = None
        self._armed_for_ms = 0

    def __len__(self) -> int:
        """Timers that will fire."""
        return len(self._live)

    def set(self, timer: Timer) -> None:
        """Set, replace or (deadline None) cancel the timer of `timer.key`."""
        if timer.deadline_ms is None:
            self._live.pop(timer.key, None)
            return
        self._sequence += 1
        self._live[timer.key] = (self._sequence, timer.command)
        heapq.heappush(self._heap, (timer.deadline_ms, self._sequence, timer.key))
        if len(self._heap) > 2 * len(self._live) + STALE_MAX:
            self._heap = [entry for entry in self._heap if self._is_live(entry)]
            heapq.heapify(self._heap)
        self._arm()

    def clear(self) -> None:
        """Cancel everything."""
        self._heap.clear()
        self._live.clear()
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _is_live(self, entry: tuple[int, int, Hashable]) -> bool:
        live = self._live.get(entry[2])
        return live is not None and live[0] == entry[1]

    def _arm(self) -> None:
        while self._heap and not self._is_live(self._heap[0]):
            heapq.heappop(self._heap)
        if not self._heap:
            if self._handle is not None:
                self._handle.cancel()
                self._handle = None
            return
        deadline_ms = self._heap[0][0]
        if self._handle is not None:
            if self._armed_for_ms <= deadline_ms:
                return
            self._handle.cancel()
        self._armed_for_ms = deadline_ms
        delay_ms = min(max(deadline_ms - self._clock.wall_ms(), 0), RECHECK_MS_MAX)
        self._handle = get_running_loop().call_later(delay_ms / 1_000, self._expire)

    def _expire(self) -> None:
        self._handle = None
        now_ms = self._clock.wall_ms()
        # Only what was due on entry: a command that sets its own timer for "now" must not starve the loop.
        due: list[tuple[int, int, Hashable]] = []
        while self._heap and self._heap[0][0] <= now_ms:
            due.append(heapq.heappop(self._heap))
        for entry in due:
            if self._is_live(entry):
                _, command = self._live.pop(entry[2])
                self._fire(command)
        self._arm()
