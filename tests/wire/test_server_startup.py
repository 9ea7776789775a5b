"""Clients that connect while the node starts: its port is bound, but the node does not serve requests yet."""

import asyncio
import gc
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop

from odradek.broker.config.addresses import parse_listeners
from odradek.broker.network.connection import TURN_US_MAX
from odradek.broker.network.listeners import CONNECTIONS_AT_A_TIME
from odradek.broker.requests.context import RequestContext
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.support.heartbeat_server import Server, heartbeat, number_of, numbered_response, settle, until
from tests.support.raw_client import ConnectionLost

LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [uvloop.new_event_loop, asyncio.new_event_loop]


@pytest.mark.parametrize("new_loop", LOOPS)
def test_request_received_before_the_node_serves_gets_a_response(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """uvloop reads after connection_made even if that callback paused reading. No received byte may be lost."""

    async def scenario() -> None:
        server = Server(lambda *_: numbered_response(0))
        await server.acceptor.bind(parse_listeners(server.config), server.shared)
        client = await server.connect()
        try:
            response: Any = client.send(ApiVersionsRequest("early", "1"), 3)
            async with asyncio.timeout(10):
                while not server.shared.early:
                    await asyncio.sleep(0.001)
                await settle()  # the bytes have arrived, if the transport reads at all
                server.serve()
                assert (await response).error_code == 0
        finally:
            client.close()
            await server.stop()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(scenario())


async def grown(count: Callable[[], int], total: int) -> list[int]:
    """Return the growth of `count` in each turn of the event loop until it is `total`. It was 0."""
    counts = [0, count()]
    while counts[-1] < total:
        await asyncio.sleep(0)
        counts.append(count())
    return [after - before for before, after in pairwise(counts)]


@pytest.mark.parametrize(
    ("request_us", "expected"),
    [(0, [CONNECTIONS_AT_A_TIME, CONNECTIONS_AT_A_TIME, 1]), (TURN_US_MAX, [1] * (2 * CONNECTIONS_AT_A_TIME + 1))],
)
async def test_connections_that_waited_for_the_start_are_served_in_turns(request_us: int, expected: list[int]) -> None:
    total, now_us, seen = sum(expected), 0, list[int]()

    def handle(context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
        nonlocal now_us
        now_us += request_us
        seen.append(request.generation_id)
        return numbered_response(request.generation_id)

    server = Server(handle, clock=SimpleNamespace(wall_ms=lambda: 0, monotonic_us=lambda: now_us))
    await server.acceptor.bind(parse_listeners(server.config), server.shared)
    clients = [await server.connect() for _ in range(total)]
    try:
        async with asyncio.timeout(10):
            await until(lambda: len(server.shared.early) == total)
            server.acceptor.open(server.dispatcher)
            begun = await grown(lambda: len(server.shared.connections), total)
            responses: list[Any] = [client.send(heartbeat("g", number), 4) for number, client in enumerate(clients)]
            await until(lambda: len(server.shared.waiting) == total)
            server.acceptor.ready(server.dispatcher)
            assert await grown(lambda: len(seen), total) == expected
            assert [number_of(await response) for response in responses] == list(range(total))
    finally:
        for client in clients:
            client.close()
        await server.stop()
    assert begun == [CONNECTIONS_AT_A_TIME, CONNECTIONS_AT_A_TIME, 1]
    assert seen == list(range(total))


async def test_coroutine_of_a_request_cancelled_before_its_start_is_closed() -> None:
    """Python warns about a coroutine that is never awaited, and pytest treats warnings as errors."""
    stopping: list[asyncio.Task[None]] = []

    async def late() -> HeartbeatResponse:
        return numbered_response(1)

    def handle(context: RequestContext, request: HeartbeatRequest) -> Any:
        stopping.append(asyncio.ensure_future(server.tasks.cancel_all()))  # the event loop runs it before the request
        return late()

    server = Server(handle)
    await server.start()
    client = await server.connect()
    response: Any = client.send(heartbeat("g"), 4)
    async with asyncio.timeout(10):
        while not stopping:
            await asyncio.sleep(0.001)
        await stopping[0]
        await server.stop()
        with suppress(ConnectionLost):  # the response may still be sent, but not as a success
            assert (await response).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    client.close()
    gc.collect()
