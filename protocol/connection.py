"""The server's half of a Kafka connection, without IO: bytes in, requests out; responses in, bytes out in request order.

requests are numbered     0        1        2
answered in any order              x                  nothing can be sent: 0 is still open
x                           0 and 1 go out, in this order
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct as Packer
from typing import TYPE_CHECKING, Final

from odradek.protocol.codec import decode_prefix
from odradek.protocol.errors import Malformed
from odradek.protocol.framing import SIZE, FrameReader
from odradek.protocol.messages import APIS
from odradek.protocol.messages.headers import RequestHeader

if TYPE_CHECKING:
    from odradek.protocol.schema import Buffer

REQUEST_BYTES_MIN: Final = 8  # API key, version, correlation id: less is no request of any version
JOIN_BYTES_MAX: Final = 4_096  # the size is joined to a first chunk up to this size, sparing the socket one buffer

_FIXED_HEADER: Final = Packer(">hhih")
_KEY_AND_VERSION: Final = Packer(">hh")
_FLEXIBLE_MIN: Final = {key: flexible_min for key, (_, _, flexible_min) in APIS.items()}


@dataclass(slots=True)
class RequestFrame:
    """One request. `body` starts behind the header and belongs to this frame alone; `size` counts header and body."""

    seq: int
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body: memoryview
    size: int


class ServerConnection:
    """Framing, request headers and response order of one connection.

    `request_bytes_max` bounds a frame without its size (socket.request.max.bytes). Raising it later, when the client has
    authenticated, is what `set_request_bytes_max` is for.
    """

    __slots__ = ("_done", "_frames", "_next_seq", "_next_to_send", "_out")

    def __init__(self, *, request_bytes_max: int) -> None:
        self._frames = FrameReader(frame_bytes_max=request_bytes_max, frame_bytes_min=REQUEST_BYTES_MIN)
        self._next_seq = 0
        self._next_to_send = 0
        self._done: dict[int, list[Buffer] | None] = {}
        self._out: list[Buffer] = []

    @property
    def frame_started(self) -> bool:
        """Half a frame is here: its deadline runs."""
        return self._frames.frame_started

    @property
    def inflight(self) -> int:
        """Requests taken whose response, if any, is not yet on its way."""
        return self._next_seq - self._next_to_send

    @property
    def buffered(self) -> int:
        """Bytes received and not yet taken as requests."""
        return self._frames.buffered

    def set_request_bytes_max(self, request_bytes_max: int) -> None:
        self._frames.set_frame_bytes_max(request_bytes_max)

    def get_buffer(self, sizehint: int) -> memoryview:
        """asyncio.BufferedProtocol: where the next bytes go; never empty."""
        return self._frames.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """asyncio.BufferedProtocol: bytes have arrived there."""
        self._frames.buffer_updated(nbytes)

    def receive_data(self, data: Buffer) -> None:
        """Bytes from a source that brings its own buffers."""
        self._frames.receive_data(data)

    def next_request(self) -> RequestFrame | None:
        """The next whole request, or None until more bytes arrive.

        A request of an unknown API key is returned with the header read as version 1, for the caller to refuse. Raises
        Malformed when size or header make no sense: the connection must then be closed.
        """
        frame = self._frames.next_frame()
        if frame is None:
            return None
        seq = self._next_seq
        self._next_seq = seq + 1
        return parse_request(frame, seq)

    def send_response(self, seq: int, chunks: list[Buffer] | None) -> None:
        """The answer to request `seq`: header and body without the size, or None when there is none (acks=0).

        Each request is answered exactly once, in any order.
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
        """Everything that may be sent by now, in request order; it is given out once."""
        out, self._out = self._out, []
        return out

    def close(self) -> None:
        """The connection is gone: give back what is held for it, whoever still refers to this."""
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
    """A frame without its size as a request: header taken apart, body left as it is. Raises Malformed."""
    if len(frame) < _FIXED_HEADER.size:
        raise Malformed(f"request of {len(frame)} bytes ends within its header")
    api_key, api_version, correlation_id, length = _FIXED_HEADER.unpack_from(frame)
    position = _FIXED_HEADER.size
    client_id: str | None = None
    if length >= 0:
        position += length
        if position > len(frame):
            raise Malformed(f"request header: client id of {length} bytes runs past the end")
        try:
            client_id = str(frame[_FIXED_HEADER.size : position], "utf-8")
        except UnicodeDecodeError as error:
            raise Malformed("request header: client id is not UTF-8") from error
    elif length != -1:
        raise Malformed(f"request header: client id of length {length}")
    flexible_min = _FLEXIBLE_MIN.get(api_key)
    if flexible_min is not None and api_version >= flexible_min:
        if position < len(frame) and frame[position] == 0:
            position += 1
        else:
            _, position = decode_prefix(RequestHeader, 2, frame)
    body = memoryview(frame)[position:]
    return RequestFrame(seq, api_key, api_version, correlation_id, client_id, body, len(frame))
