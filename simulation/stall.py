"""Watch of one step of a run: an application that waits outside of the simulation, or loops without `await`."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from odradek.simulation.loop import ApplicationLoop, place_of

if TYPE_CHECKING:
    from types import FrameType

CHECK_SECONDS: Final = 30.0
"""Real seconds between two checks. A step takes milliseconds, so that a busy machine does not reach it."""
CHECKS: Final = 2
"""Checks without a step in between after which the run ends. After SIGCONT, one check is late."""


@contextmanager
def steps_watched(report: Callable[[str], object], seconds: float) -> Iterator[None]:
    """Call `report` with a text if the loop of a run makes no step during CHECKS intervals of `seconds`."""
    steps = checks = -1

    def check(_: int, frame: "FrameType | None") -> None:
        nonlocal steps, checks
        loop: Any = asyncio._get_running_loop()
        now = loop.steps if isinstance(loop, ApplicationLoop) else -1
        checks = checks + 1 if now == steps and now >= 0 else 0
        steps = now
        if checks >= CHECKS:
            report(
                f"One step of the run has taken {CHECKS * seconds:.0f} s of real time{place_of(frame)}. "
                "Use await in each loop, and no call that waits, such as a lock of threads."
            )

    before = signal.signal(signal.SIGALRM, check)
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
