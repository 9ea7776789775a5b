"""Split a byte stream into frames. A frame is a size of four bytes, followed by that many bytes.

The reader has no IO. The caller fills the buffers that the reader returns.
"""

from __future__ import annotations

from struct import Struct as Packer
from typing import TYPE_CHECKING, Final

from odradek.protocol.errors import Malformed

if TYPE_CHECKING:
    from collections.abc import Callable

    from odradek.protocol.schema import Buffer

SIZE: Final = Packer(">i")
SIZE_BYTES: Final = 4
KEY: Final = Packer(">h")
KEY_BYTES: Final = 2
"""Bytes of the API key, which begins a request."""
RECEIVE_BUFFER_BYTES: Final = 32_768
"""Size of the receive buffer of each connection, including idle ones.

It can hold a producer's default batch of 16 KiB.
"""
LARGE_FRAME_START_BYTES: Final = 65_536
"""Initial size of the separate buffer of a large frame, in bytes."""
LARGE_FRAME_GROWTH: Final = 4
"""Growth factor of the buffer of a large frame. It needs fewer copies than doubling.

With it, a hostile client can allocate at most four bytes per byte sent.
"""


class FrameReader:
    """Split the byte stream of one connection into frames.

    Small frames are copied from the receive buffer, which is reused. A frame that does not fit gets a separate buffer.
    That buffer grows as bytes arrive, so a declared size alone allocates no memory. The complete buffer is the frame.
    """

    __slots__ = (
        "_end",
        "_filled",
        "_frame_bytes_max",
        "_frame_bytes_min",
        "_large",
        "_large_size",
        "_limit_of_key",
        "_start",
        "_view",
    )

    def __init__(
        self, *, frame_bytes_max: int, frame_bytes_min: int, limit_of_key: Callable[[int], int] | None = None
    ) -> None:
        """`limit_of_key` returns the maximum size of a request with this API key, at most `frame_bytes_max`.

        It applies to frames that do not fit the receive buffer; each request may have RECEIVE_BUFFER_BYTES.
        """
        self._frame_bytes_max = frame_bytes_max
        self._frame_bytes_min = frame_bytes_min
        self._limit_of_key = limit_of_key
        self._view = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        self._start = 0  # unread bytes are _view[_start:_end]
        self._end = 0
        self._large: memoryview | None = None
        self._large_size = 0
        self._filled = 0

    @property
    def frame_started(self) -> bool:
        """True if a part of a frame has arrived, but not all of it."""
        if self._large is not None:
            return self._filled < self._large_size
        available = self._end - self._start
        if available < SIZE_BYTES:
            return available > 0
        return bool(available - SIZE_BYTES < SIZE.unpack_from(self._view, self._start)[0])

    @property
    def buffered(self) -> int:
        """Number of received bytes that `next_frame` has not returned."""
        return self._end - self._start + (self._filled if self._large is not None else 0)

    def get_buffer(self) -> memoryview:
        """Return the buffer for the next bytes. It is never empty, and valid until the next call of any method."""
        if self._large is not None and self._filled < self._large_size:
            if self._filled == len(self._large):
                self._grow_large(self._large)
            return self._large[self._filled :]
        if self._end == len(self._view):
            self._compact_or_grow()
        return self._view[self._end :]

    def buffer_updated(self, size: int) -> None:
        """Accept `size` bytes in the buffer that `get_buffer` returned."""
        if self._large is not None and self._filled < self._large_size:
            self._filled += size
        else:
            self._end += size

    def receive_data(self, data: Buffer) -> None:
        """Copy bytes from a source with its own buffers."""
        view = memoryview(data)
        while view:
            target = self.get_buffer()
            size = min(len(target), len(view))
            target[:size] = view[:size]
            self.buffer_updated(size)
            view = view[size:]

    def set_frame_bytes_max(self, frame_bytes_max: int) -> None:
        """Set the maximum frame size. It applies to frames that begin after the call."""
        self._frame_bytes_max = frame_bytes_max

    def next_frame(self) -> Buffer | None:
        """Return the next frame without its size. Return None if more bytes are needed.

        The reader keeps no reference to the frame. Raise Malformed if the declared size is out of bounds. The caller
        must then close the connection.
        """
        if self._large is not None:
            if self._filled < self._large_size:
                return None
            large, self._large = self._large, None
            return large
        start, available = self._start, self._end - self._start
        if available < SIZE_BYTES:
            return None
        (size,) = SIZE.unpack_from(self._view, start)
        if not self._frame_bytes_min <= size <= self._frame_bytes_max:
            raise Malformed(f"frame has {size} bytes, allowed are {self._frame_bytes_min} to {self._frame_bytes_max}")
        following = start + SIZE_BYTES + size
        if following > self._end:
            if size + SIZE_BYTES > len(self._view) and self._is_within_limit_of_key(size):
                self._begin_large(size)
            return None
        frame = bytes(self._view[start + SIZE_BYTES : following])
        self._start = following
        if following == self._end:
            self._empty()
        return frame

    def close(self) -> None:
        """Release the buffers. No more bytes may follow."""
        self._view = memoryview(b"")
        self._large = None
        self._start = self._end = 0

    def _is_within_limit_of_key(self, size: int) -> bool:
        """Return False if the API key has not arrived. Raise Malformed if its frames must be smaller than `size`."""
        if self._limit_of_key is None:
            return True
        if self._end - self._start < SIZE_BYTES + KEY_BYTES:
            return False
        (key,) = KEY.unpack_from(self._view, self._start + SIZE_BYTES)
        limit = self._limit_of_key(key)
        if size > limit:
            raise Malformed(f"request with API key {key} has {size} bytes, allowed are {limit}")
        return True

    def _begin_large(self, size: int) -> None:
        have = self._view[self._start + SIZE_BYTES : self._end]
        self._filled = len(have)
        self._large_size = size
        self._large = memoryview(bytearray(min(size, max(LARGE_FRAME_START_BYTES, LARGE_FRAME_GROWTH * self._filled))))
        self._large[: self._filled] = have
        self._empty()

    def _grow_large(self, large: memoryview) -> None:
        grown = memoryview(bytearray(min(self._large_size, LARGE_FRAME_GROWTH * self._filled)))
        grown[: self._filled] = large
        self._large = grown

    def _empty(self) -> None:
        """Reset the receive buffer, which has no unread bytes. Replace it if it has grown."""
        self._start = self._end = 0
        if len(self._view) > RECEIVE_BUFFER_BYTES:
            self._view = memoryview(bytearray(RECEIVE_BUFFER_BYTES))

    def _compact_or_grow(self) -> None:
        """Move the unread bytes to the front of the full receive buffer.

        If all its bytes are unread, double its size.
        """
        unread = self._end - self._start
        target = self._view if self._start else memoryview(bytearray(2 * len(self._view)))
        target[:unread] = bytes(self._view[self._start : self._end])
        self._view, self._start, self._end = target, 0, unread
