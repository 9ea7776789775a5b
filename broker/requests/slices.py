"""Build a large response between other work of the event loop."""

from asyncio import sleep
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from typing import Any, TypeVar

from odradek.broker.requests.api import Ordered
from odradek.broker.requests.context import RequestContext
from odradek.broker.requests.large_work import LargeWork
from odradek.broker.requests.splitting import ELEMENTS_PER_PART
from odradek.protocol.schema import Message

R = TypeVar("R", bound=Message)


def collect(
    context: RequestContext,
    message: type[R],
    results: Iterable[tuple[Any, Sized]],
    total: int,
    finish: Callable[[list[Any]], R],
) -> R | Ordered[R]:
    """Return `finish` of the list of results, which is an array of the response `message`.

    `results` yields each result with its nested array, of which `total` is the number of elements. With more than
    ELEMENTS_PER_PART elements, stage one waits: it builds about ELEMENTS_PER_PART elements per turn of the event loop.
    The list then has the results in their encoded form, and the response is encoded in slices.
    """
    if total <= ELEMENTS_PER_PART:
        return finish([result for result, _ in results])
    context.encode_in_slices = True
    return Ordered(_collect_in_slices(context, message, results, finish))


@contextmanager
def large_work(context: RequestContext) -> Iterator[LargeWork | None]:
    """Begin work on the large request of `context`, or continue it; None if the request has no connection."""
    begin = context.session.begin_large
    if begin is None:
        yield None
        return
    with begin(context) as work:
        yield work


async def turn(work: LargeWork | None) -> None:
    """Let other work run, and wait until the request may go on. Raise RequestDropped if it may not."""
    await (sleep(0) if work is None else work.turn())


async def _collect_in_slices(
    context: RequestContext,
    message: type[R],
    results: Iterable[tuple[Any, Sized]],
    finish: Callable[[list[Any]], R],
) -> R:
    with large_work(context) as work:
        return finish(await _collected(message, results, work))


async def _collected(message: type[R], results: Iterable[tuple[Any, Sized]], work: LargeWork | None) -> list[Any]:
    collected: list[Any] = []
    fresh: list[Any] = []
    count = 0
    for result, nested in results:
        fresh.append(result)
        count += 1 + len(nested)
        if count > ELEMENTS_PER_PART:
            count = 0
            if work is not None:
                collected.append(await work.pack(message, fresh))
                fresh = []
            await turn(work)
    return collected + fresh


async def completed(result: R | Ordered[R] | Awaitable[R]) -> R:
    """Return a result of `collect`."""
    if isinstance(result, Ordered):
        complete: R = await result.awaitable  # type: ignore[assignment]  # `collect` yields the response itself
        return complete
    return await result if isinstance(result, Awaitable) else result
