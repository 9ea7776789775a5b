"""Log events of requests whose response takes longer than a healthy cluster needs."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from structlog.testing import capture_logs

from odradek.broker.apis import create_topics
from odradek.broker.dispatch.dispatcher import Call
from odradek.broker.network import waiting_requests
from odradek.broker.network.waiting_requests import (
    CHECK_INTERVAL_S,
    LINES_PER_CHECK_MAX,
    LOGGED_AFTER_S,
    WaitingRequests,
)
from odradek.broker.requests.api import Ordered
from odradek.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.support.fake_kafka import virtual_loop
from tests.support.heartbeat_server import serving, until

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    import pytest

    from odradek.broker.requests.api import AnyApi

SOON_S = 0.001


def call(number: int = 1, api: AnyApi = create_topics.API, *, forwarded: bool = False) -> Call:
    session: Any = SimpleNamespace(client_host="10.0.0.7", client_port=5, listener=SimpleNamespace(name="PLAINTEXT"))
    context: Any = SimpleNamespace(session=session, api_version=7, correlation_id=number)
    frame: Any = None
    return Call(api, context, None, frame, 0, forwarded=forwarded)


def logged(scenario: Callable[[WaitingRequests], Coroutine[Any, Any, None]]) -> list[Any]:
    """Run `scenario` in virtual time and return the log events."""
    with virtual_loop() as loop, capture_logs() as logs:
        loop.run_until_complete(scenario(WaitingRequests()))
    return logs


def test_request_is_logged_once_after_the_limit() -> None:
    async def scenario(waiting: WaitingRequests) -> None:
        loop = asyncio.get_running_loop()
        waiting.add(call(4, forwarded=True), loop)
        await asyncio.sleep(LOGGED_AFTER_S - SOON_S)
        assert len(waiting) == 1
        await asyncio.sleep(10 * LOGGED_AFTER_S)
        assert len(waiting) == 0

    assert logged(scenario) == [
        {
            "event": "request waits",
            "log_level": "warning",
            "api": "CreateTopics",
            "version": 7,
            "client": "10.0.0.7:5",
            "listener": "PLAINTEXT",
            "correlation_id": 4,
            "waited_s": 10,
            "waits_for": "active controller",
        }
    ]


def test_completed_requests_are_not_logged() -> None:
    async def scenario(waiting: WaitingRequests) -> None:
        loop = asyncio.get_running_loop()
        for number in range(30):
            each = call(number)
            waiting.add(each, loop)
            await asyncio.sleep(1)
            waiting.remove(each)
        await asyncio.sleep(LOGGED_AFTER_S)

    assert logged(scenario) == []


def test_request_that_begins_to_wait_later_is_logged_at_its_own_limit() -> None:
    async def scenario(waiting: WaitingRequests) -> None:
        loop = asyncio.get_running_loop()
        waiting.add(call(1), loop)
        await asyncio.sleep(LOGGED_AFTER_S - 1)
        waiting.add(call(2), loop)
        await asyncio.sleep(LOGGED_AFTER_S + CHECK_INTERVAL_S)

    assert [(entry["correlation_id"], entry["waits_for"]) for entry in logged(scenario)] == [
        (1, "this broker"),
        (2, "this broker"),
    ]


def test_log_lines_per_check_are_bounded() -> None:
    async def scenario(waiting: WaitingRequests) -> None:
        loop = asyncio.get_running_loop()
        for number in range(LINES_PER_CHECK_MAX + 1):
            waiting.add(call(number), loop)
        await asyncio.sleep(LOGGED_AFTER_S + SOON_S)
        assert len(waiting) == 1
        await asyncio.sleep(CHECK_INTERVAL_S + SOON_S)
        assert len(waiting) == 0

    assert [entry["correlation_id"] for entry in logged(scenario)] == list(range(LINES_PER_CHECK_MAX + 1))


def test_stop_of_the_node_ends_the_checks() -> None:
    async def scenario(waiting: WaitingRequests) -> None:
        waiting.add(call(), asyncio.get_running_loop())
        waiting.close()
        await asyncio.sleep(2 * LOGGED_AFTER_S)

    assert logged(scenario) == []


async def test_connection_logs_each_stage_that_waits_and_forgets_complete_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_requests, "LOGGED_AFTER_S", 0.0)
    monkeypatch.setattr(waiting_requests, "CHECK_INTERVAL_S", 0.0)
    released = asyncio.Event()

    async def wait() -> HeartbeatResponse:
        await released.wait()
        return HeartbeatResponse()

    def handle(_: Any, request: HeartbeatRequest) -> Any:
        if request.group_id == "immediate":
            return HeartbeatResponse()
        return Ordered(wait()) if request.group_id == "ordered" else wait()

    async with serving(handle) as server:
        with capture_logs() as logs:
            client = await server.connect()
            await client.call(HeartbeatRequest(group_id="immediate"), 4)
            responses = [client.send(HeartbeatRequest(group_id=group), 4) for group in ("overlapping", "ordered")]
            await until(lambda: len(logs) == 2)
            released.set()
            for response in responses:
                await response
            assert [(entry["event"], entry["api"]) for entry in logs] == [("request waits", "Heartbeat")] * 2
            assert len(server.shared.waiting_requests) == 0
        client.close()
