"""Large responses are built between other work of the event loop, small ones without a coroutine."""

from __future__ import annotations

import asyncio
import contextlib
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from odradek.broker.requests.slices import collect, completed
from odradek.broker.requests.splitting import ELEMENTS_PER_PART
from odradek.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic

if TYPE_CHECKING:
    from collections.abc import Iterator


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
