"""Fairness between connections: a server on a TCP socket with test handlers."""

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.network.connection import REQUESTS_AT_A_TIME, TURN_US_MAX
from odradek.broker.network.server_state import ITERATION_US_MAX
from odradek.broker.requests.api import Ordered
from odradek.broker.requests.context import RequestContext
from odradek.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.support.heartbeat_server import heartbeat, numbered_response, serving, settle
from tests.support.raw_client import ConnectionLost


async def test_many_pipelined_requests_do_not_delay_another_connection() -> None:
    served: list[int] = []

    def handle(context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
        served.append(request.generation_id)
        return numbered_response(request.generation_id)

    async with serving(handle) as server:
        greedy, other = await server.connect(), await server.connect()
        responses = [greedy.send(heartbeat("g", number), 4) for number in range(500)]
        last = other.send(heartbeat("o", -1), 4)
        for response in (*responses, last):
            await response
        assert [number for number in served if number >= 0] == list(range(500))
        assert served.index(-1) <= 5 * REQUESTS_AT_A_TIME


async def test_turn_of_a_connection_ends_after_a_request_that_takes_long() -> None:
    """Other callbacks run between two requests that each take the time of a turn, and not between short ones."""
    now_us, short, turn = 0, 3, 0
    turns: list[int] = []

    def handle(context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
        nonlocal now_us
        now_us += 1 if request.generation_id < short else TURN_US_MAX
        turns.append(turn)
        return numbered_response(request.generation_id)

    async def count_turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    clock = SimpleNamespace(wall_ms=lambda: 0, monotonic_us=lambda: now_us)
    async with serving(handle, clock=clock) as server:
        client = await server.connect()
        counting = asyncio.create_task(count_turns())
        responses = [client.send(heartbeat("g", number), 4) for number in range(REQUESTS_AT_A_TIME - 1)]
        for response in responses:
            await response
        counting.cancel()
    assert len(dict.fromkeys(turns[:short])) == 1
    assert len(dict.fromkeys(turns)) == len(turns) - short


async def test_iteration_of_the_event_loop_has_a_limit_over_all_connections() -> None:
    """Connections whose requests take long are served one after the other, in several iterations."""
    now_us, turn, clients_count, rounds = 0, 0, 30, 4
    served: list[int] = []
    turns: list[int] = []

    def handle(context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
        nonlocal now_us
        now_us += TURN_US_MAX
        served.append(request.generation_id)
        turns.append(turn)
        return numbered_response(request.generation_id)

    async def count_turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    clock = SimpleNamespace(wall_ms=lambda: 0, monotonic_us=lambda: now_us)
    async with serving(handle, clock=clock) as server:
        clients = [await server.connect() for _ in range(clients_count)]
        counting = asyncio.create_task(count_turns())
        responses = [
            client.send(heartbeat("g", number), 4) for number, client in enumerate(clients) for _ in range(rounds)
        ]
        for response in responses:
            await response
        counting.cancel()
    # Between two steps of the counter, an iteration can end and the next one begin.
    assert max(Counter(turns).values()) <= 2 * ITERATION_US_MAX // TURN_US_MAX
    assert [sorted(served[at : at + clients_count]) for at in range(0, len(served), clients_count)] == [
        list(range(clients_count))
    ] * rounds


async def test_connection_of_a_broker_does_not_wait_for_those_of_clients() -> None:
    now_us = 0
    served: list[int] = []

    def handle(context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
        nonlocal now_us
        now_us += TURN_US_MAX
        served.append(request.generation_id)
        return numbered_response(request.generation_id)

    clock = SimpleNamespace(wall_ms=lambda: 0, monotonic_us=lambda: now_us)
    async with serving(handle, clock=clock) as server:
        clients = [await server.connect() for _ in range(30)]
        broker = await server.connect("broker-2-markers")
        await broker.send(heartbeat("b", -1), 4)
        served.clear()
        responses = [client.send(heartbeat("g", number), 4) for number in range(4) for client in clients]
        of_broker = [broker.send(heartbeat("b", -1), 4) for _ in range(4)]
        for response in (*responses, *of_broker):
            await response
    last = max(place for place, number in enumerate(served) if number == -1)
    assert last <= 30 + 5 * ITERATION_US_MAX // TURN_US_MAX


async def test_stage_two_is_not_started_after_the_client_disconnected() -> None:
    stage_one_result: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    stage_one_started = asyncio.Event()
    stage_two_starts: list[int] = []

    async def stage_two() -> HeartbeatResponse:
        stage_two_starts.append(1)
        return numbered_response(1)

    async def stage_one() -> Any:
        stage_one_started.set()
        await stage_one_result
        return stage_two()

    def handle(context: RequestContext, request: HeartbeatRequest) -> Any:
        return Ordered(stage_one())

    async with serving(handle) as server:
        client = await server.connect()
        lost = client.send(heartbeat("g", 0), 4)
        await stage_one_started.wait()
        for connection in list(server.shared.connections.values()):
            connection.close()
        with pytest.raises(ConnectionLost):
            await lost
        stage_one_result.set_result(None)
        await settle()
        assert stage_two_starts == []


async def test_clients_at_the_connection_limit_do_not_block_the_inter_broker_listener() -> None:
    listeners = "listeners=EXTERNAL://127.0.0.1:0,INTERNAL://127.0.0.1:0", "inter.broker.listener.name=INTERNAL"
    limits = "max.connections=5", "max.connection.creation.rate=1"
    async with serving(lambda *_: numbered_response(1), *listeners, *limits) as server:
        clients = [await server.connect() for _ in range(5)]
        await clients[0].call(heartbeat("g"), 4)
        waiting = clients[-1].send(heartbeat("g"), 4)
        with pytest.raises((ConnectionLost, OSError)):
            await (await server.connect()).call(heartbeat("g"), 4)
        for _ in range(2):
            await (await server.connect(listener=1)).call(heartbeat("g"), 4)
        assert not waiting.done(), "the creation rate delays clients, but not brokers"
        clients[-1].close()
        with pytest.raises(ConnectionLost):
            await waiting
