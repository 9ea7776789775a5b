"""Connections of raw clients to a listener with TLS and SASL, without retries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from odradek.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from odradek.protocol.messages.sasl_handshake import SaslHandshakeRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from odradek.pipeline.cluster.access import Access
    from odradek.protocol.schema import Message

HANDSHAKE_VERSION: Final = 1
AUTHENTICATE_VERSION: Final = 2


class LoginRefused(Exception):
    """The broker refused the credentials."""


async def log_in(call: Callable[[Message, int], Awaitable[Any]], access: Access) -> None:
    """Log in on a new connection. `call` sends a request in a version, and returns the response.

    Raise LoginRefused if the broker refuses the credentials.
    """
    credentials = access.security.credentials
    assert credentials is not None
    client = await credentials.client()
    response = await call(SaslHandshakeRequest(client.mechanism), HANDSHAKE_VERSION)
    message: bytes | None = client.first() if not response.error_code else None
    if message is None:
        raise LoginRefused(f"error {response.error_code}")
    while message is not None:
        response = await call(SaslAuthenticateRequest(message), AUTHENTICATE_VERSION)
        if response.error_code:
            raise LoginRefused(f"error {response.error_code}")
        message = client.next(response.auth_bytes)
