"""One connection to one broker: TLS, version agreement, login, overlapping requests, time-outs."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections import deque
from typing import TYPE_CHECKING, Any, Final, cast

from odradek.client.errors import (
    ClientError,
    ConnectionLost,
    InvalidArgument,
    ProtocolError,
    RequestTimedOut,
    Unreachable,
    UnsupportedRequest,
    check,
)
from odradek.client.network.session import Session, log_in
from odradek.client.security import tls
from odradek.protocol.client import ClientConnection
from odradek.protocol.errors import Malformed, Unencodable
from odradek.protocol.messages import request_class
from odradek.protocol.messages.api_versions import ApiVersionsRequest

if TYPE_CHECKING:
    from odradek.client.network.addresses import Address
    from odradek.client.network.settings import Settings
    from odradek.protocol.schema import Message

SOFTWARE_NAME, SOFTWARE_VERSION = "odradek", "1"
"""Name and version in the ApiVersions request (KIP-511)."""
API_VERSIONS_VERSION: Final = 3
"""Version of the first request.

Brokers that do not know it respond in version 0 with the versions that they serve (KIP-511).
"""
VERSION_MAX: Final = 2**15 - 1
REMEDY_TLS_LISTENER: Final = "if its listener uses TLS, set security.protocol=SSL or SASL_SSL"
REMEDY_SECURE_LISTENER: Final = "if its listener requires TLS or a login, set security.protocol to that of the listener"


class Connection(asyncio.BufferedProtocol):
    """A connection to one broker. Requests may overlap; a broker sends the responses in the order of the requests.

    A time-out or an invalid response closes the connection and fails all open requests, because later responses could
    no longer be assigned to their requests.
    """

    def __init__(self, address: Address, settings: Settings) -> None:
        self._host = address[0]
        self.endpoint = f"{address[0]}:{address[1]}"
        self._settings = settings
        self._core = ClientConnection(response_bytes_max=settings.response_bytes_max)
        self._open: deque[asyncio.Future[Message]] = deque()
        self._versions: dict[int, tuple[int, int]] | None = None
        self._transport: asyncio.Transport | None = None
        self._ended: ClientError | None = None
        self._session: Session | None = None
        self._login_lock = asyncio.Lock()
        self._is_served = False
        """True after a response to another request than those of the version agreement and the login."""

    @classmethod
    async def open(cls, address: Address, settings: Settings) -> Connection:
        """Connect, with TLS and a login if the settings have them, and agree on versions.

        Raises:
            Unreachable: There is no connection within `connect_timeout_s`.
            AuthenticationFailed: The client or the broker refused the certificate or the credentials of the other.
            ConnectionLost: The peer closed the connection, or sent no version response in time.
            ProtocolError: The peer is no Kafka broker, or one side uses TLS and the other does not.
        """
        connection = cls(address, settings)
        await connection._connect(address)
        try:
            await connection._agree()
            if settings.security.credentials is not None:
                connection._session = await log_in(settings.security.credentials, connection)
        except BaseException:
            connection.close()
            raise
        return connection

    async def _connect(self, address: Address) -> None:
        settings = self._settings.security.tls
        context = None if settings is None else tls.context_of(settings)
        try:
            async with asyncio.timeout(self._settings.connect_timeout_s):
                loop = asyncio.get_running_loop()
                await loop.create_connection(lambda: self, *address, ssl=context)
        except ssl.SSLError as error:
            raise tls.failure(error, self.endpoint, self._host) from None
        except (ConnectionResetError, ConnectionAbortedError) as error:
            if context is None:
                raise Unreachable(f"cannot connect to a broker at {self.endpoint} ({_reason(error)})") from error
            raise ConnectionLost(
                f"the peer at {self.endpoint} closed the connection during the TLS handshake",
                f"{tls.REMEDY_PLAIN_LISTENER}; {tls.REMEDY_CERTIFICATE}",
            ) from error
        except (OSError, UnicodeError) as error:  # UnicodeError: a host name that DNS cannot encode
            raise Unreachable(f"cannot connect to a broker at {self.endpoint} ({_reason(error)})") from error

    async def _agree(self) -> None:
        request = ApiVersionsRequest(SOFTWARE_NAME, SOFTWARE_VERSION)
        response: Any = await self._exchange(request, API_VERSIONS_VERSION, self._settings.connect_timeout_s)
        if not response.api_keys:
            check(response.error_code, f"the broker at {self.endpoint} did not agree on versions")
        self._versions = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}

    @property
    def closed(self) -> bool:
        """Return True if no further request can be sent."""
        return self._ended is not None

    async def call(self, request: Message, *, version_min: int = 0, version_max: int = VERSION_MAX) -> Any:
        """Send a request in the newest version that both sides know, and return its response.

        The version is at least `version_min` and at most `version_max`. If the login is about to expire, the request
        waits for a new login.

        Raises:
            InvalidArgument: A value does not fit into the request. Nothing was sent.
            UnsupportedRequest: The broker serves no version that this client knows. Nothing was sent.
            ConnectionLost: The connection ended, or no response arrived within `request_timeout_s` (RequestTimedOut).
            ProtocolError: The response is invalid.
            AuthenticationFailed: The login had to be repeated, and the broker refused it.
        """
        version = self._version(request, version_min, version_max)
        if self._session is not None:
            await self._renew_session(self._session)
        response = await self._exchange(request, version, self._settings.request_timeout_s)
        self._is_served = True
        return response

    async def call_of_login(self, request: Message) -> Any:
        """Send a request of a login. Only `log_in` calls this: other requests wait until the login is complete."""
        return await self._exchange(request, self._version(request, 0, VERSION_MAX), self._settings.request_timeout_s)

    async def _renew_session(self, session: Session) -> None:
        """Log in again if the session is about to expire (KIP-368).

        A broker refuses other requests during a login. So requests wait for the lock, and a request is written without
        an interruption after this returns.
        """
        if not session.is_due:  # it is due until the new login is complete
            return
        async with self._login_lock:
            assert self._session is not None
            if not self._session.is_due:
                return
            try:
                self._session = await log_in(self._session.credentials, self)
            except BaseException:
                self.close()
                raise

    def _version(self, request: Message, version_min: int, version_max: int) -> int:
        assert self._versions is not None
        cls = request_class(request.API_KEY)
        lowest, highest = self._versions.get(request.API_KEY, (0, -1))
        version = min(highest, cls.MAX_VERSION, version_max)
        if version < max(lowest, cls.MIN_VERSION, version_min):
            raise UnsupportedRequest(f"the broker at {self.endpoint} does not serve {cls.NAME}")
        return version

    def close(self) -> None:
        """Close the connection. Open requests raise ConnectionLost."""
        self._end(ConnectionLost(f"the connection to {self.endpoint} was closed"))

    async def _exchange(self, request: Message, version: int, timeout_s: float) -> Message:
        assert self._transport is not None
        if self._transport.is_closing():  # before `connection_lost`: asyncio drops what is written, and logs warnings
            self._end(self._lost(None))
        if self._ended is not None:
            raise self._failure()
        try:
            _, frame = self._core.send(request, version, self._settings.client_id)
        except Unencodable as error:
            raise InvalidArgument(f"the request cannot be encoded: {error}") from error
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._open.append(future)
        self._transport.write(frame)
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError as error:
            self._end(RequestTimedOut(f"the broker at {self.endpoint} sent no response within {timeout_s:g} s"))
            raise self._failure() from error

    def _end(self, error: ClientError) -> None:
        """Close the connection once and fail all open requests."""
        if self._ended is not None:
            return
        self._ended = error
        while self._open:
            future = self._open.popleft()
            if not future.done():
                future.set_exception(self._failure())
        if self._transport is not None:
            self._transport.abort()

    def _failure(self) -> ClientError:
        """Return a new exception for each request, since exceptions carry tracebacks."""
        assert self._ended is not None
        return type(self._ended)(self._ended.problem, self._ended.remedy)

    # ---- asyncio.BufferedProtocol -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transports of TLS are no subclass

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._core.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        self._core.buffer_updated(nbytes)
        try:
            while self._ended is None and (response := self._core.next_response()) is not None:
                future = self._open.popleft()
                if not future.done():  # done: the caller was cancelled
                    future.set_result(response[1])
        except Malformed as error:
            if self._versions is not None:
                self._end(ProtocolError(f"the broker at {self.endpoint} sent an invalid response: {error}"))
            elif self._settings.security.tls is None:
                problem = f"the peer at {self.endpoint} does not speak Kafka's protocol in plain text"
                self._end(ProtocolError(problem, REMEDY_TLS_LISTENER))
            else:
                self._end(ProtocolError(f"the peer at {self.endpoint} does not speak Kafka's protocol in TLS"))

    def connection_lost(self, exc: Exception | None) -> None:
        if isinstance(exc, ssl.SSLError):  # with TLS 1.3, a broker refuses a certificate after the handshake
            self._end(tls.failure(exc, self.endpoint, self._host))
        else:
            self._end(self._lost(exc))

    def _lost(self, error: Exception | None) -> ConnectionLost:
        problem = f"the broker at {self.endpoint} closed the connection"
        return ConnectionLost(problem if error is None else f"{problem} ({_reason(error)})", self._remedy_of_end())

    def _remedy_of_end(self) -> str:
        """Return the next step of an operator if the peer closes a connection before it has served a request."""
        if self._is_served or self._session is not None:
            return ""
        settings = self._settings.security.tls
        if settings is not None and settings.key_store is None and self._versions is None:
            return tls.REMEDY_CERTIFICATE  # with TLS 1.3, a broker refuses a certificate after the handshake
        return REMEDY_SECURE_LISTENER


def _reason(error: Exception) -> str:
    """Return the operating system's text, which asyncio replaces by its own."""
    if isinstance(error, TimeoutError) and error.errno is None:
        return "timed out"
    if isinstance(error, OSError) and error.errno is not None and not isinstance(error, socket.gaierror):
        return os.strerror(error.errno)
    return getattr(error, "strerror", None) or str(error)
