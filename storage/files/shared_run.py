"""Share runs of one asynchronous piece of work among all callers that wait for it."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator


class SharedRun:
    """Run `work` for many callers. One run is active at a time, and all calls during it share the next one.

    So n calls at the same time cost two runs, and each call returns after a run that began after the call.
    """

    def __init__(self, work: Callable[[], Awaitable[None]]) -> None:
        self._work = work
        self._requested = 0
        """Number of calls of `run`."""
        self._completed = 0
        """Number of calls of `run` that the last successful run covers."""
        self._running: asyncio.Future[None] | None = None

    async def run(self) -> None:
        """Return after a run that began after this call. Raise the exception of that run if this call has started it.

        If a shared run fails, the next of its callers repeats it.
        """
        self._requested += 1
        request = self._requested
        while self._running is not None:
            await asyncio.shield(self._running)
            if self._completed >= request:
                return
        covered = self._requested
        with self._sole_run():
            await self._work()
            self._completed = covered

    async def run_alone(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run other work while no run is active. Raise the exceptions of `work`."""
        while self._running is not None:
            await asyncio.shield(self._running)
        with self._sole_run():
            await work()

    @contextmanager
    def _sole_run(self) -> Iterator[None]:
        done = self._running = asyncio.get_running_loop().create_future()
        try:
            yield
        finally:
            self._running = None
            done.set_result(None)
