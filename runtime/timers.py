"""Queue of timers: deadlines in wall-clock time and delays in monotonic time, on one timer of the event loop."""

import heapq
from asyncio import Handle, TimerHandle, get_running_loop
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, Final

from odradek.invariants.invariant import CHECKS
from odradek.invariants.shard import TIMER_ENTRIES
from odradek.runtime.clock import Clock
from odradek.runtime.shard import Timer

FIRED_MAX = 100
"""Maximum timers of each clock that one queue fires per turn. Most commands take up to about 100 µs."""
FIRING_US_MAX: Final = 5_000
"""Maximum µs per iteration of the event loop in which the timers of all shards of a coordinator fire. The last command
can exceed it: the compilation of one regular expression takes up to 18 ms."""
RECHECK_MS_MAX = 1_000
"""Maximum time in ms until a jump of the wall clock is noticed. The event loop runs on monotonic time."""
STALE_MAX = 1_024
"""Cancelled entries per queue, beyond twice the live timers, before they are removed. It bounds the memory."""

Entry = tuple[int, int, Hashable]
"""Due time in ms of its clock, sequence number, key."""


class TimerTurns:
    """Bound of the time in which timers fire, over all timer queues that share this object.

    A queue that is due after FIRING_US_MAX waits for the next iteration of the event loop. The waiting queues fire in
    the order of their requests, so that no shard delays another one indefinitely.
    """

    def __init__(self, clock: Clock) -> None:
        """Create a bound that no queue has used yet."""
        self._clock = clock
        self._spent_us = 0
        self._waiting: deque[TimerQueue] = deque()
        self._handle: Handle | None = None

    def request(self, queue: "TimerQueue") -> None:
        """Fire the due timers of `queue` now, or in a later iteration of the event loop if the time is used up."""
        if not self._waiting and self._spent_us < FIRING_US_MAX:
            self._run(queue)
            return
        if queue not in self._waiting:
            self._waiting.append(queue)
        self._schedule()

    def _run(self, queue: "TimerQueue") -> None:
        began_us = self._clock.monotonic_us()
        try:
            queue.fire_due(began_us + FIRING_US_MAX - self._spent_us)
        finally:
            self._spent_us += self._clock.monotonic_us() - began_us
            if self._spent_us:
                self._schedule()

    def _schedule(self) -> None:
        if self._handle is None:
            self._handle = get_running_loop().call_soon(self._start_turn)

    def _start_turn(self) -> None:
        """Fire timers of the waiting queues at the start of an iteration of the event loop."""
        self._handle = None
        self._spent_us = 0
        while self._waiting and self._spent_us < FIRING_US_MAX:
            self._run(self._waiting.popleft())


class TimerQueue:
    """Timers of one shard. Timers with equal due times fire in the order in which they were set."""

    def __init__(self, clock: Clock, fire: Callable[[Hashable, Any], None], *, turns: TimerTurns | None = None) -> None:
        """Create a queue without timers. `fire(key, command)` is called when a timer is due; it may set timers.

        `turns` bounds the time of all queues that share it. Without it, the queue has a bound of its own.
        """
        self._clock = clock
        self._fire = fire
        self._turns = turns or TimerTurns(clock)
        self._due: deque[Entry] = deque()
        """Entries of the present turn that have not fired yet."""
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
        self._due.clear()
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
        return sum(self._is_live(entry) for entries in (self._wall, self._monotonic, self._due) for entry in entries)

    def _arm(self) -> None:
        self._disarm()
        delays_ms = [0] if self._due else []
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
        self._turns.request(self)

    def fire_due(self, end_us: int) -> None:
        """Fire one due timer, and more of them until the monotonic time `end_us`."""
        self._disarm()
        if not self._due:
            self._take_due()
        while self._due:
            entry = self._due.popleft()
            if self._is_live(entry):
                _, command = self._live.pop(entry[2])
                self._fire(entry[2], command)
                if self._clock.monotonic_us() >= end_us:
                    break
        if CHECKS.expensive and (valid := self._valid_entries()) != len(self._live):
            raise TIMER_ENTRIES.violated(timers=len(self._live), valid_entries=valid)
        self._arm()

    def _take_due(self) -> None:
        # A turn fires only timers that are due at its start: a command that sets a timer for now must not starve the
        # event loop. The rest of many timers fires after other work.
        for heap, now_ms in ((self._wall, self._clock.wall_ms()), (self._monotonic, self._clock.monotonic_ms())):
            end = len(self._due) + FIRED_MAX
            while heap and heap[0][0] <= now_ms and len(self._due) < end:
                self._due.append(heapq.heappop(heap))
