"""Clients that come while the node still starts: its port is bound, but nothing is served yet."""

import asyncio
import gc
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import uvloop

from odradek.broker.config.addresses import parse_listeners
from odradek.broker.requests.context import RequestContext
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.support.heartbeat_server import Server, ask, settle, tell
from tests.support.raw_client import ConnectionLost

LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [uvloop.new_event_loop, asyncio.new_event_loop]


@pytest.mark.parametrize("new_loop", LOOPS)
def test_a_request_that_came_before_the_node_served_is_answered(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """uvloop starts to read after connection_made even if that has paused reading: nothing of it may be lost."""

    async def scenario() -> None:
        server = Server(lambda *_: tell(0))
        await server.acceptor.bind(parse_listeners(server.config), server.shared)
        client = await server.connect()
        try:
            answer: Any = client.send(ApiVersionsRequest("early", "1"), 3)
            async with asyncio.timeout(10):
                while not server.shared.early:
                    await asyncio.sleep(0.001)
                await settle()  # the bytes have arrived, if the transport reads at all
                server.serve()
                assert (await answer).error_code == 0
        finally:
            client.close()
            await server.stop()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(scenario())


async def test_a_request_that_a_stop_cancels_before_it_began_is_closed() -> None:
    """A coroutine that nobody ever awaits is reported by Python itself, and warnings are errors here."""
    stopping: list[asyncio.Task[None]] = []

    async def late() -> HeartbeatResponse:
        return tell(1)

    def handle(context: RequestContext, request: HeartbeatRequest) -> Any:
        stopping.append(asyncio.ensure_future(server.tasks.cancel_all()))  # its turn comes before the request's
        return late()

    server = Server(handle)
    await server.start()
    client = await server.connect()
    answer: Any = client.send(ask("g"), 4)
    async with asyncio.timeout(10):
        while not stopping:
            await asyncio.sleep(0.001)
        await stopping[0]
        await server.stop()
        with suppress(ConnectionLost):  # the answer may still go out, but it is no success
            assert (await answer).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    client.close()
    gc.collect()
