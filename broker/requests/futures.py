"""How a handler that waits comes to its answer: by the futures it waits for, or by a coroutine of its own."""

from asyncio import CancelledError, Future, get_running_loop
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from inspect import iscoroutine
from typing import Any, TypeVar

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Failure:
    """What a handler's coroutine raised. It is an answer, not the failure of a task."""

    exception: Exception


async def outcome(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """What `coroutine` returns, or a Failure."""
    try:
        return await coroutine
    except Exception as exception:  # noqa: BLE001  it becomes an answer at the one boundary, in dispatch
        return Failure(exception)


def when_done(answer: Callable[[], R], *futures: Future[Any]) -> Future[R]:
    """What `answer()` returns or raises once all of `futures` are done. A coroutine that awaits them costs a task."""
    answered: Future[R] = get_running_loop().create_future()
    left = len(futures)

    def done(_future: Future[Any]) -> None:
        nonlocal left
        left -= 1
        if left or answered.done():
            return
        try:
            answered.set_result(answer())
        except CancelledError:
            answered.cancel()
        except Exception as exception:  # noqa: BLE001  it becomes an answer at the one boundary, in dispatch
            answered.set_exception(exception)

    for future in futures:
        future.add_done_callback(done)
    return answered


def discard(future: Future[Any]) -> None:
    """Nobody is left to hear of what has become of `future`, which may be a stage two that has not begun."""
    if not future.cancelled() and future.exception() is None and iscoroutine(stage_two := future.result()):
        stage_two.close()
