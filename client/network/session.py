"""Login on a connection by SASL, and the time of the next one (KIP-43, KIP-152, KIP-368)."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from odradek.client.errors import AuthenticationFailed, UnsupportedRequest, name_of
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.sasl_handshake import SaslHandshakeResponse
from odradek.protocol.sasl.login import Login
from odradek.protocol.sasl.mechanism import AuthenticationFailed as ExchangeFailed

if TYPE_CHECKING:
    from odradek.client.security.credentials import Credentials
    from odradek.protocol.schema import Message

RENEWAL_MIN, RENEWAL_MAX = 0.85, 0.95
"""Part of a session's lifetime after which the client logs in again. It is random, as in Kafka's clients."""
MILLISECONDS: Final = 1_000.0


@dataclass(frozen=True, slots=True)
class Session:
    """A completed login. `renew_at` is the time of the event loop from which requests need a new login, if any."""

    credentials: Credentials
    renew_at: float | None

    @property
    def is_due(self) -> bool:
        return self.renew_at is not None and asyncio.get_running_loop().time() >= self.renew_at


class Channel(Protocol):
    """Connection on which a login takes place."""

    endpoint: str

    async def call_of_login(self, request: Message) -> Any:
        """Send a request and return its response."""
        ...


async def log_in(credentials: Credentials, channel: Channel) -> Session:
    """Authenticate a connection, and return its session. Raise AuthenticationFailed if a side refuses the other."""
    login = Login(await credentials.client())
    request: Message | None = login.request
    while request is not None:
        try:
            response = await channel.call_of_login(request)
        except UnsupportedRequest:  # listeners of Odradek without SASL do not list SaslHandshake
            raise _no_login(channel.endpoint) from None
        if isinstance(response, SaslHandshakeResponse):
            _check_handshake(response, credentials, channel.endpoint)
        try:
            if credentials.is_costly:
                request = await asyncio.to_thread(login.received, response)
            else:
                request = login.received(response)
        except ExchangeFailed as error:
            problem = f"the login at {channel.endpoint} by {credentials.mechanism} failed: {error}"
            raise AuthenticationFailed(problem, credentials.remedy, code=ErrorCode.SASL_AUTHENTICATION_FAILED) from None
    if not login.session_lifetime_ms:
        return Session(credentials, None)
    lifetime_s = login.session_lifetime_ms / MILLISECONDS
    now = asyncio.get_running_loop().time()
    return Session(credentials, now + lifetime_s * random.uniform(RENEWAL_MIN, RENEWAL_MAX))


def _check_handshake(response: SaslHandshakeResponse, credentials: Credentials, endpoint: str) -> None:
    code = response.error_code
    if code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        supported = ", ".join(response.mechanisms)
        raise AuthenticationFailed(
            f"the broker at {endpoint} does not support the mechanism {credentials.mechanism}",
            f"set sasl.mechanism to {supported}",
            code=code,
        )
    if code == ErrorCode.ILLEGAL_SASL_STATE:
        raise _no_login(endpoint)
    if code:
        raise AuthenticationFailed(f"the broker at {endpoint} refused the login: {name_of(code)}", code=code)


def _no_login(endpoint: str) -> AuthenticationFailed:
    return AuthenticationFailed(
        f"the listener at {endpoint} has no login",
        "set security.protocol to PLAINTEXT or SSL",
        code=ErrorCode.ILLEGAL_SASL_STATE,
    )
