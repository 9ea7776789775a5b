"""Requests to several brokers of which one does not respond."""

from __future__ import annotations

import asyncio

import pytest

from odradek.client import Cluster, ConnectionLost, Unreachable
from odradek.client.network.fan_out import FanOut, gathered
from odradek.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tests.support.fake_kafka import FakeKafka, run


def test_a_tolerant_operation_continues_without_a_broker_and_does_not_try_it_again(kafka: FakeKafka) -> None:
    kafka.script(ListGroupsRequest, *[ListGroupsResponse()] * 4)

    async def test() -> None:
        async with Cluster(kafka.bootstrap) as cluster:
            kafka.stop(2)
            fan_out = FanOut(cluster, tolerant=True)
            requests = {node_id: ListGroupsRequest() for node_id in (1, 2, 3)}
            for _ in range(2):
                assert list(await fan_out.request_each(requests)) == [1, 3]
            assert list(fan_out.unreachable) == [2]
            assert kafka.address(2) in fan_out.unreachable[2]
            await kafka.start(2)
            assert list(await fan_out.request_each({2: ListGroupsRequest()})) == []

    run(kafka, test())


def test_without_tolerance_the_first_failure_is_raised_after_all_responses(kafka: FakeKafka) -> None:
    kafka.script(ListGroupsRequest, *[ListGroupsResponse()] * 2)

    async def test() -> None:
        async with Cluster(kafka.bootstrap) as cluster:
            kafka.stop(2)
            with pytest.raises(Unreachable, match=kafka.address(2)):
                await FanOut(cluster).request_each({node_id: ListGroupsRequest() for node_id in (1, 2, 3)})

    run(kafka, test())
    assert len(kafka.of(ListGroupsRequest)) == 2


@pytest.mark.parametrize(
    ("sizes", "expected"), [([], []), ([1] * 100, [100]), ([400_000] * 3, [1, 1, 1]), ([200_000] * 5, [2, 2, 1])]
)
def test_names_of_one_request_have_a_bounded_size(kafka: FakeKafka, sizes: list[int], expected: list[int]) -> None:
    names = [chr(97 + number % 26) * size for number, size in enumerate(sizes)]
    requested: list[list[str]] = []

    def request(part: list[str]) -> ListGroupsRequest:
        requested.append(part)
        return ListGroupsRequest()

    async def test() -> list[int]:
        async with Cluster(kafka.bootstrap) as cluster:
            kafka.script(ListGroupsRequest, *[ListGroupsResponse()] * len(expected))
            return [node_id for node_id, _ in await FanOut(cluster).request_names({2: names}, request)]

    assert run(kafka, test()) == [2] * len(expected)
    assert [len(part) for part in requested] == expected
    assert [name for part in requested for name in part] == names


def test_gathered_raises_the_first_exception_in_order_and_leaves_no_task(kafka: FakeKafka) -> None:
    async def fail(seconds: float, error: Exception) -> None:
        await asyncio.sleep(seconds)
        raise error

    async def test() -> None:
        with pytest.raises(ConnectionLost, match="first"):
            await gathered(fail(2, ConnectionLost("first")), fail(1, ConnectionLost("second")), asyncio.sleep(3))
        assert kafka.loop.time() >= 3

    kafka.loop.run_until_complete(test())
