"""Forwarding: time limits of requests of clients to a controller that does not respond."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from odradek.broker.quorum.forwarding import FORWARDING_MS_MAX, GRACE_MS, Forwarding
from odradek.cluster.authorizer import ANONYMOUS
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.create_topics import CreateTopicsRequest

if TYPE_CHECKING:
    from odradek.broker.quorum.peers import Channel

REQUEST_MS = 30_000


class SilentController:
    """Fake Peers whose requests fail, by default with a time-out. It keeps their time limits."""

    def __init__(self, error: OSError | None = None) -> None:
        self.error = error or TimeoutError("node 2 did not respond in time")
        self.timeouts_ms: list[int] = []

    def request(self, _node: int, _channel: Channel, *_: object, timeout_ms: int) -> asyncio.Future[Any]:
        self.timeouts_ms.append(timeout_ms)
        response: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        response.set_exception(self.error)
        return response


@pytest.mark.parametrize(
    ("client_ms", "limit_ms"),
    [(0, REQUEST_MS), (-1, REQUEST_MS), (45_000, 45_000), (2**31 - 1, FORWARDING_MS_MAX)],
)
async def test_time_limit_of_a_client_is_bounded(client_ms: int, limit_ms: int) -> None:
    peers = SilentController()
    forwarding = Forwarding(lambda: 2, peers, request_timeout_ms=REQUEST_MS)  # type: ignore[arg-type]
    request = CreateTopicsRequest(topics=[], timeout_ms=client_ms)
    with pytest.raises(Refusal) as refused:
        await forwarding.forward(request, 7, "client", ANONYMOUS, "127.0.0.1")
    assert refused.value.error is ErrorCode.REQUEST_TIMED_OUT
    (sent_ms,) = peers.timeouts_ms
    assert limit_ms < sent_ms <= limit_ms + GRACE_MS


async def test_every_attempt_has_time_for_a_response() -> None:
    peers = SilentController(ConnectionRefusedError("node 2 is restarting"))
    forwarding = Forwarding(lambda: 2, peers, request_timeout_ms=200)  # type: ignore[arg-type]
    with pytest.raises(Refusal) as refused:
        await forwarding.forward(CreateTopicsRequest(topics=[], timeout_ms=0), 7, "client", ANONYMOUS, "127.0.0.1")
    assert refused.value.error is ErrorCode.NOT_CONTROLLER
    assert len(peers.timeouts_ms) > 1
    assert min(peers.timeouts_ms) >= GRACE_MS - 100
