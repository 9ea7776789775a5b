"""Futures of responses: run a handler's coroutine, and respond when several futures are done."""

from asyncio import CancelledError, Future, get_running_loop
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from inspect import iscoroutine
from typing import Any, TypeVar

from odradek.runtime.tasks import Tasks

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Failure:
    """Exception that a handler's coroutine raised. The dispatcher turns it into an error response."""

    exception: Exception


async def result_or_failure(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Return the result of `coroutine`, or a `Failure` if it raises an exception."""
    try:
        return await coroutine
    except Exception as exception:  # noqa: BLE001  the dispatcher makes an error response of it
        return Failure(exception)


def future_of(awaitable: Awaitable[Any], tasks: Tasks) -> Future[Any]:
    """Return the future of `awaitable`: a future itself, or a coroutine, which runs as one of `tasks`.

    The result of a coroutine that raises is a `Failure`.
    """
    if isinstance(awaitable, Future):
        return awaitable
    assert iscoroutine(awaitable), awaitable
    task = tasks.spawn(result_or_failure(awaitable), "request")
    task.add_done_callback(lambda _: awaitable.close())  # a task that is cancelled early has not begun its coroutine
    return task


def when_done(make_response: Callable[[], R], *futures: Future[Any]) -> Future[R]:
    """Return a future of the result of `make_response()`, which is called when all of `futures` are done.

    An exception of `make_response` becomes the exception of the future. This saves the task that a coroutine would
    need.
    """
    response: Future[R] = get_running_loop().create_future()
    pending = len(futures)

    def done(_future: Future[Any]) -> None:
        nonlocal pending
        pending -= 1
        if pending or response.done():
            return
        try:
            response.set_result(make_response())
        except CancelledError:
            response.cancel()
        except Exception as exception:  # noqa: BLE001  the dispatcher makes an error response of it
            response.set_exception(exception)

    for future in futures:
        future.add_done_callback(done)
    return response


def close_unstarted_response(future: Future[Any]) -> None:
    """Discard the result of `future` after its connection has closed.

    The result of a stage one can be the coroutine of a stage two that has not started; it is closed, since asyncio
    warns of coroutines that are never awaited.
    """
    if not future.cancelled() and future.exception() is None and iscoroutine(stage_two := future.result()):
        stage_two.close()


def result_of(future: "Future[Any]") -> Any:
    """Return the result of `future`, which is done. Raise the exception of a `Failure`."""
    result = future.result()
    if isinstance(result, Failure):
        raise result.exception
    return result
