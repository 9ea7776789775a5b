"""Large requests whose wait is intended, while the byte budget is exhausted."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from odradek.broker.apis import fetch, join_group
from odradek.broker.dispatch.dispatcher import Call
from odradek.broker.network.held_requests import CHECK_INTERVAL_S, HELD_BYTES_MIN, HELD_SECONDS_MAX, HeldRequests
from odradek.broker.quota.byte_budget import ByteBudget
from odradek.broker.requests.listener import BROKER, Listener
from odradek.broker.requests.session import Session
from tests.support.fake_kafka import virtual_loop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

BUDGET_BYTES = 1_000_000
SOON_S = 0.001


class Rig:
    def __init__(self) -> None:
        self.budget = ByteBudget(BUDGET_BYTES)
        self.held = HeldRequests(self.budget)
        self.closed: list[str] = []

    def add(self, name: str, size: int = HELD_BYTES_MIN, api: Any = fetch.API) -> Call:
        """Add a request whose frame has a fifth of `size`."""
        listener = Listener("L", "127.0.0.1", 1, "localhost", 1, roles=(BROKER,))
        session = Session(1, listener, "127.0.0.1", 2)
        session.on_close = lambda _: self.closed.append(name)
        context: Any = SimpleNamespace(session=session, charge=size - size // 5, client_id=name)
        frame: Any = SimpleNamespace(size=size // 5)
        call = Call(api, context, None, frame, 0)
        self.held.add(call, asyncio.get_running_loop())
        return call


def run(scenario: Callable[[Rig], Coroutine[Any, Any, None]]) -> None:
    """Run `scenario` in virtual time."""
    with virtual_loop() as loop:
        loop.run_until_complete(scenario(Rig()))


def test_large_requests_that_wait_are_closed_while_the_budget_is_exhausted() -> None:
    async def scenario(rig: Rig) -> None:
        rig.add("small", HELD_BYTES_MIN - 1)
        rig.add("fetch")
        rig.add("broker-2-replica-fetch")
        complete = rig.add("complete", 20 * HELD_BYTES_MIN)
        rig.add("join", 10 * HELD_BYTES_MIN, join_group.API)
        await asyncio.sleep(10 * HELD_SECONDS_MAX)
        assert rig.closed == [], "the budget is not exhausted"
        rig.held.remove(complete)
        rig.budget.reserve(BUDGET_BYTES + 10 * HELD_BYTES_MIN)
        await asyncio.sleep(HELD_SECONDS_MAX + CHECK_INTERVAL_S)
        assert rig.closed == ["join", "fetch"]
        assert len(rig.held) == 0

    run(scenario)


def test_as_many_requests_are_closed_as_the_budget_needs() -> None:
    async def scenario(rig: Rig) -> None:
        for number in range(10):
            rig.add(f"held-{number}", (number + 1) * HELD_BYTES_MIN)
        rig.budget.reserve(BUDGET_BYTES + 18 * HELD_BYTES_MIN)
        await asyncio.sleep(HELD_SECONDS_MAX + SOON_S)
        assert rig.closed == ["held-9", "held-8"]
        rig.budget.release(19 * HELD_BYTES_MIN)
        await asyncio.sleep(10 * HELD_SECONDS_MAX)
        assert rig.closed == ["held-9", "held-8"]

    run(scenario)


def test_budget_has_to_be_exhausted_for_the_whole_time() -> None:
    async def scenario(rig: Rig) -> None:
        rig.add("fetch")
        for _ in range(10):
            rig.budget.reserve(BUDGET_BYTES)
            await asyncio.sleep(HELD_SECONDS_MAX - CHECK_INTERVAL_S)
            rig.budget.release(BUDGET_BYTES)
            await asyncio.sleep(CHECK_INTERVAL_S + SOON_S)
        assert rig.closed == []

    run(scenario)


def test_request_may_wait_for_the_limit() -> None:
    async def scenario(rig: Rig) -> None:
        rig.budget.reserve(BUDGET_BYTES)
        rig.add("first")
        await asyncio.sleep(HELD_SECONDS_MAX / 2)
        rig.add("second")
        await asyncio.sleep(HELD_SECONDS_MAX / 2 + SOON_S)
        assert rig.closed == ["first"]
        await asyncio.sleep(HELD_SECONDS_MAX)
        assert rig.closed == ["first", "second"]

    run(scenario)


def test_stop_of_the_node_ends_the_checks() -> None:
    async def scenario(rig: Rig) -> None:
        rig.budget.reserve(BUDGET_BYTES)
        rig.add("fetch")
        rig.held.close()
        await asyncio.sleep(2 * HELD_SECONDS_MAX)
        assert rig.closed == []

    run(scenario)
