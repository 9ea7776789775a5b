"""Responses that their version cannot encode: the client receives a refusal, or the connection is closed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.support import heartbeat_server
from tests.support.heartbeat_server import serving
from tests.support.raw_client import ConnectionLost

if TYPE_CHECKING:
    from odradek.broker.requests.context import RequestContext

UNENCODABLE = HeartbeatResponse(error_code=2**20)


async def later(response: HeartbeatResponse) -> HeartbeatResponse:
    return response


@pytest.mark.parametrize("is_large", [False, True], ids=["at once", "in slices"])
@pytest.mark.parametrize("waits", [False, True], ids=["synchronous", "asynchronous"])
async def test_client_receives_a_refusal(*, is_large: bool, waits: bool) -> None:
    def handle(context: RequestContext, _: HeartbeatRequest) -> Any:
        context.encode_in_slices = is_large
        return later(UNENCODABLE) if waits else UNENCODABLE

    async with serving(handle) as server:
        client = await server.connect()
        response = await client.call(HeartbeatRequest(), 4, timeout=10)
        assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        client.close()


@pytest.mark.parametrize("is_large", [False, True], ids=["at once", "in slices"])
@pytest.mark.parametrize("waits", [False, True], ids=["synchronous", "asynchronous"])
async def test_connection_is_closed_if_the_refusal_cannot_be_encoded(
    monkeypatch: pytest.MonkeyPatch, *, is_large: bool, waits: bool
) -> None:
    monkeypatch.setattr(heartbeat_server, "refuse", lambda *_: UNENCODABLE)

    def handle(context: RequestContext, _: HeartbeatRequest) -> Any:
        context.encode_in_slices = is_large
        return later(UNENCODABLE) if waits else UNENCODABLE

    async with serving(handle) as server:
        client = await server.connect()
        with pytest.raises(ConnectionLost, match="connection ended"):
            await client.call(HeartbeatRequest(), 4, timeout=10)
        client.close()
