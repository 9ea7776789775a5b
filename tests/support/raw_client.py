"""A Kafka client without retries and caches, on any asyncio loop.

Clients hide a broker's bugs by retrying. This one sends a request and returns its response, or raises ConnectionLost.
Several requests can be in flight. Responses are matched by correlation id; one out of order is an error of the broker.
"""

import asyncio
import ssl
import struct
from collections import deque
from typing import Any, Final, TypeVar, cast

from odradek.protocol.codec import decode, decode_prefix, encode, request_header_version, response_header_version
from odradek.protocol.messages import response_class
from odradek.protocol.messages.headers import RequestHeader, ResponseHeader
from odradek.protocol.schema import Message

SIZE: Final = struct.Struct(">i")

M = TypeVar("M", bound=Message)


class ConnectionLost(ConnectionError):
    """The connection ended before the response arrived: the request may or may not have been applied."""


def encode_request(request: Message, version: int, correlation_id: int, client_id: str) -> bytes:
    """A whole frame, size prefix included."""
    api_key = request.API_KEY
    header = RequestHeader(api_key, version, correlation_id, client_id)
    payload = encode(header, request_header_version(api_key, version)) + encode(request, version)
    return SIZE.pack(len(payload)) + payload


class RawClient(asyncio.Protocol):
    """One connection. `await RawClient.connect(...)`, then `await client.call(request, version)`."""

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self.lost: Exception | None = None
        self.frames_received = 0
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._correlation_id = 0
        self._waiting: deque[tuple[int, int, int, asyncio.Future[Message]]] = deque()

    @classmethod
    async def connect(
        cls,
        host: str,
        port: int,
        *,
        client_id: str = "raw",
        tls: ssl.SSLContext | None = None,
        local_addr: tuple[str, int] | None = None,
    ) -> "RawClient":
        """Connect. Raise OSError if the connection is refused."""
        loop = asyncio.get_running_loop()
        _, protocol = await loop.create_connection(lambda: cls(client_id), host, port, ssl=tls, local_addr=local_addr)
        return protocol

    @property
    def is_open(self) -> bool:
        return self._transport is not None and self.lost is None and not self._transport.is_closing()

    def send(self, request: Message, version: int) -> asyncio.Future[Message]:
        """Send now; the future holds the response, or raises ConnectionLost."""
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        if not self.is_open:
            future.set_exception(ConnectionLost("not connected"))
            return future
        assert self._transport is not None
        self._correlation_id += 1
        frame = encode_request(request, version, self._correlation_id, self.client_id)
        self._waiting.append((self._correlation_id, request.API_KEY, version, future))
        self._transport.write(frame)
        return future

    async def call(self, request: Message, version: int, *, timeout: float | None = None) -> Any:
        """Send and wait.

        Raises:
            ConnectionLost: the connection ended first, or `timeout` seconds passed (then the connection is given up,
                since its next response would be the one to this request).
        """
        future = self.send(request, version)
        try:
            return await asyncio.wait_for(future, timeout)
        except TimeoutError:
            self.abort()
            raise ConnectionLost(f"no response within {timeout} s") from None

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # ---- asyncio.Protocol -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but name

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= SIZE.size:
            size = SIZE.unpack_from(self._buffer)[0]
            if len(self._buffer) < SIZE.size + size:
                return
            frame = bytes(self._buffer[SIZE.size : SIZE.size + size])
            del self._buffer[: SIZE.size + size]
            self._take(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = exc or ConnectionLost("closed")
        while self._waiting:
            future = self._waiting.popleft()[3]
            if not future.done():
                future.set_exception(ConnectionLost(f"connection ended: {exc!r}"))

    def _take(self, frame: bytes) -> None:
        self.frames_received += 1
        expected, api_key, version, future = self._waiting.popleft()
        header, start = decode_prefix(ResponseHeader, response_header_version(api_key, version), frame)
        assert header.correlation_id == expected, f"response {header.correlation_id} arrived before {expected}"
        if not future.done():
            future.set_result(decode(response_class(api_key), version, frame[start:]))
