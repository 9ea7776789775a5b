"""Large requests and responses are processed between other work of the event loop, small ones in one piece."""

from __future__ import annotations

import asyncio
import contextlib
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from odradek.broker.apis import create_partitions, elect_leaders
from odradek.broker.requests.slices import collect, completed, respond_in_parts, visit_parts
from odradek.broker.requests.splitting import ELEMENTS_PER_PART, Splitting
from odradek.cluster.controller.messages.partitions import PartitionResult
from odradek.cluster.controller.messages.topics import TopicResult
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from odradek.protocol.messages.elect_leaders import PartitionResult as Row
from odradek.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from tests.support.broker_context import FakeController, image
from tests.support.broker_context import context as context_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

TOPICS = Splitting(("topics",), ("topics",))


@pytest.fixture
def context() -> Any:
    return SimpleNamespace(encode_in_slices=False, session=SimpleNamespace(begin_large=None))


class Count:
    """Number of elements that are processed between two turns of another task."""

    def __init__(self) -> None:
        self.largest = self._since_turn = 0

    def add(self, count: int) -> None:
        self._since_turn += count
        self.largest = max(self.largest, self._since_turn)

    async def during(self, work: Awaitable[Any]) -> Any:
        other = asyncio.create_task(self._other_work())
        result = await work
        other.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await other
        return result

    async def _other_work(self) -> None:
        while True:
            self._since_turn = 0
            await asyncio.sleep(0)


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
    expected, partitions, count = topics(400), 20, Count()

    def results() -> Iterator[tuple[MetadataResponseTopic, list[int]]]:
        for topic in expected:
            count.add(partitions)
            yield topic, [0] * partitions

    total = len(expected) * partitions
    built = await count.during(completed(collect(context, MetadataResponse, results(), total, response)))
    assert built == response(expected)
    assert 0 < count.largest <= ELEMENTS_PER_PART + partitions
    assert context.encode_in_slices


@pytest.mark.parametrize("parts", [1, 4])
async def test_parts_of_a_large_request_are_visited_with_turns_in_between(parts: int) -> None:
    names = [f"t{number}" for number in range(parts * ELEMENTS_PER_PART)]
    request = MetadataRequest([MetadataRequestTopic(name=name) for name in names])
    visited: list[str | None] = []
    count = Count()

    def visit(part: MetadataRequest) -> None:
        assert part.topics is not None
        count.add(len(part.topics))
        visited.extend(topic.name for topic in part.topics)

    await count.during(visit_parts(TOPICS, request, visit))
    assert visited == names
    assert count.largest == ELEMENTS_PER_PART


@pytest.mark.parametrize("parts", [1, 4])
async def test_items_of_a_large_response_are_responded_to_with_turns_in_between(context: Any, parts: int) -> None:
    expected, count = topics(parts * ELEMENTS_PER_PART), Count()

    def respond(part: Sequence[MetadataResponseTopic]) -> MetadataResponse:
        count.add(len(part))
        return response(list(part))

    built = await count.during(respond_in_parts(context, TOPICS, MetadataResponse, expected, respond))
    assert built == response(expected)
    assert count.largest == ELEMENTS_PER_PART
    assert context.encode_in_slices == (parts > 1)


# ---- handlers -------------------------------------------------------------------------------------------------------


def counted(count: Count, make: Callable[..., Any]) -> Callable[..., Any]:
    def make_and_count(*arguments: Any, **named: Any) -> Any:
        count.add(1)
        return make(*arguments, **named)

    return make_and_count


async def test_large_election_is_requested_and_responded_to_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    indexes = range(4 * ELEMENTS_PER_PART)
    topics = [TopicPartitions("a", list(indexes)), TopicPartitions("b", [0, 0])]
    unique = [*(("a", index) for index in indexes), ("b", 0)]
    controller = FakeController([PartitionResult(topic, index, ErrorCode.NONE) for topic, index in unique])
    count = Count()
    monkeypatch.setattr(elect_leaders, "PartitionResult", counted(count, Row))
    handled = elect_leaders.handle(context_of(2, image(), controller=controller), ElectLeadersRequest(0, topics))
    built = await count.during(handled)
    assert [partition for call, _ in controller.calls for partition in call] == unique
    results = built.replica_election_results
    rows = [(topic.topic, row.partition_id) for topic in results for row in topic.partition_result]
    assert rows == unique
    assert [topic.topic for topic in results] == ["a", "b"]
    assert 0 < count.largest <= ELEMENTS_PER_PART


async def test_large_request_for_partitions_is_processed_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"t{number}" for number in range(4 * ELEMENTS_PER_PART)]
    controller = FakeController([TopicResult(name) for name in names])
    accepted, built = Count(), Count()
    monkeypatch.setattr(create_partitions, "_new_partitions", counted(accepted, create_partitions._new_partitions))
    monkeypatch.setattr(create_partitions, "_result", counted(built, create_partitions._result))
    request = CreatePartitionsRequest([CreatePartitionsTopic(name, 3, None) for name in names])
    handled = create_partitions.handle(context_of(3, image(), controller=controller), request)
    response = await accepted.during(built.during(handled))
    assert [topic.name for call, _ in controller.calls for topic in call] == names
    assert [row.name for row in response.results] == names
    assert (accepted.largest, built.largest) == (ELEMENTS_PER_PART, ELEMENTS_PER_PART)
