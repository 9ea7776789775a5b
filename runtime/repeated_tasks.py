"""Work that lasts as long as its node: an unexpected exception is reported, and the work goes on after a pause."""

from asyncio import CancelledError, get_running_loop, sleep
from collections.abc import Callable, Coroutine
from typing import Any, Final

from odradek.runtime.tasks import Spawn

PAUSE_FIRST_MS: Final = 100
"""Pause after the first unexpected exception, in milliseconds. Each further exception doubles it."""
PAUSE_MAX_MS: Final = 30_000
"""Maximum pause after an unexpected exception, in milliseconds. Work that ran longer begins with PAUSE_FIRST_MS."""

Work = Callable[[], Coroutine[Any, Any, None]]


async def keep_running(work: Work, spawn: Spawn, name: str) -> None:
    """Run `work()` until it returns. After an exception, run it again after a pause that doubles.

    Each run is a task of its own, so the owner of the tasks reports its exception (`Tasks`).
    """
    loop, failures = get_running_loop(), 0
    while True:
        started = loop.time()
        if await _completed(work, spawn, name):
            return
        failures = 1 if loop.time() - started > PAUSE_MAX_MS / 1_000 else failures + 1
        await sleep(_pause_ms(failures) / 1_000)


async def repeat(work: Work, first_ms: int, interval_ms: int, spawn: Spawn, name: str) -> None:
    """Run `work` after `first_ms`, then repeatedly, `interval_ms` after the end of each run.

    After exceptions, the interval is at least the pause of `keep_running`.
    """
    failures = 0
    await sleep(first_ms / 1_000)
    while True:
        failures = 0 if await _completed(work, spawn, name) else failures + 1
        await sleep(max(interval_ms, _pause_ms(failures) if failures else 0) / 1_000)


def report(exception: Exception, spawn: Spawn, name: str) -> None:
    """Report an unexpected exception of a part of `name` to the owner of the tasks. The other parts go on."""
    spawn(_raise(exception), name)


async def _raise(exception: Exception) -> None:
    raise exception


async def _completed(work: Work, spawn: Spawn, name: str) -> bool:
    """Run `work` as a task. Return False if it has raised an exception."""
    try:
        await spawn(work(), name)
    except CancelledError:
        raise
    except Exception:  # noqa: BLE001  the owner of the task has reported it
        return False
    return True


def _pause_ms(failures: int) -> int:
    return min(PAUSE_FIRST_MS << min(failures - 1, 20), PAUSE_MAX_MS)
