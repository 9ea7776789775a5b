"""The client's half of a Kafka connection, without IO and without retries: used between brokers, in tests and in tools."""

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
"""Client ids whose bytes are remembered: the few that a process goes by."""
_START: Final = Packer(">ihhi")  # size, API key, version, correlation id: what differs from request to request


class ClientConnection:
    """Numbers requests and matches responses to them, which a server sends in the order of the requests."""

    def __init__(self, *, response_bytes_max: int) -> None:
        self._frames = FrameReader(frame_bytes_max=response_bytes_max, frame_bytes_min=RESPONSE_BYTES_MIN)
        self._expected: deque[tuple[int, int, int]] = deque()  # correlation id, API key, version
        self._next_correlation_id = 0

    @property
    def inflight(self) -> int:
        """Requests that await a response."""
        return len(self._expected)

    def send(
        self,
        request: Message,
        version: int,
        client_id: str | None,
        *,
        expects_response: bool = True,
    ) -> tuple[int, bytes]:
        """(correlation id, the bytes to send). A Produce with acks=0 expects no response. Raises Unencodable."""
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
        """asyncio.BufferedProtocol: where the next bytes go; never empty."""
        return self._frames.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """asyncio.BufferedProtocol: bytes have arrived there."""
        self._frames.buffer_updated(nbytes)

    def receive_data(self, data: Buffer) -> None:
        """Bytes from a source that brings its own buffers."""
        self._frames.receive_data(data)

    def next_response(self) -> tuple[int, Message] | None:
        """(correlation id, response) of the oldest open request, or None until more bytes arrive.

        Raises Malformed for a response that nobody asked for or that cannot be read: the connection is then of no use.
        """
        frame = self._frames.next_frame()
        if frame is None:
            return None
        if not self._expected:
            raise Malformed("response without a request")
        correlation_id, api_key, version = self._expected.popleft()
        header, position = decode_prefix(ResponseHeader, response_header_version(api_key, version), frame)
        if header.correlation_id != correlation_id:
            raise Malformed(f"response to request {header.correlation_id} where {correlation_id} is next")
        body = memoryview(frame)[position:]
        if api_key == API_VERSIONS_KEY and int.from_bytes(body[:2], "big") == ErrorCode.UNSUPPORTED_VERSION:
            version = 0  # a server that does not know the version answers in version 0 (KIP-511)
        return correlation_id, decode(response_class(api_key), version, body)


@lru_cache(maxsize=HEADER_ENDS_MAX)
def _header_end(client_id: str | None, version: int) -> bytes:
    """What follows the correlation id in a request header of that version."""
    return encode(RequestHeader(client_id=client_id), version)[_START.size - SIZE_BYTES :]
