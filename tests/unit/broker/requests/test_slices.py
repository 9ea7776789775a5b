"""Large responses are built between other work of the event loop, small ones without a coroutine."""

from __future__ import annotations

import asyncio
import contextlib
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from odradek.broker.requests.slices import RUN_BYTES_MAX, collect, collect_charged, completed
from odradek.broker.requests.splitting import ELEMENTS_PER_PART
from odradek.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@pytest.fixture
def context() -> Any:
    return SimpleNamespace(encode_in_slices=False, session=SimpleNamespace(begin_large=None))


def response(topics: list[MetadataResponseTopic]) -> MetadataResponse:
    return MetadataResponse(topics=topics)


def topics(count: int) -> list[MetadataResponseTopic]:
    return [MetadataResponseTopic(name=f"t{number}") for number in range(count)]


def test_small_response_is_built_without_a_coroutine(context: Any) -> None:
    expected = topics(ELEMENTS_PER_PART // 10)
    results = ((topic, [0] * 10) for topic in expected)
    assert collect(context, MetadataResponse, results, ELEMENTS_PER_PART, response) == response(expected)
    assert not context.encode_in_slices


async def test_large_response_is_built_in_bounded_pieces(context: Any) -> None:
    """Count the elements between two turns of another task."""
    expected, partitions = topics(400), 20
    since_turn, largest = 0, 0

    async def other_work() -> None:
        nonlocal since_turn
        while True:
            since_turn = 0
            await asyncio.sleep(0)

    def results() -> Iterator[tuple[MetadataResponseTopic, list[int]]]:
        nonlocal since_turn, largest
        for topic in expected:
            since_turn += partitions
            largest = max(largest, since_turn)
            yield topic, [0] * partitions

    other = asyncio.create_task(other_work())
    total = len(expected) * partitions
    built = await completed(collect(context, MetadataResponse, results(), total, response))
    assert built == response(expected)
    other.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await other
    assert 0 < largest <= ELEMENTS_PER_PART + partitions
    assert context.encode_in_slices


class Work:
    """Fake work on a large request: it records the reserved bytes, the turns and the encoded elements."""

    def __init__(self) -> None:
        self.held = 0
        self.turns: list[int] = []
        """Reserved bytes at each turn."""
        self.built: list[tuple[int, list[str]]] = []
        """(Reserved bytes, items) at each call of `results_of`."""

    async def turn(self) -> None:
        self.turns.append(self.held)
        await asyncio.sleep(0)

    @contextlib.contextmanager
    def reserved(self, count: int) -> Iterator[None]:
        self.held += count
        yield
        self.held -= count

    async def pack(self, message: type[MetadataResponse], elements: list[Any]) -> tuple[str, ...]:
        assert message is MetadataResponse
        return tuple(element.name for element in elements)

    async def results_of(self, names: Sequence[str]) -> list[MetadataResponseTopic]:
        self.built.append((self.held, list(names)))
        return [MetadataResponseTopic(name=name) for name in names if name != "hidden"]


class Charges:
    """Fake session that records the bytes that are reserved until the response is sent."""

    def __init__(self, work: Work | None) -> None:
        self.bytes: list[int] = []
        self.charge = self.bytes.append
        self.begin_large = None if work is None else lambda _context: contextlib.nullcontext(work)


async def test_small_results_are_reserved_until_the_response_and_built_in_one_piece() -> None:
    work = Work()
    context: Any = SimpleNamespace(charge=1, encode_in_slices=False, session=Charges(work))
    names = ["a", "hidden", "b"]
    built = await completed(
        collect_charged(context, MetadataResponse, names, lambda _name: RUN_BYTES_MAX // 3, work.results_of, response)
    )
    assert [topic.name for topic in built.topics] == ["a", "b"]
    assert (context.session.bytes, context.charge) == ([RUN_BYTES_MAX // 3 * 3], 1 + RUN_BYTES_MAX // 3 * 3)
    assert (work.turns, work.built, context.encode_in_slices) == ([], [(0, names)], False)


async def test_large_results_are_reserved_before_they_are_built_and_encoded_in_runs() -> None:
    work = Work()
    context: Any = SimpleNamespace(charge=0, encode_in_slices=False, session=Charges(work))
    sizes = {"a": 1, "b": RUN_BYTES_MAX - 1, "huge": 10 * RUN_BYTES_MAX, "hidden": RUN_BYTES_MAX, "c": 5}
    built = await completed(
        collect_charged(context, MetadataResponse, list(sizes), sizes.__getitem__, work.results_of, response)
    )
    assert built.topics == [("a", "b"), ("huge",), ("c",)]
    assert work.built == [
        (RUN_BYTES_MAX, ["a", "b"]),
        (10 * RUN_BYTES_MAX, ["huge"]),
        (RUN_BYTES_MAX, ["hidden"]),
        (5, ["c"]),
    ]
    assert set(work.turns) == {0}, "nothing is held while the request waits for the byte budget"
    assert len(work.turns) > len(work.built)
    assert (context.session.bytes, context.encode_in_slices) == ([], True)


async def test_large_results_of_a_forwarded_request_are_built_in_one_piece() -> None:
    work = Work()
    context: Any = SimpleNamespace(charge=0, encode_in_slices=False, session=Charges(None))
    built = await completed(
        collect_charged(context, MetadataResponse, ["a"], lambda _name: 2 * RUN_BYTES_MAX, work.results_of, response)
    )
    assert [topic.name for topic in built.topics] == ["a"]
    assert not context.encode_in_slices
