"""Measure the lag of the event loop. A lag delays every request."""

from asyncio import TimerHandle, get_running_loop
from typing import Final

from odradek.broker.dispatch.request_metrics import Histogram

INTERVAL_S: Final = 0.1
"""Seconds between two measurements. A callback of N seconds causes a lag of at least N minus this."""
US_PER_S: Final = 1_000_000


class LoopLag:
    """Lag of the event loop: the delay of a timer that expires every INTERVAL_S. `close` ends the measurement."""

    def __init__(self) -> None:
        self.times = Histogram()
        self.max_us = 0
        """Largest lag in microseconds since the last `take_max`."""
        self._loop = get_running_loop()
        self._due_s = 0.0
        self._handle: TimerHandle | None = None
        self._schedule()

    def take_max(self) -> int:
        """Return the largest lag since the last call, in microseconds, and reset it."""
        max_us, self.max_us = self.max_us, 0
        return max_us

    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _schedule(self) -> None:
        self._due_s = self._loop.time() + INTERVAL_S
        self._handle = self._loop.call_at(self._due_s, self._on_timer)

    def _on_timer(self) -> None:
        lag_us = max(int((self._loop.time() - self._due_s) * US_PER_S), 0)
        self.times.observe(lag_us)
        self.max_us = max(self.max_us, lag_us)
        self._schedule()
