"""Client side of a Kafka connection as a core: it has no IO and no retries.

Brokers, the client package and tests use it.
"""

from __future__ import annotations

from collections import deque
from functools import lru_cache
from struct import Struct as Packer
from typing import TYPE_CHECKING, Final

from odradek.protocol.codec import (
    API_VERSIONS_KEY,
    decode,
    decode_prefix,
    encode,
    request_header_version,
    response_header_version,
)
from odradek.protocol.errors import ErrorCode, Malformed
from odradek.protocol.framing import SIZE_BYTES, FrameReader
from odradek.protocol.messages import response_class
from odradek.protocol.messages.headers import RequestHeader, ResponseHeader

if TYPE_CHECKING:
    from odradek.protocol.schema import Buffer, Message

RESPONSE_BYTES_MIN: Final = 4  # the correlation id
CORRELATION_ID_MAX: Final = 2_147_483_647
HEADER_ENDS_MAX: Final = 256
"""Maximum cached request header ends. A process uses few client ids."""
_START: Final = Packer(">ihhi")  # size, API key, version, correlation id: the part that differs between requests


class ClientConnection:
    """Assign correlation ids to requests, and match responses to requests. A server responds in request order."""

    def __init__(self, *, response_bytes_max: int) -> None:
        self._frames = FrameReader(frame_bytes_max=response_bytes_max, frame_bytes_min=RESPONSE_BYTES_MIN)
        self._expected: deque[tuple[int, int, int]] = deque()  # correlation id, API key, version
        self._next_correlation_id = 0

    @property
    def inflight(self) -> int:
        """Number of requests without a response."""
        return len(self._expected)

    def send(
        self,
        request: Message,
        version: int,
        client_id: str | None,
        *,
        expects_response: bool = True,
    ) -> tuple[int, bytes]:
        """Encode a request. Return its correlation id and the bytes to send. Raise Unencodable if it cannot be encoded.

        A Produce request with acks=0 has no response: call with `expects_response=False`.
        """
        correlation_id = self._next_correlation_id
        api_key = request.API_KEY
        head = _header_end(client_id, request_header_version(api_key, version))
        body = encode(request, version)
        self._next_correlation_id = 0 if correlation_id == CORRELATION_ID_MAX else correlation_id + 1
        if expects_response:
            self._expected.append((correlation_id, api_key, version))
        size = _START.size - SIZE_BYTES + len(head) + len(body)
        return correlation_id, _START.pack(size, api_key, version, correlation_id) + head + body

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next bytes (asyncio.BufferedProtocol). It is never empty."""
        return self._frames.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Accept `nbytes` bytes in the buffer that `get_buffer` returned (asyncio.BufferedProtocol)."""
        self._frames.buffer_updated(nbytes)

    def receive_data(self, data: Buffer) -> None:
        """Accept bytes from a source with its own buffers."""
        self._frames.receive_data(data)

    def next_response(self) -> tuple[int, Message] | None:
        """Return (correlation id, response) of the oldest open request. Return None if more bytes are needed.

        Raise Malformed if the response has no request or cannot be decoded. The caller must then close the connection.
        """
        frame = self._frames.next_frame()
        if frame is None:
            return None
        if not self._expected:
            raise Malformed("response without a request")
        correlation_id, api_key, version = self._expected.popleft()
        header, position = decode_prefix(ResponseHeader, response_header_version(api_key, version), frame)
        if header.correlation_id != correlation_id:
            raise Malformed(f"response has correlation id {header.correlation_id}, expected {correlation_id}")
        body = memoryview(frame)[position:]
        if api_key == API_VERSIONS_KEY and int.from_bytes(body[:2], "big") == ErrorCode.UNSUPPORTED_VERSION:
            version = 0  # a server without this version responds in version 0 (KIP-511)
        return correlation_id, decode(response_class(api_key), version, body)


@lru_cache(maxsize=HEADER_ENDS_MAX)
def _header_end(client_id: str | None, version: int) -> bytes:
    """Encode the part of a request header after the correlation id."""
    return encode(RequestHeader(client_id=client_id), version)[_START.size - SIZE_BYTES :]
