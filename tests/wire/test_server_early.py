"""Clients that come while the node still starts: its port is bound, but nothing is served yet."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import uvloop

from broker.addresses import parse_listeners
from protocol.messages.api_versions import ApiVersionsRequest
from tests.support.heartbeat_server import Server, tell

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
                await asyncio.sleep(0.05)  # time for the bytes to arrive, if the transport reads at all
                server.acceptor.open()
                assert (await answer).error_code == 0
        finally:
            client.close()
            await server.stop()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(scenario())
