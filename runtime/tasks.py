"""An owner of asyncio tasks that starts, reports and cancels them in order.

`asyncio.TaskGroup` cancels, and `asyncio.wait` returns, in the order of a set, which no seed can reproduce.
"""

from asyncio import CancelledError, Task, get_running_loop
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

Spawn = Callable[[Coroutine[Any, Any, Any], str], Any]
"""Start a coroutine as a task with a name (`Tasks.spawn`)."""


class Tasks:
    """Every task has one owner. An exception in a task is reported at once and never lost."""

    def __init__(self, on_exception: Callable[[str, BaseException], None]) -> None:
        """`on_exception(name of the task, exception)` is called on the loop; a cancelled task is not reported."""
        self._on_exception = on_exception
        self._tasks: dict[Task[Any], str] = {}
        self._closed = False

    def __len__(self) -> int:
        """Tasks that still run."""
        return len(self._tasks)

    def spawn(self, coro: Coroutine[Any, Any, Any], name: str) -> Task[Any]:
        """Start `coro`. Raises RuntimeError (and closes `coro`) after `cancel_all`."""
        if self._closed:
            coro.close()
            raise RuntimeError(f"no task is started after the end: {name}")
        task = get_running_loop().create_task(coro, name=name)
        self._tasks[task] = name
        task.add_done_callback(self._done)
        return task

    async def cancel_all(self) -> None:
        """Cancel the tasks one by one, latest first, each one ended before the next is told."""
        self._closed = True
        while self._tasks:
            task = next(reversed(self._tasks))
            task.cancel()
            with suppress(BaseException):  # a failure is reported by `_done`; the others must still be ended
                await task
            if not task.done():  # it was us who were cancelled while waiting
                raise CancelledError
            self._tasks.pop(task, None)

    def _done(self, task: Task[Any]) -> None:
        name = self._tasks.pop(task, task.get_name())
        if not task.cancelled() and (exception := task.exception()) is not None:
            self._on_exception(name, exception)
