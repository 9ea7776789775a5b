"""Deadlines on the wall clock and delays on the monotonic one, in ordered queues on one loop timer."""

import heapq
from asyncio import TimerHandle, get_running_loop
from collections.abc import Callable, Hashable
from typing import Any

from odradek.runtime.clock import Clock
from odradek.runtime.shard import Timer

RECHECK_MS_MAX = 1_000
"""The loop runs on monotonic time: a jump of the wall clock is noticed after this long at most."""
STALE_MAX = 1_024
"""Cancelled entries that may lie in a queue beyond the live ones before it is swept."""

Entry = tuple[int, int, Hashable]
"""(due in ms of its clock, sequence number, key)"""


class TimerQueue:
    """Fires the command of each timer when its clock says so.

    Equal deadlines fire in the order in which they were set. `fire` may set further timers.
    """

    def __init__(self, clock: Clock, fire: Callable[[Hashable, Any], None]) -> None:
        """`fire(key, command)`. Nothing is armed before the first `set`."""
        self._clock = clock
        self._fire = fire
        self._wall: list[Entry] = []
        self._monotonic: list[Entry] = []
        self._live: dict[Hashable, tuple[int, Any]] = {}  # key -> (sequence number of the valid entry, command)
        self._sequence = 0
        self._handle: TimerHandle | None = None

    def __len__(self) -> int:
        """Timers that will fire."""
        return len(self._live)

    def set(self, timer: Timer) -> None:
        """Set, replace or (neither deadline nor delay) cancel the timer of `timer.key`."""
        if timer.deadline_ms is not None:
            self._push(self._wall, timer.deadline_ms, timer)
        elif timer.delay_ms is not None:
            self._push(self._monotonic, self._clock.monotonic_ms() + timer.delay_ms, timer)
        else:
            self._live.pop(timer.key, None)

    def again(self, timer: Timer) -> None:
        """Set a timer that has fired in vain, unless its key has another one by now. A key of None is no timer's."""
        if timer.key is not None and timer.key not in self._live:
            self.set(timer)

    def clear(self) -> None:
        """Cancel everything."""
        self._wall.clear()
        self._monotonic.clear()
        self._live.clear()
        self._disarm()

    def _push(self, heap: list[Entry], due_ms: int, timer: Timer) -> None:
        self._sequence += 1
        self._live[timer.key] = (self._sequence, timer.command)
        heapq.heappush(heap, (due_ms, self._sequence, timer.key))
        if len(heap) > 2 * len(self._live) + STALE_MAX:
            heap[:] = [entry for entry in heap if self._is_live(entry)]
            heapq.heapify(heap)
        if heap[0][1] == self._sequence:  # nothing in this queue comes earlier
            self._arm()

    def _is_live(self, entry: Entry) -> bool:
        live = self._live.get(entry[2])
        return live is not None and live[0] == entry[1]

    def _arm(self) -> None:
        self._disarm()
        delays_ms = []
        for heap in (self._wall, self._monotonic):
            while heap and not self._is_live(heap[0]):
                heapq.heappop(heap)
        if self._wall:
            delays_ms.append(min(self._wall[0][0] - self._clock.wall_ms(), RECHECK_MS_MAX))
        if self._monotonic:
            delays_ms.append(self._monotonic[0][0] - self._clock.monotonic_ms())
        if delays_ms:
            self._handle = get_running_loop().call_later(max(min(delays_ms), 0) / 1_000, self._expire)

    def _disarm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _expire(self) -> None:
        self._disarm()
        # Only what was due on entry: a command that sets its own timer for "now" must not starve the loop.
        due: list[Entry] = []
        for heap, now_ms in ((self._wall, self._clock.wall_ms()), (self._monotonic, self._clock.monotonic_ms())):
            while heap and heap[0][0] <= now_ms:
                due.append(heapq.heappop(heap))
        for entry in due:
            if self._is_live(entry):
                _, command = self._live.pop(entry[2])
                self._fire(entry[2], command)
        self._arm()
