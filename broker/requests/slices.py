"""Build a large response between other work of the event loop."""

from asyncio import sleep
from collections.abc import Awaitable, Callable, Iterable, Sized
from typing import TypeVar

from odradek.broker.requests.context import RequestContext
from odradek.broker.requests.splitting import ELEMENTS_PER_PART

T = TypeVar("T")
R = TypeVar("R")


def collect(
    context: RequestContext, results: Iterable[tuple[T, Sized]], total: int, finish: Callable[[list[T]], R]
) -> R | Awaitable[R]:
    """Return `finish` of the list of results. With more than ELEMENTS_PER_PART elements, return a coroutine of it.

    `results` yields each result with its nested array, of which `total` is the number of elements. The coroutine builds
    about ELEMENTS_PER_PART elements per turn of the event loop, and the response is encoded in slices.
    """
    if total <= ELEMENTS_PER_PART:
        return finish([result for result, _ in results])
    context.encode_in_slices = True
    return _collect_in_slices(results, finish)


async def _collect_in_slices(results: Iterable[tuple[T, Sized]], finish: Callable[[list[T]], R]) -> R:
    collected: list[T] = []
    count = 0
    for result, nested in results:
        collected.append(result)
        count += 1 + len(nested)
        if count > ELEMENTS_PER_PART:
            count = 0
            await sleep(0)
    return finish(collected)


async def completed(result: R | Awaitable[R]) -> R:
    """Return a result of `collect`."""
    return await result if isinstance(result, Awaitable) else result
