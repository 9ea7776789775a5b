"""Clients that connect while the node starts: its port is bound, but the node does not serve requests yet."""

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
from tests.support.heartbeat_server import Server, heartbeat, numbered_response, settle
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
