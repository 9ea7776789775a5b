"""Server side of a Kafka connection as a core without IO.

It splits received bytes into requests. It accepts responses in any order, and returns their bytes in request order:

1. The client sends the requests 0, 1 and 2.
2. The server sets the response of request 1. No bytes can be sent, because request 0 has no response.
3. The server sets the response of request 0. The responses 0 and 1 can be sent, in this order.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct as Packer
from typing import TYPE_CHECKING, Final

from odradek.protocol.codec import decode_prefix
from odradek.protocol.errors import Malformed
from odradek.protocol.framing import SIZE, FrameReader, ReceiveBuffer
from odradek.protocol.messages import APIS
from odradek.protocol.messages.headers import RequestHeader
from odradek.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from odradek.protocol.primitives import read_unsigned_varint

if TYPE_CHECKING:
    from collections.abc import Callable

    from odradek.protocol.schema import Buffer

REQUEST_BYTES_MIN: Final = 8
"""Minimum bytes of a request frame: API key, version and correlation id."""
HEADER_TAGS_MAX: Final = 100
"""Maximum tagged fields of a request header. Kafka 4.4 defines none; a header is decoded in one step."""
HEADER_TAG_BYTES_MAX: Final = 65_536
"""Maximum bytes of all tagged fields of a request header."""
JOIN_BYTES_MAX: Final = 4_096
"""Maximum bytes of a first chunk that is copied to join it with the size.

A larger chunk is passed as a separate buffer.
"""

_FIXED_HEADER: Final = Packer(">hhih")
_KEY_AND_VERSION: Final = Packer(">hh")
_FLEXIBLE_MIN: Final = {key: flexible_min for key, (_, _, flexible_min) in APIS.items()}


@dataclass(slots=True)
class RequestFrame:
    """One request.

    `body` is the part after the header; no other frame shares its memory. `size` is header plus body in bytes.
    `is_raw` is True for a SASL message without a request header, which follows SaslHandshake v0.
    """

    seq: int
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body: memoryview
    size: int
    is_raw: bool = False


class ServerConnection:
    """Framing, request headers and response order of one connection.

    `request_bytes_max` is the maximum size of a request (socket.request.max.bytes). `set_request_bytes_max` can change
    it, for example after the client has authenticated. `limit_of_key` returns the maximum size by API key.
    `on_spare` receives changes of the unused bytes of the buffer of a large request (`FrameReader`).
    `receive_buffer` is shared with other connections. None creates one for this connection.
    """

    __slots__ = ("_done", "_frames", "_next_seq", "_next_to_send", "_out")

    def __init__(
        self,
        *,
        request_bytes_max: int,
        limit_of_key: Callable[[int], int] | None = None,
        on_spare: Callable[[int], None] | None = None,
        receive_buffer: ReceiveBuffer | None = None,
    ) -> None:
        self._frames = FrameReader(
            frame_bytes_max=request_bytes_max,
            frame_bytes_min=REQUEST_BYTES_MIN,
            limit_of_key=limit_of_key,
            on_spare=on_spare,
            shared=receive_buffer,
        )
        self._next_seq = 0
        self._next_to_send = 0
        self._done: dict[int, list[Buffer] | None] = {}
        self._out: list[Buffer] = []

    @property
    def frame_started(self) -> bool:
        """True if a part of a request has arrived. The caller then applies the frame deadline."""
        return self._frames.frame_started

    @property
    def inflight(self) -> int:
        """Number of requests that were returned and whose response has not been queued."""
        return self._next_seq - self._next_to_send

    @property
    def buffered(self) -> int:
        """Number of received bytes that `next_request` has not returned."""
        return self._frames.buffered

    @property
    def own_buffer_bytes(self) -> int:
        """Size of the receive buffers that this connection alone uses. 0 if it has no incomplete or unread request."""
        return self._frames.own_bytes

    def set_request_bytes_max(self, request_bytes_max: int) -> None:
        """Set the maximum request size. It applies to requests that begin after the call."""
        self._frames.set_frame_bytes_max(request_bytes_max)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next bytes (asyncio.BufferedProtocol). It is never empty.

        The caller reads into it before it calls a method of another connection with the same receive buffer.
        """
        return self._frames.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Accept `nbytes` bytes in the buffer that `get_buffer` returned (asyncio.BufferedProtocol)."""
        self._frames.buffer_updated(nbytes)

    def receive_data(self, data: Buffer) -> None:
        """Accept bytes from a source with its own buffers."""
        self._frames.receive_data(data)

    def next_request(self, *, is_raw: bool = False) -> RequestFrame | None:
        """Return the next complete request. Return None if more bytes are needed.

        The header of an unknown API key is decoded as version 1, so that the caller can refuse the request. Raise
        Malformed if size or header are invalid. The caller must then close the connection. With `is_raw`, the request
        is a SASL message without a header. It is returned as SaslAuthenticate v0, whose body is the message.
        """
        frame = self._frames.next_frame(SaslAuthenticateRequest.API_KEY if is_raw else None)
        if frame is None:
            return None
        seq = self._next_seq
        self._next_seq = seq + 1
        if is_raw:
            body = memoryview(frame)
            return RequestFrame(seq, SaslAuthenticateRequest.API_KEY, 0, 0, None, body, len(body), is_raw=True)
        return parse_request(frame, seq)

    def send_response(self, seq: int, chunks: list[Buffer] | None) -> None:
        """Set the response of request `seq`: header and body without the size. None means no response (acks=0).

        Each request needs exactly one call. The order of the calls is free.
        """
        assert self._next_to_send <= seq < self._next_seq, (self._next_to_send, seq, self._next_seq)
        assert seq not in self._done, seq
        if seq != self._next_to_send:
            self._done[seq] = chunks
            return
        self._queue(chunks)
        while self._done and self._next_to_send in self._done:
            self._queue(self._done.pop(self._next_to_send))

    def data_to_send(self) -> list[Buffer]:
        """Return the bytes that can be sent, in request order. Each byte is returned once."""
        out, self._out = self._out, []
        return out

    def close(self) -> None:
        """Release the buffers of a closed connection, even if other objects still refer to this one."""
        self._frames.close()
        self._done.clear()
        self._out.clear()

    def _queue(self, chunks: list[Buffer] | None) -> None:
        self._next_to_send += 1
        if chunks is None:
            return
        first = chunks[0]
        size = SIZE.pack(len(first) if len(chunks) == 1 else sum(map(len, chunks)))
        if len(first) <= JOIN_BYTES_MAX:
            self._out.append(size + first)
            self._out += chunks[1:]
        else:
            self._out.append(size)
            self._out += chunks


def parse_request(frame: Buffer, seq: int = 0) -> RequestFrame:
    """Decode the header of a request frame. Leave the body encoded. Raise Malformed if the header is invalid."""
    if len(frame) < _FIXED_HEADER.size:
        raise Malformed(f"request of {len(frame)} bytes is shorter than its header")
    api_key, api_version, correlation_id, length = _FIXED_HEADER.unpack_from(frame)
    position = _FIXED_HEADER.size
    client_id: str | None = None
    if length >= 0:
        position += length
        if position > len(frame):
            raise Malformed(f"request header: client id of {length} bytes exceeds the request")
        try:
            client_id = str(frame[_FIXED_HEADER.size : position], "utf-8")
        except UnicodeDecodeError as error:
            raise Malformed("request header: client id is not UTF-8") from error
    elif length != -1:
        raise Malformed(f"request header: client id has length {length}")
    flexible_min = _FLEXIBLE_MIN.get(api_key)
    if flexible_min is not None and api_version >= flexible_min:
        if position < len(frame) and frame[position] == 0:
            position += 1
        else:
            position = _end_of_tagged_header(frame, position)
    body = memoryview(frame)[position:]
    return RequestFrame(seq, api_key, api_version, correlation_id, client_id, body, len(frame))


def _end_of_tagged_header(frame: Buffer, tags: int) -> int:
    """Return the end of the request header whose tagged fields begin at `tags`. Raise Malformed beyond the limits."""
    count, _ = read_unsigned_varint(frame, tags)
    if count > HEADER_TAGS_MAX:
        raise Malformed(f"request header has {count} tagged fields, allowed are {HEADER_TAGS_MAX}")
    _, end = decode_prefix(RequestHeader, 2, memoryview(frame)[: tags + HEADER_TAG_BYTES_MAX])
    return end
