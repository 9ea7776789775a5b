"""A client that is over its quota: it is told, and not read for as long, whether it obeys or not (KIP-219)."""

import asyncio
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.network.throttle import Muting
from odradek.broker.requests.context import RequestContext
from odradek.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.support.heartbeat_server import ask, serving
from tests.support.quotas import Unlimited
from tests.support.raw_client import encode_request

SILENCE_MS = 150


class Over(Unlimited):
    """The first request of all is over the quota."""

    measure_time = True

    def __init__(self) -> None:
        self.seen: list[tuple[str | None, Any, int]] = []

    def throttle_ms(self, context: RequestContext, response: Any) -> int:
        first = not self.seen
        self.seen.append((context.client_id, response, context.busy_us))
        return SILENCE_MS if first else 0


async def test_the_answer_leaves_at_once_and_the_next_request_waits() -> None:
    quotas = Over()
    clock = SimpleNamespace(wall_ms=lambda: 0, monotonic_us=count().__next__)
    async with serving(lambda *_: HeartbeatResponse(), quotas=quotas, clock=clock) as server:
        loop = asyncio.get_running_loop()
        client, other = await server.connect(), await server.connect()
        began_s = loop.time()
        first: Any = await client.call(ask("g"), 4)
        assert first.throttle_time_ms == SILENCE_MS
        muted = client.send(ask("g"), 4)
        answer: Any = await other.call(ask("g"), 4)
        second: Any = await muted
        assert (second.throttle_time_ms, answer.throttle_time_ms) == (0, 0)
        assert loop.time() - began_s >= SILENCE_MS / 1_000
        assert all(busy_us > 0 for _, _, busy_us in quotas.seen), "the time of handlers is measured"


async def test_what_the_controller_says_counts_too() -> None:
    async with serving(lambda *_: HeartbeatResponse(throttle_time_ms=SILENCE_MS)) as server:
        loop = asyncio.get_running_loop()
        client = await server.connect()
        began_s = loop.time()
        for _ in range(2):
            answer: Any = await client.call(ask("g"), 4)
            assert answer.throttle_time_ms == SILENCE_MS
        assert loop.time() - began_s >= SILENCE_MS / 1_000


async def test_a_request_without_an_answer_counts_as_well() -> None:
    quotas = Over()

    def handle(context: RequestContext, request: HeartbeatRequest) -> Any:
        return None if request.generation_id else HeartbeatResponse()

    async with serving(handle, quotas=quotas) as server:
        loop = asyncio.get_running_loop()
        client = await server.connect()
        began_s = loop.time()
        assert client._transport is not None
        client._transport.write(encode_request(ask("g", 1), 4, 0, "client"))
        await client.call(ask("g"), 4)
        assert loop.time() - began_s >= SILENCE_MS / 1_000
        assert quotas.seen[0][1] is None


@pytest.mark.parametrize(("first_ms", "second_ms"), [(1, 20), (20, 1)])
async def test_the_longer_silence_holds(first_ms: int, second_ms: int) -> None:
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()
    muting = Muting(lambda: over.set_result(None))
    began_s = loop.time()
    muting.mute(first_ms)
    muting.mute(second_ms)
    before = muting.muted
    await over
    assert (before, muting.muted) == (True, False)
    assert loop.time() - began_s >= 0.015


async def test_a_silence_ends_with_its_connection() -> None:
    muting = Muting(pytest.fail)
    muting.mute(0)
    assert not muting.muted
    muting.mute(1)
    muting.end()
    assert not muting.muted
