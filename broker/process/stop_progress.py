"""Show the progress of a clean stop in the name of the process, where the program that waits for the stop reads it.

A process name needs no disk, which may be full or slow during a stop, and no file that a later start must remove.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from odradek.broker_interface import STOP_PROGRESS_NAME, STOP_STEPS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable


class StopProgress:
    """Counter of the completed steps of a stop, for example flushed logs. Threads may call it.

    `set_name` sets the name of the process.
    """

    def __init__(self, set_name: Callable[[str], None]) -> None:
        self._set_name = set_name
        self._steps = count(1)

    def step(self) -> None:
        """Count one completed step."""
        self._set_name(f"{STOP_PROGRESS_NAME}{min(next(self._steps), STOP_STEPS_MAX)}")
