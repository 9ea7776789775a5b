"""Calls of functions of the test by rules, each in a thread of its own. A function may wait for another request."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

CALLS_MAX = 64
"""Maximum functions of one cluster that run at the same time. Each has a thread."""


class TooManyCalls(RuntimeError):
    """The maximum number of functions of rules run, so that one more request is handled without its function."""


class FunctionCalls:
    """Functions that run. The threads are daemons: a function that never returns does not hold up the end of pytest."""

    def __init__(self) -> None:
        self._running: dict[Thread, Future[Any]] = {}

    async def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call the function, and return its result, or None if the call is abandoned.

        Raise what the function raises, and TooManyCalls if CALLS_MAX functions run.
        """
        if len(self._running) >= CALLS_MAX:
            raise TooManyCalls(f"{CALLS_MAX} functions of rules wait; end them before further requests arrive")
        result: Future[Any] = Future()

        def call() -> None:
            try:
                with suppress(InvalidStateError):  # abandoned meanwhile
                    try:
                        result.set_result(function(*arguments))
                    except StopIteration as error:  # a future cannot have it
                        result.set_exception(RuntimeError(f"the function raised {error!r}"))
                    except BaseException as error:  # noqa: BLE001  pytest.fail raises a BaseException
                        result.set_exception(error)
            finally:
                del self._running[thread]

        thread = Thread(target=call, name="odradek-rule", daemon=True)
        self._running[thread] = result
        thread.start()
        return await asyncio.wrap_future(result)

    def abandon(self) -> None:
        """End the wait for all results with None. The threads end with their functions."""
        for result in list(self._running.values()):
            with suppress(InvalidStateError):
                result.set_result(None)
