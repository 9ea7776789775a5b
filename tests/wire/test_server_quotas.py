"""Throttling of a client over its quota: the response has the throttle time, and the connection is muted (KIP-219)."""

import asyncio
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.network.throttle import Muting
from odradek.broker.requests.context import RequestContext
from odradek.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.support.heartbeat_server import heartbeat, serving
from tests.support.quotas import Unlimited
from tests.support.raw_client import encode_request

THROTTLE_MS = 150


class FirstRequestThrottled(Unlimited):
    """Quotas that throttle only the first request."""

    measure_time = True

    def __init__(self) -> None:
        self.seen: list[tuple[str | None, Any, int]] = []

    def throttle_ms(self, context: RequestContext, response: Any) -> int:
        first = not self.seen
        self.seen.append((context.client_id, response, context.busy_us))
        return THROTTLE_MS if first else 0


async def test_throttled_response_is_sent_immediately_and_the_next_request_is_delayed() -> None:
    quotas = FirstRequestThrottled()
    clock = SimpleNamespace(wall_ms=lambda: 0, monotonic_us=count().__next__)
    async with serving(lambda *_: HeartbeatResponse(), quotas=quotas, clock=clock) as server:
        loop = asyncio.get_running_loop()
        client, other = await server.connect(), await server.connect()
        began_s = loop.time()
        first: Any = await client.call(heartbeat("g"), 4)
        assert first.throttle_time_ms == THROTTLE_MS
        muted = client.send(heartbeat("g"), 4)
        other_response: Any = await other.call(heartbeat("g"), 4)
        second: Any = await muted
        assert (second.throttle_time_ms, other_response.throttle_time_ms) == (0, 0)
        assert loop.time() - began_s >= THROTTLE_MS / 1_000
        assert all(busy_us > 0 for _, _, busy_us in quotas.seen), "the processor time of handlers is measured"


async def test_throttle_time_of_a_forwarded_response_mutes_the_connection() -> None:
    async with serving(lambda *_: HeartbeatResponse(throttle_time_ms=THROTTLE_MS)) as server:
        loop = asyncio.get_running_loop()
        client = await server.connect()
        began_s = loop.time()
        for _ in range(2):
            response: Any = await client.call(heartbeat("g"), 4)
            assert response.throttle_time_ms == THROTTLE_MS
        assert loop.time() - began_s >= THROTTLE_MS / 1_000


async def test_request_without_a_response_is_throttled() -> None:
    quotas = FirstRequestThrottled()

    def handle(context: RequestContext, request: HeartbeatRequest) -> Any:
        return None if request.generation_id else HeartbeatResponse()

    async with serving(handle, quotas=quotas) as server:
        loop = asyncio.get_running_loop()
        client = await server.connect()
        began_s = loop.time()
        assert client._transport is not None
        client._transport.write(encode_request(heartbeat("g", 1), 4, 0, "client"))
        await client.call(heartbeat("g"), 4)
        assert loop.time() - began_s >= THROTTLE_MS / 1_000
        assert quotas.seen[0][1] is None


@pytest.mark.parametrize(("first_ms", "second_ms"), [(1, 20), (20, 1)])
async def test_longer_of_two_throttle_times_applies(first_ms: int, second_ms: int) -> None:
    loop = asyncio.get_running_loop()
    unmuted: asyncio.Future[None] = loop.create_future()
    muting = Muting(lambda: unmuted.set_result(None))
    began_s = loop.time()
    muting.mute(first_ms)
    muting.mute(second_ms)
    before = muting.muted
    await unmuted
    assert (before, muting.muted) == (True, False)
    assert loop.time() - began_s >= 0.015


async def test_muting_ends_with_its_connection() -> None:
    muting = Muting(pytest.fail)
    muting.mute(0)
    assert not muting.muted
    muting.mute(1)
    muting.end()
    assert not muting.muted
