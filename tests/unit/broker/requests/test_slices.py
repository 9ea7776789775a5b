"""Large responses are built between other work of the event loop, small ones without a coroutine."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from odradek.broker.requests.slices import collect, completed
from odradek.broker.requests.splitting import ELEMENTS_PER_PART

if TYPE_CHECKING:
    from collections.abc import Iterator


class Context:
    encode_in_slices = False


@pytest.fixture
def context() -> Any:
    return Context()


def test_small_response_is_built_without_a_coroutine(context: Any) -> None:
    results = ((number, [0] * 10) for number in range(ELEMENTS_PER_PART // 10))
    assert collect(context, results, ELEMENTS_PER_PART, sum) == sum(range(ELEMENTS_PER_PART // 10))
    assert not context.encode_in_slices


async def test_large_response_is_built_in_bounded_pieces(context: Any) -> None:
    """Count the elements between two turns of another task."""
    topics, partitions = 400, 20
    since_turn, largest = 0, 0

    async def other_work() -> None:
        nonlocal since_turn
        while True:
            since_turn = 0
            await asyncio.sleep(0)

    def results() -> Iterator[tuple[int, list[int]]]:
        nonlocal since_turn, largest
        for number in range(topics):
            since_turn += partitions
            largest = max(largest, since_turn)
            yield number, [0] * partitions

    other = asyncio.create_task(other_work())
    assert await completed(collect(context, results(), topics * partitions, list)) == list(range(topics))
    other.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await other
    assert 0 < largest <= ELEMENTS_PER_PART + partitions
    assert context.encode_in_slices
