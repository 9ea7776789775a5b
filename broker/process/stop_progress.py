"""Show the progress of a clean stop in the name of the process, where the program that waits for the stop reads it.

A process name needs no disk, which may be full or slow during a stop, and no file that a later start must remove.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Final

from odradek.broker_interface import STOP_PROGRESS_NAME, STOP_STEPS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable


NAME_INTERVAL_S: Final = 0.1
"""Minimum seconds between two names that the process gets during a stop. To set a name takes longer than to close a
log without changes."""


class StopProgress:
    """Counter of the completed steps of a stop, for example flushed logs. Threads may call it.

    `set_name` sets the name of the process, at most once per NAME_INTERVAL_S. `now` returns monotonic time in seconds.
    """

    def __init__(self, set_name: Callable[[str], None], now: Callable[[], float]) -> None:
        self._set_name = set_name
        self._now = now
        self._steps = count(1)
        self._next_s = now()

    def step(self) -> None:
        """Count one completed step."""
        steps, now_s = next(self._steps), self._now()
        if now_s >= self._next_s:
            self._next_s = now_s + NAME_INTERVAL_S
            self._set_name(f"{STOP_PROGRESS_NAME}{min(steps, STOP_STEPS_MAX)}")
