"""Start, report and cancel asyncio tasks in a deterministic order.

`asyncio.TaskGroup` and `asyncio.wait` use sets of tasks. Their order depends on addresses, so a simulation could not
reproduce it from its seed.
"""

from asyncio import CancelledError, Task, get_running_loop
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

Spawn = Callable[[Coroutine[Any, Any, Any], str], Any]
"""Function that starts a coroutine as a task with a name (`Tasks.spawn`)."""


class Tasks:
    """Owner of tasks. An exception of a task is reported when the task ends."""

    def __init__(self, on_exception: Callable[[str, BaseException], None]) -> None:
        """Create an owner without tasks.

        `on_exception(name of the task, exception)` is called on the event loop. A cancelled task is not reported.
        """
        self._on_exception = on_exception
        self._tasks: dict[Task[Any], str] = {}
        self._closed = False

    def __len__(self) -> int:
        """Return the number of tasks that run."""
        return len(self._tasks)

    def spawn(self, coro: Coroutine[Any, Any, Any], name: str) -> Task[Any]:
        """Start `coro` as a task. After `cancel_all`, close `coro` and raise RuntimeError."""
        if self._closed:
            coro.close()
            raise RuntimeError(f"task {name} was not started: its owner has cancelled all tasks")
        task = get_running_loop().create_task(coro, name=name)
        self._tasks[task] = name
        task.add_done_callback(self._done)
        return task

    async def cancel_all(self) -> None:
        """Cancel the tasks in reverse order of their start. Wait for the end of each before the next is cancelled."""
        self._closed = True
        while self._tasks:
            task = next(reversed(self._tasks))
            task.cancel()
            with suppress(BaseException):  # `_done` reports a failure; the remaining tasks must still end
                await task
            if not task.done():  # the caller of this method was cancelled during the await
                raise CancelledError
            self._tasks.pop(task, None)

    def _done(self, task: Task[Any]) -> None:
        name = self._tasks.pop(task, task.get_name())
        if not task.cancelled() and (exception := task.exception()) is not None:
            self._on_exception(name, exception)
