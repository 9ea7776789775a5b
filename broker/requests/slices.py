"""Build a large response between other work of the event loop."""

from asyncio import sleep
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence, Sized
from contextlib import ExitStack, contextmanager
from itertools import chain
from typing import Any, Final, TypeVar

from odradek.broker.requests.api import Ordered
from odradek.broker.requests.context import RequestContext
from odradek.broker.requests.joining import JoinedResponse
from odradek.broker.requests.large_work import LargeWork
from odradek.broker.requests.splitting import ELEMENTS_PER_PART, Splitting
from odradek.protocol.schema import Message

ELEMENT_BYTES: Final = 1_024
"""Maximum bytes of one element of a nested array that `collect` has built, such as a partition of a topic.

One with ten replicas takes about 700 bytes.
"""
RUN_BYTES_MAX: Final = 128 * 1024
"""Maximum bytes of results that are built together, unless one result is larger. A response of at most this size is
built in one piece."""

DISTINCT_BYTES: Final = 250
"""Maximum bytes of one element that `distinct` returns: a tuple, and its entries in dictionaries and lists.

The topic name in the tuple belongs to the request."""

K = TypeVar("K")
R = TypeVar("R", bound=Message)
Q = TypeVar("Q")
T = TypeVar("T")


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

    Work before a result counts, too: (None, piece) for a piece of its nested array. The result comes with the last one.
    """
    if total <= ELEMENTS_PER_PART:
        return finish([result for result, _ in results if result is not None])
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
    count = held = 0
    with ExitStack() as reserved:
        for result, nested in results:
            count += 1 + len(nested)
            if result is not None:
                fresh.append(result)
            if count > ELEMENTS_PER_PART or (held and result is not None):
                if work is not None:
                    reserved.enter_context(work.reserved(count * ELEMENT_BYTES))
                    held += count
                    if result is not None:
                        collected.append(await work.pack(message, fresh))
                        fresh, held = [], 0
                        reserved.close()
                count = 0
                await turn(work)
    return collected + fresh


async def visit_parts(splitting: Splitting, request: Q, visit: Callable[[Q], object]) -> None:
    """Call `visit` with each part of `request`. Let other work run between two parts."""
    for number, (part, _) in enumerate(splitting.parts(request)):
        if number:
            await sleep(0)
        visit(part)


async def visit_slices(context: RequestContext, slices: Iterable[T], visit: Callable[[T], object]) -> None:
    """Call `visit` with each of `slices`. Let other work run between two slices."""
    remaining = iter(slices)
    first, second = next(remaining, None), next(remaining, None)
    if first is not None:
        visit(first)
    if second is None:
        return
    with large_work(context) as work:
        for each in chain((second,), remaining):
            await turn(work)
            visit(each)


async def distinct(
    context: RequestContext, splitting: Splitting, request: Q, elements_of: Callable[[Q], Iterable[K]]
) -> list[K]:
    """Return the distinct elements of a large request, in their order. Let other work run between two parts.

    DISTINCT_BYTES per element are reserved in the byte budget until the response is sent.
    """
    found: dict[K, None] = {}

    def add(part: Q) -> None:
        before = len(found)
        found.update(dict.fromkeys(elements_of(part)))
        context.reserve(DISTINCT_BYTES * (len(found) - before))

    await visit_parts(splitting, request, add)
    return list(found)


async def respond_in_parts(
    context: RequestContext,
    splitting: Splitting,
    message: type[R],
    items: Sequence[T],
    respond: Callable[[Sequence[T]], R],
) -> R:
    """Return `respond(items)`, a response of the class `message`.

    With more than ELEMENTS_PER_PART items, about as many are responded to per turn of the event loop, and the responses
    are joined (`JoinedResponse`).
    """
    if len(items) <= ELEMENTS_PER_PART:
        return respond(items)
    context.encode_in_slices = True
    joined = JoinedResponse(splitting, message)
    with large_work(context) as work:
        for start in range(0, len(items), ELEMENTS_PER_PART):
            part = respond(items[start : start + ELEMENTS_PER_PART])
            await joined.add(part, len(splitting.response) - 1, work)
            await turn(work)
    response: R = joined.response
    return response


async def completed(result: R | Ordered[R] | Awaitable[R]) -> R:
    """Return a result of `collect`."""
    if isinstance(result, Ordered):
        complete: R = await result.awaitable  # type: ignore[assignment]  # `collect` yields the response itself
        return complete
    return await result if isinstance(result, Awaitable) else result


def collect_charged(
    context: RequestContext,
    message: type[R],
    items: Sequence[K],
    bytes_max: Callable[[K], int],
    results_of: Callable[[Sequence[K]], Awaitable[list[Any]]],
    finish: Callable[[list[Any]], R],
) -> Ordered[R]:
    """Return `finish` of the results of `items`, which are an array of the response `message`.

    The size of the results does not follow from the request. `bytes_max` returns the maximum memory of the results of
    an item, and of their encoded form. It is reserved in the byte budget before `results_of` builds the results of some
    items. With more than RUN_BYTES_MAX bytes, stage one builds runs of items one after the other, and waits
    before each run while the budget is exhausted. `finish` then receives the results in their encoded form, and the
    response is encoded in slices.

    `bytes_max` should return the same for a denied item as for an absent one: a client can measure the turns.
    """
    total = 0
    for item in items:
        total += bytes_max(item)
        if total > RUN_BYTES_MAX and context.session.begin_large is not None:
            context.encode_in_slices = True
            return Ordered(_collect_charged(context, message, items, bytes_max, results_of, finish))
    context.reserve(total)
    return Ordered(_collect_in_one_piece(items, results_of, finish))


async def _collect_in_one_piece(
    items: Sequence[K], results_of: Callable[[Sequence[K]], Awaitable[list[Any]]], finish: Callable[[list[Any]], R]
) -> R:
    return finish(await results_of(items))


async def _collect_charged(
    context: RequestContext,
    message: type[R],
    items: Sequence[K],
    bytes_max: Callable[[K], int],
    results_of: Callable[[Sequence[K]], Awaitable[list[Any]]],
    finish: Callable[[list[Any]], R],
) -> R:
    begin = context.session.begin_large
    assert begin is not None
    collected: list[Any] = []
    with begin(context) as work:
        runs = _runs(items, bytes_max)
        while True:
            await work.turn()
            run, count = next(runs, ((), 0))  # a size is current only until the next turn
            if not run:
                return finish(collected)
            with work.reserved(count):
                results = await results_of(run)
                if results:
                    collected.append(await work.pack(message, results))
                del results


def _runs(items: Sequence[K], bytes_max: Callable[[K], int]) -> Iterator[tuple[Sequence[K], int]]:
    """Yield runs of consecutive items, with the maximum bytes of their results: one item, or RUN_BYTES_MAX bytes."""
    run: list[K] = []
    total = 0
    for item in items:
        count = bytes_max(item)
        if run and total + count > RUN_BYTES_MAX:
            yield run, total
            run, total = [], 0
            count = bytes_max(item)
        run.append(item)
        total += count
    if run:
        yield run, total
