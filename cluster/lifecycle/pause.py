"""A delay that an event ends early."""

from __future__ import annotations

from asyncio import Future, get_running_loop


class Pause:
    """The delay between two requests of one task."""

    def __init__(self) -> None:
        self._current: Future[None] | None = None
        self._skip_next = False

    def interrupt(self) -> None:
        """End the current pause, or skip the next one."""
        self._skip_next = True
        if self._current is not None:
            _finish(self._current)

    async def wait(self, delay_ms: int) -> None:
        """Wait for `delay_ms`, or until `interrupt`."""
        if self._skip_next:
            self._skip_next = False
            return
        self._current = get_running_loop().create_future()
        try:
            await sleep(delay_ms, self._current)
        finally:
            self._current = None
            self._skip_next = False


async def sleep(delay_ms: int, until: Future[None] | None = None) -> None:
    """Wait for `delay_ms`, or until `until` is done."""
    loop = get_running_loop()
    until = loop.create_future() if until is None else until
    handle = loop.call_later(delay_ms / 1_000, _finish, until)
    try:
        await until
    finally:
        handle.cancel()


def _finish(future: Future[None]) -> None:
    if not future.done():
        future.set_result(None)
