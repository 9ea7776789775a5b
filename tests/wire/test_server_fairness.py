"""Greedy clients and their neighbors: a live server on a real socket, with handlers of the test's own."""

import asyncio
from typing import Any

import pytest

from odradek.broker.network.connection import REQUESTS_AT_A_TIME
from odradek.broker.requests.api import Ordered
from odradek.broker.requests.context import RequestContext
from odradek.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.support.heartbeat_server import ask, serving, settle, tell
from tests.support.raw_client import ConnectionLost


async def test_many_requests_at_once_do_not_keep_the_others_waiting() -> None:
    served: list[int] = []

    def handle(context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
        served.append(request.generation_id)
        return tell(request.generation_id)

    async with serving(handle) as server:
        greedy, other = await server.connect(), await server.connect()
        answers = [greedy.send(ask("g", number), 4) for number in range(500)]
        last = other.send(ask("o", -1), 4)
        for answer in (*answers, last):
            await answer
        assert [number for number in served if number >= 0] == list(range(500))
        assert served.index(-1) <= 5 * REQUESTS_AT_A_TIME


async def test_a_stage_two_of_a_client_that_has_gone_is_not_begun() -> None:
    gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    asked = asyncio.Event()
    begun: list[int] = []

    async def stage_two() -> HeartbeatResponse:
        begun.append(1)
        return tell(1)

    async def stage_one() -> Any:
        asked.set()
        await gate
        return stage_two()

    def handle(context: RequestContext, request: HeartbeatRequest) -> Any:
        return Ordered(stage_one())

    async with serving(handle) as server:
        client = await server.connect()
        lost = client.send(ask("g", 0), 4)
        await asked.wait()
        for connection in list(server.shared.connections.values()):
            connection.close()
        with pytest.raises(ConnectionLost):
            await lost
        gate.set_result(None)
        await settle()
        assert begun == []


async def test_clients_that_fill_the_broker_do_not_lock_out_brokers_on_a_listener_of_their_own() -> None:
    listeners = "listeners=EXTERNAL://127.0.0.1:0,INTERNAL://127.0.0.1:0", "inter.broker.listener.name=INTERNAL"
    limits = "max.connections=5", "max.connection.creation.rate=1"
    async with serving(lambda *_: tell(1), *listeners, *limits) as server:
        clients = [await server.connect() for _ in range(5)]
        await clients[0].call(ask("g"), 4)
        waiting = clients[-1].send(ask("g"), 4)
        with pytest.raises((ConnectionLost, OSError)):
            await (await server.connect()).call(ask("g"), 4)
        for _ in range(2):
            await (await server.connect(listener=1)).call(ask("g"), 4)
        assert not waiting.done(), "clients wait for the seconds after this one, brokers do not"
        clients[-1].close()
        with pytest.raises(ConnectionLost):
            await waiting
