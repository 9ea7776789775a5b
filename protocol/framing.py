"""Split a byte stream into frames. A frame is a size of four bytes, followed by that many bytes.

The reader has no IO. The caller fills the buffers that the reader returns.
"""

from __future__ import annotations

import mmap
import sys
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
"""Size of a receive buffer. It can hold a producer's default batch of 16 KiB."""
OWN_BUFFER_BYTES_MIN: Final = 1_024
"""Minimum size of the buffer of one connection for an incomplete frame. Most requests are smaller."""
OWN_BUFFER_GROWTH: Final = 4
"""Ratio of this buffer to the received bytes. With it, a hostile client can allocate at most four bytes per byte sent,
beyond the minimum."""
LARGE_FRAME_START_BYTES: Final = 65_536
"""Initial size of the separate buffer of a large frame, in bytes."""
LARGE_FRAME_GROWTH: Final = 4
"""Growth factor of the buffer of a large frame. It needs fewer copies than doubling.

With it, a hostile client can allocate at most four bytes per byte sent.
"""
LARGE_FRAME_READ_BYTES_MAX: Final = 262_144
"""Maximum bytes of a large frame per read. A connection that has to pause reads once more at most."""
MAPPED_FRAME_BYTES_MIN: Final = 4_194_304
"""Minimum size of a frame that is received into a memory mapping, in bytes.

A page of the mapping occupies memory when bytes arrive in it. So the buffer of such a frame is never copied, and
occupies what was received. The growth of a buffer below this size takes at most 2 ms, and its memory is reused, which
needs fewer page faults.
"""


_NO_BYTES: Final = memoryview(b"")


class ReceiveBuffer:
    """Receive buffer that all connections of an event loop share, so that an idle connection needs none.

    It has unread bytes of at most one connection, the one that read last:

    1. Connection A reads a part of a frame.
    2. Connection B reads. First, the unread bytes of A move to a buffer that A owns until the frame is complete.
    """

    __slots__ = ("_reader", "view")

    def __init__(self) -> None:
        self.view = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        self._reader: FrameReader | None = None

    def lend(self, reader: FrameReader) -> memoryview:
        """Return the buffer for the next bytes of `reader`, which has no unread bytes."""
        if self._reader is not reader:
            if self._reader is not None:
                self._reader.vacate()
            self._reader = reader
        return self.view

    def release(self, reader: FrameReader) -> None:
        """Forget that `reader` uses the buffer: its unread bytes are elsewhere, or none."""
        if self._reader is reader:
            self._reader = None


class FrameReader:
    """Split the byte stream of one connection into frames.

    Small frames are copied from the receive buffer, which is reused. A frame that does not fit gets a separate buffer.
    That buffer grows as bytes arrive, or is a mapping of MAPPED_FRAME_BYTES_MIN or more, whose pages occupy memory as
    bytes arrive. So a declared size alone allocates no memory. The complete buffer is the frame.
    """

    __slots__ = (
        "_end",
        "_filled",
        "_frame_bytes_max",
        "_frame_bytes_min",
        "_large",
        "_large_size",
        "_limit_of_key",
        "_on_spare",
        "_shared",
        "_spare",
        "_start",
        "_view",
    )

    def __init__(
        self,
        *,
        frame_bytes_max: int,
        frame_bytes_min: int,
        limit_of_key: Callable[[int], int] | None = None,
        on_spare: Callable[[int], None] | None = None,
        shared: ReceiveBuffer | None = None,
    ) -> None:
        """`limit_of_key` returns the maximum size of a request with this API key, at most `frame_bytes_max`.

        It applies to frames that do not fit the receive buffer; each request may have RECEIVE_BUFFER_BYTES. Without
        `shared`, the reader has a receive buffer of its own.

        `on_spare` receives changes of the bytes that the buffer of a large frame had beyond the received ones when it
        was allocated. Their sum is 0 when the frame is complete. `close` reports no change.
        """
        self._frame_bytes_max = frame_bytes_max
        self._frame_bytes_min = frame_bytes_min
        self._limit_of_key = limit_of_key
        self._on_spare = on_spare
        self._shared = ReceiveBuffer() if shared is None else shared
        self._view = _NO_BYTES  # the shared buffer, or an own one for bytes that had to leave it
        self._start = 0  # unread bytes are _view[_start:_end]
        self._end = 0
        self._large: memoryview | None = None
        self._large_size = 0
        self._filled = 0
        self._spare = 0

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

    @property
    def own_bytes(self) -> int:
        """Size of the buffers that this connection alone uses. 0 without an incomplete or unread frame.

        The size of a mapping is that of its received bytes.
        """
        own = 0 if self._view is self._shared.view else len(self._view)
        if self._large is None:
            return own
        return own + (self._filled if len(self._large) >= MAPPED_FRAME_BYTES_MIN else len(self._large))

    def get_buffer(self) -> memoryview:
        """Return the buffer for the next bytes. It is never empty.

        It is valid until the next call of any method, also of other readers with the same shared buffer: the caller
        reads into it immediately.
        """
        if self._large is not None and self._filled < self._large_size:
            if self._filled == len(self._large):
                self._grow_large(self._large)
            return self._large[self._filled : self._filled + LARGE_FRAME_READ_BYTES_MAX]
        if self._start == self._end:
            self._view = self._shared.lend(self)
            return self._view
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

    def next_frame(self, key: int | None = None) -> Buffer | None:
        """Return the next frame without its size. Return None if more bytes are needed.

        The reader keeps no reference to the frame. Raise Malformed if the declared size is out of bounds. The caller
        must then close the connection. `key`: the API key whose limit applies to a frame without a header. Such a frame
        can be empty.
        """
        if self._large is not None:
            if self._filled < self._large_size:
                return None
            large, self._large = self._large, None
            self._set_spare(0)
            return large
        start, available = self._start, self._end - self._start
        if available < SIZE_BYTES:
            return None
        (size,) = SIZE.unpack_from(self._view, start)
        size_min = self._frame_bytes_min if key is None else 0
        if not size_min <= size <= self._frame_bytes_max:
            raise Malformed(f"frame has {size} bytes, allowed are {size_min} to {self._frame_bytes_max}")
        following = start + SIZE_BYTES + size
        if following > self._end:
            if size + SIZE_BYTES > RECEIVE_BUFFER_BYTES and self._is_within_limit_of_key(size, key):
                self._begin_large(size)
            return None
        frame = bytes(self._view[start + SIZE_BYTES : following])
        self._start = following
        if following == self._end:
            self._empty()
        return frame

    def close(self) -> None:
        """Release the buffers. No more bytes may follow."""
        self._large = None
        self._empty()
        self._shared.release(self)

    def vacate(self) -> None:
        """Move the unread bytes from the shared buffer to an own one."""
        unread = self._end - self._start
        if unread:
            size = max(OWN_BUFFER_BYTES_MIN, min(OWN_BUFFER_GROWTH * unread, RECEIVE_BUFFER_BYTES))
            self._move(memoryview(bytearray(size)))

    def _is_within_limit_of_key(self, size: int, key: int | None) -> bool:
        """Return False if the API key has not arrived. Raise Malformed if its frames must be smaller than `size`.

        `key` is the API key of a frame without a header.
        """
        if self._limit_of_key is None:
            return True
        if key is None:
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
        if size >= MAPPED_FRAME_BYTES_MIN:
            self._large = _mapping(size)
        else:
            start = min(size, max(LARGE_FRAME_START_BYTES, LARGE_FRAME_GROWTH * self._filled))
            self._large = memoryview(bytearray(start))
            self._set_spare(start - self._filled)
        self._large[: self._filled] = have
        self._empty()

    def _grow_large(self, large: memoryview) -> None:
        grown = memoryview(bytearray(min(self._large_size, LARGE_FRAME_GROWTH * self._filled)))
        grown[: self._filled] = large
        self._large = grown
        self._set_spare(len(grown) - self._filled)

    def _set_spare(self, spare: int) -> None:
        change, self._spare = spare - self._spare, spare
        if change and self._on_spare is not None:
            self._on_spare(change)

    def _empty(self) -> None:
        """Release the receive buffer, which has no unread bytes."""
        self._start = self._end = 0
        self._view = _NO_BYTES

    def _compact_or_grow(self) -> None:
        """Move the unread bytes to the front of the full receive buffer.

        If all its bytes are unread, move them to an own buffer of twice the size.
        """
        if self._start:
            self._move(self._view)
            return
        self._move(memoryview(bytearray(2 * len(self._view))))
        self._shared.release(self)

    def _move(self, target: memoryview) -> None:
        unread = self._end - self._start
        target[:unread] = bytes(self._view[self._start : self._end])
        self._view, self._start, self._end = target, 0, unread


def _mapping(size: int) -> memoryview:
    """Return `size` bytes of zeros, whose pages occupy memory once they are written."""
    pages = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if sys.platform == "linux":
        pages.madvise(mmap.MADV_NOHUGEPAGE)  # the first byte would occupy 2 MiB
    return memoryview(pages)
