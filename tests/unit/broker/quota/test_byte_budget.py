"""The byte budget of all connections: pauses, turns above the budget, and capacity for responses."""

import asyncio
import itertools

from odradek.broker.quota.byte_budget import ByteBudget

MIB = 1024 * 1024
BUDGET, FRAME = 512 * MIB, 100 * MIB


class Reader:
    def __init__(self, budget: ByteBudget, log: list[str], name: str) -> None:
        self.budget, self.log, self.name = budget, log, name
        self.held_bytes = 0

    def may_read(self) -> bool:
        return self.budget.may_read(self, self.held_bytes, lambda: self.log.append(self.name))


def test_readers_resume_in_the_order_in_which_they_paused() -> None:
    budget, log = ByteBudget(100), list[str]()
    a, b, c = (Reader(budget, log, name) for name in "abc")
    budget.reserve(100)
    assert c.may_read(), "the first reader above the budget has the turn"
    assert not b.may_read()
    assert not a.may_read()
    assert not b.may_read()
    budget.release(1)
    assert log == ["b", "a"]


def test_reader_with_few_bytes_may_read_when_the_budget_is_used_up() -> None:
    budget, log = ByteBudget(512 * 1024 * 1024), list[str]()
    first, second, small = (Reader(budget, log, name) for name in ("first", "second", "small"))
    budget.reserve(600 * 1024 * 1024)
    first.held_bytes = second.held_bytes = 64 * 1024
    small.held_bytes = 64 * 1024 - 1
    assert first.may_read(), "the first reader above the budget has the turn"
    assert not second.may_read()
    assert small.may_read()


def test_responses_that_are_never_read_do_not_use_up_the_budget() -> None:
    budget = ByteBudget(512 * 1024 * 1024)
    capacities = []
    for _ in range(1_000):
        capacities.append(budget.response_capacity())
        budget.reserve(capacities[-1])
    assert capacities[0] == 64 * 1024 * 1024
    assert all(later <= earlier for earlier, later in itertools.pairwise(capacities))
    assert budget.used_bytes <= budget.limit_bytes
    budget.reserve(budget.limit_bytes)
    assert budget.response_capacity() == 0


def test_above_the_budget_one_reader_continues_until_its_response() -> None:
    budget, log = ByteBudget(100), list[str]()
    a, b = Reader(budget, log, "a"), Reader(budget, log, "b")
    budget.reserve(100)
    assert a.may_read()
    assert not b.may_read()
    assert a.may_read(), "the reader keeps the turn until its request is complete"
    budget.request_started(a)
    assert not a.may_read(), "no further request before the response"
    assert log == []
    budget.request_completed(a)
    assert log == ["b"], "the response passes the turn to the next reader"
    assert b.may_read()
    assert not a.may_read()


def test_response_to_an_earlier_request_keeps_the_turn_of_a_reader() -> None:
    budget, log = ByteBudget(100), list[str]()
    a, b = Reader(budget, log, "a"), Reader(budget, log, "b")
    budget.reserve(100)
    assert a.may_read()
    assert not b.may_read()
    budget.request_completed(a)
    assert log == []
    assert a.may_read()


def test_turn_of_a_removed_reader_passes_to_the_next() -> None:
    budget, log = ByteBudget(100), list[str]()
    a, b = Reader(budget, log, "a"), Reader(budget, log, "b")
    budget.reserve(100)
    assert a.may_read()
    assert not b.may_read()
    budget.remove(a)
    assert log == ["b"]


def test_requests_that_are_half_received_do_not_exceed_the_budget() -> None:
    """50 connections send nearly all of a request of the maximum size, and nothing more."""
    budget = ByteBudget(BUDGET, FRAME)
    readers = [Reader(budget, [], str(number)) for number in range(50)]
    progress = True
    while progress:
        progress = False
        for reader in readers:
            if reader.held_bytes < FRAME - MIB and reader.may_read():
                budget.reserve(MIB)
                reader.held_bytes += MIB
                progress = True
    assert budget.used_bytes <= BUDGET
    assert budget.used_bytes > BUDGET - 3 * FRAME, "most of the budget can be used"


async def test_wait_for_memory_ends_when_enough_bytes_are_released() -> None:
    budget = ByteBudget(100)
    budget.reserve(90)
    waiting = asyncio.create_task(budget.until_free(30))
    for released, ended in ((10, False), (10, True)):
        await asyncio.sleep(0)
        budget.release(released)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert waiting.done() is ended
    await waiting
