"""One connection to one broker: version agreement, overlapping requests, time-outs."""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from typing import TYPE_CHECKING, Any, Final

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


class Connection(asyncio.BufferedProtocol):
    """A connection to one broker. Requests may overlap; a broker sends the responses in the order of the requests.

    A time-out or an invalid response closes the connection and fails all open requests, because later responses could
    no longer be assigned to their requests.
    """

    def __init__(self, endpoint: str, settings: Settings) -> None:
        self.endpoint = endpoint
        self._settings = settings
        self._core = ClientConnection(response_bytes_max=settings.response_bytes_max)
        self._open: deque[asyncio.Future[Message]] = deque()
        self._versions: dict[int, tuple[int, int]] | None = None
        self._transport: asyncio.Transport | None = None
        self._ended: tuple[type[ClientError], str] | None = None

    @classmethod
    async def open(cls, address: Address, settings: Settings) -> Connection:
        """Connect and agree on versions.

        Raises:
            Unreachable: There is no connection within `connect_timeout_s`.
            ConnectionLost: The peer closed the connection, or sent no version response in time.
            ProtocolError: The peer is no Kafka broker, or expects TLS.
        """
        endpoint = f"{address[0]}:{address[1]}"
        try:
            async with asyncio.timeout(settings.connect_timeout_s):
                loop = asyncio.get_running_loop()
                _, connection = await loop.create_connection(lambda: cls(endpoint, settings), *address)
        except (OSError, UnicodeError) as error:  # UnicodeError: a host name that DNS cannot encode
            raise Unreachable(f"cannot connect to a broker at {endpoint} ({_reason(error)})") from error
        try:
            await connection._agree()
        except BaseException:
            connection.close()
            raise
        return connection

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

        The version is at least `version_min` and at most `version_max`.

        Raises:
            InvalidArgument: A value does not fit into the request. Nothing was sent.
            UnsupportedRequest: The broker serves no version that this client knows. Nothing was sent.
            ConnectionLost: The connection ended, or no response arrived within `request_timeout_s` (RequestTimedOut).
            ProtocolError: The response is invalid.
        """
        assert self._versions is not None
        cls = request_class(request.API_KEY)
        lowest, highest = self._versions.get(request.API_KEY, (0, -1))
        version = min(highest, cls.MAX_VERSION, version_max)
        if version < max(lowest, cls.MIN_VERSION, version_min):
            raise UnsupportedRequest(f"the broker at {self.endpoint} does not serve {cls.NAME}")
        return await self._exchange(request, version, self._settings.request_timeout_s)

    def close(self) -> None:
        """Close the connection. Open requests raise ConnectionLost."""
        self._end(ConnectionLost, f"the connection to {self.endpoint} was closed")

    async def _exchange(self, request: Message, version: int, timeout_s: float) -> Message:
        if self._ended is not None:
            raise self._failure()
        assert self._transport is not None
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
            self._end(RequestTimedOut, f"the broker at {self.endpoint} sent no response within {timeout_s:g} s")
            raise self._failure() from error

    def _end(self, kind: type[ClientError], problem: str) -> None:
        """Close the connection once and fail all open requests."""
        if self._ended is not None:
            return
        self._ended = kind, problem
        while self._open:
            future = self._open.popleft()
            if not future.done():
                future.set_exception(self._failure())
        if self._transport is not None:
            self._transport.abort()

    def _failure(self) -> ClientError:
        """Return a new exception for each request, since exceptions carry tracebacks."""
        assert self._ended is not None
        kind, problem = self._ended
        return kind(problem)

    # ---- asyncio.BufferedProtocol -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

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
            if self._versions is None:
                problem = f"the peer at {self.endpoint} does not speak Kafka's protocol in plain text"
            else:
                problem = f"the broker at {self.endpoint} sent an invalid response: {error}"
            self._end(ProtocolError, problem)

    def connection_lost(self, exc: Exception | None) -> None:
        problem = f"the broker at {self.endpoint} closed the connection"
        self._end(ConnectionLost, problem if exc is None else f"{problem} ({_reason(exc)})")


def _reason(error: Exception) -> str:
    """Return the operating system's text, which asyncio replaces by its own."""
    if isinstance(error, TimeoutError) and error.errno is None:
        return "timed out"
    if isinstance(error, OSError) and error.errno is not None and not isinstance(error, socket.gaierror):
        return os.strerror(error.errno)
    return getattr(error, "strerror", None) or str(error)
