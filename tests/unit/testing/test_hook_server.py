from __future__ import annotations

import asyncio
import threading
from base64 import b64decode, b64encode
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from odradek.broker.hooks.channel import HookChannel
from odradek.protocol.codec import decode, encode
from odradek.protocol.errors import Unencodable
from odradek.protocol.messages.end_txn import EndTxnResponse
from odradek.testing.background import Background
from odradek.testing.function_calls import CALLS_MAX, TooManyCalls
from odradek.testing.hook_server import HookServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

END_TXN, FETCH = 26, 1
REQUEST = {
    "api": "EndTxn",
    "api_key": END_TXN,
    "version": 5,
    "client_id": "shop",
    "of_broker": False,
    "topics": [],
    "partitions": [],
    "groups": [],
    "transactional_ids": ["a"],
    "fields": {},
}


@pytest.fixture
def server() -> Iterator[HookServer]:
    background = Background("test")
    server = HookServer(background, 1)
    yield server
    server.close()
    background.close()


@asynccontextmanager
async def started(server: HookServer, node_id: int, received: list[Any] | None = None) -> AsyncIterator[HookChannel]:
    """Provide the channel of a broker that has started."""
    channel = HookChannel()
    if received is not None:
        channel.handle("links", received.append)
    descriptor = await asyncio.to_thread(server.descriptor, node_id)
    child = server._child_ends.pop(node_id)
    assert child.detach() == descriptor
    await channel.open(descriptor)
    transport = channel._transport
    assert transport is not None
    yield channel
    transport.abort()
    await asyncio.sleep(0)


async def test_rule_has_effect_when_its_method_returns(server: HookServer) -> None:
    async with started(server, 1) as channel:
        assert not channel.watches(END_TXN, of_broker=False)
        rule = await asyncio.to_thread(server.faults.on("EndTxn", times=1).drop_response)
        assert channel.watches(END_TXN, of_broker=False)
        assert not channel.watches(END_TXN, of_broker=True)
        assert not channel.watches(FETCH, of_broker=False)
        assert (await channel.decide(REQUEST) or {})["kind"] == "drop_response"
        assert await channel.decide(REQUEST) is None
        assert [str(each) for each in server.faults.log] == ["broker 1: EndTxn of 'shop' (a): drop_response"]
        await asyncio.to_thread(rule.remove)
        assert not channel.watches(END_TXN, of_broker=False)


async def test_rule_for_all_apis_watches_each(server: HookServer) -> None:
    async with started(server, 1) as channel:
        await asyncio.to_thread(server.faults.on().drop_request)
        assert channel.watches(FETCH, of_broker=False)
        assert not channel.watches(FETCH, of_broker=True)


async def test_broker_that_starts_later_has_rules_and_state(server: HookServer) -> None:
    received: list[Any] = []
    await asyncio.to_thread(server.faults.on("EndTxn").delay, 1)
    await asyncio.to_thread(server.set, "links", {2: ["row"]})
    async with started(server, 2, received) as channel:
        await asyncio.to_thread(server.set, "links", {2: ["other"]})
        assert channel.watches(END_TXN, of_broker=False)
        assert received == [["row"], ["other"]]


async def test_broker_without_a_connection_handles_all_requests(server: HookServer) -> None:
    async with started(server, 1) as channel:
        began, end = asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        def wait(_request: object) -> None:
            loop.call_soon_threadsafe(began.set)
            assert end.wait(10)

        await asyncio.to_thread(server.faults.on("EndTxn").call, wait)
        decision = channel.decide(REQUEST)
        await began.wait()
        server._background.loop.call_soon_threadsafe(server._brokers[1].close)
        assert await decision is None
        assert not channel.watches(END_TXN, of_broker=False)
        assert await channel.decide(REQUEST) is None
        end.set()


async def test_paused_broker_does_not_hold_up_a_rule(server: HookServer) -> None:
    await asyncio.to_thread(server.descriptor, 1)  # its process reads nothing
    server.paused.add(1)
    await asyncio.to_thread(server.faults.on("EndTxn").delay, 1)
    assert server.faults.watched() == [(END_TXN, False)]


async def test_failed_functions_are_recorded_and_the_request_is_handled(server: HookServer) -> None:
    def fail(request: object) -> None:
        raise KeyError(request)

    async with started(server, 1) as channel:
        for add in (
            lambda: server.faults.on("EndTxn").call(fail),
            lambda: server.faults.on("EndTxn", when=fail).delay(1),  # type: ignore[arg-type]
        ):
            await asyncio.to_thread(add)
            assert await channel.decide(REQUEST) is None
            assert [type(each) for each in server.faults.errors] == [KeyError]
            await asyncio.to_thread(server.faults.clear)
            assert server.faults.errors == []


async def test_condition_that_adds_a_rule_fails_immediately(server: HookServer) -> None:
    def adds(_request: object) -> bool:
        server.faults.on("Fetch").delay(1)
        return True

    async with started(server, 1) as channel:
        await asyncio.to_thread(server.faults.on("EndTxn", when=adds).delay, 1)
        assert await channel.decide(REQUEST) is None
        (error,) = server.faults.errors
        assert isinstance(error, RuntimeError)
        assert str(error) == "a function of when= must not wait, and not change rules; use call() for that"


async def test_function_rewrites_the_response_of_the_broker(server: HookServer) -> None:
    def change(response: EndTxnResponse) -> EndTxnResponse:
        response.error_code += 1
        return response

    async with started(server, 1) as channel:
        await asyncio.to_thread(server.faults.on("EndTxn").rewrite, change)
        action = await channel.decide(REQUEST)
        assert action is not None
        response = b64encode(encode(EndTxnResponse(error_code=14), 5)).decode()
        changed = await channel.rewrite(action["rewrite"], response)
        assert changed is not None
        assert decode(EndTxnResponse, 5, b64decode(changed["response"])).error_code == 15


async def test_message_that_does_not_exist_in_the_version_of_the_request_is_an_error(server: HookServer) -> None:
    async with started(server, 1) as channel:
        await asyncio.to_thread(server.faults.on("EndTxn").respond, EndTxnResponse(error_code=100_000))
        assert await channel.decide(REQUEST) is None
        assert [type(each) for each in server.faults.errors] == [Unencodable]


async def test_functions_of_one_cluster_are_bounded(server: HookServer) -> None:
    end = threading.Event()
    calls = server.faults.calls
    waiting = [asyncio.create_task(calls.run(end.wait, 30)) for _ in range(CALLS_MAX)]
    await asyncio.sleep(0)
    with pytest.raises(TooManyCalls, match="64 functions of rules wait"):
        await calls.run(end.wait, 30)
    calls.abandon()
    assert await asyncio.gather(*waiting) == [None] * CALLS_MAX
    end.set()
    while calls._running:
        await asyncio.sleep(0)
    assert await calls.run(str, 7) == "7"
