from __future__ import annotations

import asyncio
from collections import deque

import pytest

from odradek.coordinator.txn import producer_ids
from odradek.coordinator.txn.producer_ids import ProducerIdPool
from odradek.protocol.errors import ErrorCode, Refusal


class Controller:
    """Fake controller. It returns the blocks, or raises the exceptions, that the test has queued."""

    def __init__(self, *answers: tuple[int, int] | Exception) -> None:
        self.answers = deque(answers)
        self.asked = 0
        self.tasks: list[asyncio.Task[None]] = []

    async def allocate(self) -> tuple[int, int]:
        self.asked += 1
        answer = self.answers.popleft()
        if isinstance(answer, Exception):
            raise answer
        return answer

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
    assert controller.asked == 1
    assert not controller.tasks
    assert pool.take() == 899
    await controller.settle()
    assert controller.asked == 2
    assert [pool.take() for _ in range(101)] == [*range(900, 1_000), 5_000]


async def test_take_without_ids_is_refused_as_loading_and_requests_a_block() -> None:
    controller = Controller((7, 1))
    pool = controller.pool()
    for _ in range(3):
        with pytest.raises(Refusal) as refusal:
            pool.take()
        assert refusal.value.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await controller.settle()
    assert controller.asked == 1
    controller.answers.append((8, 1))
    assert pool.take() == 7


@pytest.mark.parametrize("failure", [Refusal(ErrorCode.NOT_CONTROLLER), ConnectionError("gone")])
async def test_failed_allocation_is_retried(failure: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_ids, "RETRY_BACKOFF_S", 0)
    controller = Controller(failure, failure, (3, 10))
    pool = controller.pool()
    pool.prefetch()
    await controller.settle()
    assert controller.asked == 3
    assert pool.take() == 3


@pytest.mark.parametrize("bad", [(0, 10), (9, 10), (20, 0)])
async def test_block_with_known_ids_is_refused(bad: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_ids, "RETRY_BACKOFF_S", 0)
    controller = Controller((0, 10), bad, (10, 10))
    pool = controller.pool()
    pool.prefetch()
    await controller.settle()
    taken = [pool.take() for _ in range(9)]
    await controller.settle()
    taken += [pool.take() for _ in range(3)]
    assert taken == list(range(12))
