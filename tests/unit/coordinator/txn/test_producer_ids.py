"""Allocation of producer ids in blocks."""

from __future__ import annotations

import asyncio
from collections import deque

import pytest

from odradek.coordinator.txn import producer_ids
from odradek.coordinator.txn.producer_ids import ProducerIdPool
from odradek.protocol.errors import ErrorCode, Refusal


class Controller:
    """Fake controller. It returns the blocks, or raises the exceptions, that the test has queued."""

    def __init__(self, *results: tuple[int, int] | Exception) -> None:
        self.results = deque(results)
        self.requests = 0
        self.tasks: list[asyncio.Task[None]] = []

    async def allocate(self) -> tuple[int, int]:
        self.requests += 1
        result = self.results.popleft()
        if isinstance(result, Exception):
            raise result
        return result

    def pool(self) -> ProducerIdPool:
        loop = asyncio.get_running_loop()
        return ProducerIdPool(self.allocate, lambda coro, _name: self.tasks.append(loop.create_task(coro)))

    async def settle(self) -> None:
        for task in self.tasks:
            await task
        self.tasks.clear()


async def test_ids_are_ordered_and_the_next_block_is_requested_at_nine_tenths() -> None:
    controller = Controller((0, 1_000), (5_000, 1_000))
    pool = controller.pool()
    pool.prefetch()
    await controller.settle()
    assert [pool.take() for _ in range(899)] == list(range(899))
    assert controller.requests == 1
    assert not controller.tasks
    assert pool.take() == 899
    await controller.settle()
    assert controller.requests == 2
    assert [pool.take() for _ in range(101)] == [*range(900, 1_000), 5_000]


async def test_take_without_ids_is_refused_as_loading_and_requests_a_block() -> None:
    controller = Controller((7, 1))
    pool = controller.pool()
    for _ in range(3):
        with pytest.raises(Refusal) as refusal:
            pool.take()
        assert refusal.value.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await controller.settle()
    assert controller.requests == 1
    controller.results.append((8, 1))
    assert pool.take() == 7


@pytest.mark.parametrize("failure", [Refusal(ErrorCode.NOT_CONTROLLER), ConnectionError("gone")])
async def test_failed_allocation_is_retried(failure: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_ids, "RETRY_BACKOFF_S", 0)
    controller = Controller(failure, failure, (3, 10))
    pool = controller.pool()
    pool.prefetch()
    await controller.settle()
    assert controller.requests == 3
    assert pool.take() == 3


@pytest.mark.parametrize("bad", [(0, 10), (9, 10), (20, 0)])
async def test_empty_or_overlapping_block_is_refused(bad: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_ids, "RETRY_BACKOFF_S", 0)
    controller = Controller((0, 10), bad, (10, 10))
    pool = controller.pool()
    pool.prefetch()
    await controller.settle()
    taken = [pool.take() for _ in range(9)]
    await controller.settle()
    taken += [pool.take() for _ in range(3)]
    assert taken == list(range(12))
