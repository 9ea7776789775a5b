"""How late the event loop is: whatever holds it up holds up every request."""

from asyncio import TimerHandle, get_running_loop
from typing import Final

from odradek.broker.dispatch.request_metrics import Histogram

INTERVAL_S: Final = 0.1
"""Between two looks; a callback that takes longer shows as its time less this, at least."""
US_PER_S: Final = 1_000_000


class LoopLag:
    """Asks to be called every `INTERVAL_S`, and notes how much later that is done. `close` ends it."""

    def __init__(self) -> None:
        self.times = Histogram()
        self.max_us = 0
        """The worst since the last `take_max`."""
        self._loop = get_running_loop()
        self._due_s = 0.0
        self._handle: TimerHandle | None = None
        self._ask()

    def take_max(self) -> int:
        worst, self.max_us = self.max_us, 0
        return worst

    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _ask(self) -> None:
        self._due_s = self._loop.time() + INTERVAL_S
        self._handle = self._loop.call_at(self._due_s, self._called)

    def _called(self) -> None:
        late_us = max(int((self._loop.time() - self._due_s) * US_PER_S), 0)
        self.times.observe(late_us)
        self.max_us = max(self.max_us, late_us)
        self._ask()
