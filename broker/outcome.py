"""What comes out of a handler's coroutine: a value or a failure, never the failure of a task."""

from collections.abc import Coroutine
from dataclasses import dataclass
from inspect import iscoroutine
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asyncio import Future


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


def discard(future: "Future[Any]") -> None:
    """Nobody is left to hear of what has become of `future`, which may be a stage two that has not begun."""
    if not future.cancelled() and future.exception() is None and iscoroutine(stage_two := future.result()):
        stage_two.close()
