"""Overload of the machine, measured by the delays of a timer."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Final

TICK_SECONDS: Final = 0.1
LAG_SECONDS: Final = 0.5
"""Delay of a tick that counts as lost processor time, in seconds."""
LAG_SHARE_MAX: Final = 0.03
"""Maximum share of lost time in a run. A run with more is marked as overloaded."""


@dataclass
class Load:
    """Delays of the supervisor's own timer, which measure the overload of the machine."""

    ticks: int = 0
    lost_seconds: float = 0.0
    worst_seconds: float = 0.0

    async def watch(self) -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(TICK_SECONDS)
            late = time.monotonic() - before - TICK_SECONDS
            self.ticks += 1
            self.worst_seconds = max(self.worst_seconds, late)
            if late > LAG_SECONDS:
                self.lost_seconds += late

    @property
    def overloaded(self) -> bool:
        return self.lost_seconds > LAG_SHARE_MAX * max(1, self.ticks) * TICK_SECONDS
