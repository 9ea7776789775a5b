"""An event loop in a thread: synchronous and asynchronous tests run client operations on it in the same way."""

from __future__ import annotations

import asyncio
from threading import Thread, current_thread
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")

OPERATION_TIMEOUT_S = 60.0
"""Maximum seconds of one operation. The client gives up earlier, so that its error names the problem."""
JOIN_TIMEOUT_S = 5.0
"""Maximum seconds for the end of the thread."""


class Background:
    """Event loop that runs in a daemon thread until `close`."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T], timeout_s: float = OPERATION_TIMEOUT_S) -> T:
        """Run `coroutine` on the event loop, and return its result. Raise TimeoutError after `timeout_s` seconds.

        Raise RuntimeError in the thread of the event loop, which would wait for itself.
        """
        if current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError("a function of when= must not wait, and not change rules; use call() for that")
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return future.result(timeout_s)
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """End the thread. Cancel the operations that run."""
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(JOIN_TIMEOUT_S)

    def _run(self) -> None:
        try:
            self.loop.run_forever()
            self.loop.run_until_complete(_cancel_all())
        finally:
            self.loop.close()


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
