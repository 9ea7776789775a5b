"""Queue of timers: deadlines in wall-clock time and delays in monotonic time, on one timer of the event loop."""

import heapq
from asyncio import TimerHandle, get_running_loop
from collections.abc import Callable, Hashable
from typing import Any

from odradek.invariants.invariant import CHECKS
from odradek.invariants.shard import TIMER_ENTRIES
from odradek.runtime.clock import Clock
from odradek.runtime.shard import Timer

FIRED_MAX = 100
"""Maximum timers of one queue that fire in one callback. The command of a timer takes up to about 100 µs."""
RECHECK_MS_MAX = 1_000
"""Maximum time in ms until a jump of the wall clock is noticed. The event loop runs on monotonic time."""
STALE_MAX = 1_024
"""Cancelled entries per queue, beyond twice the live timers, before they are removed. It bounds the memory."""

Entry = tuple[int, int, Hashable]
"""Due time in ms of its clock, sequence number, key."""


class TimerQueue:
    """Timers of one shard. Timers with equal due times fire in the order in which they were set."""

    def __init__(self, clock: Clock, fire: Callable[[Hashable, Any], None]) -> None:
        """Create a queue without timers. `fire(key, command)` is called when a timer is due; it may set timers."""
        self._clock = clock
        self._fire = fire
        self._wall: list[Entry] = []
        self._monotonic: list[Entry] = []
        self._live: dict[Hashable, tuple[int, Any]] = {}  # key -> (sequence number of its valid entry, command)
        self._sequence = 0
        self._handle: TimerHandle | None = None

    def __len__(self) -> int:
        """Return the number of timers that are set."""
        return len(self._live)

    def set(self, timer: Timer) -> None:
        """Set or replace the timer of `timer.key`. Cancel it if `timer` has neither deadline nor delay."""
        if timer.deadline_ms is not None:
            self._push(self._wall, timer.deadline_ms, timer)
        elif timer.delay_ms is not None:
            self._push(self._monotonic, self._clock.monotonic_ms() + timer.delay_ms, timer)
        else:
            self._live.pop(timer.key, None)

    def restore(self, timer: Timer) -> None:
        """Set a fired timer again, unless its key has a timer. Ignore the key None, which no timer has."""
        if timer.key is not None and timer.key not in self._live:
            self.set(timer)

    def clear(self) -> None:
        """Cancel all timers."""
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
        if heap[0][1] == self._sequence:  # the new timer is the first one of its queue
            self._arm()

    def _is_live(self, entry: Entry) -> bool:
        live = self._live.get(entry[2])
        return live is not None and live[0] == entry[1]

    def _valid_entries(self) -> int:
        return sum(self._is_live(entry) for heap in (self._wall, self._monotonic) for entry in heap)

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
        # Fire only timers that were due on entry: a command that sets a timer for now must not starve the event loop.
        due: list[Entry] = []
        for heap, now_ms in ((self._wall, self._clock.wall_ms()), (self._monotonic, self._clock.monotonic_ms())):
            end = len(due) + FIRED_MAX  # other work runs before the rest of many timers
            while heap and heap[0][0] <= now_ms and len(due) < end:
                due.append(heapq.heappop(heap))
        for entry in due:
            if self._is_live(entry):
                _, command = self._live.pop(entry[2])
                self._fire(entry[2], command)
        if CHECKS.expensive and (valid := self._valid_entries()) != len(self._live):
            raise TIMER_ENTRIES.violated(timers=len(self._live), valid_entries=valid)
        self._arm()
