"""Frames out of a byte stream: four bytes of size, then that many bytes. No IO: buffers are handed out to be filled."""

from __future__ import annotations

from struct import Struct as Packer
from typing import TYPE_CHECKING, Final

from odradek.protocol.errors import Malformed

if TYPE_CHECKING:
    from odradek.protocol.schema import Buffer

SIZE: Final = Packer(">i")
SIZE_BYTES: Final = 4
RECEIVE_BUFFER_BYTES: Final = 32_768  # holds a producer's default batch of 16 KiB, and is kept by every idle connection
LARGE_FRAME_START_BYTES: Final = 65_536  # first size of a large frame's own buffer
LARGE_FRAME_GROWTH: Final = 4  # times the bytes received: fewer copies than doubling, and far below 64 bytes a byte


class FrameReader:
    """Splits a stream into frames.

    Small frames are copied out of one receive buffer, which is used again at once. A frame that does not fit there gets a
    buffer of its own, which grows as bytes arrive (a declared size alone allocates nothing) and then becomes the frame.
    """

    __slots__ = ("_end", "_filled", "_frame_bytes_max", "_frame_bytes_min", "_large", "_large_size", "_start", "_view")

    def __init__(self, *, frame_bytes_max: int, frame_bytes_min: int) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._frame_bytes_min = frame_bytes_min
        self._view = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        self._start = 0  # unread bytes lie in _view[_start:_end]
        self._end = 0
        self._large: memoryview | None = None
        self._large_size = 0
        self._filled = 0

    @property
    def frame_started(self) -> bool:
        """Bytes of a frame are here, but not all of them."""
        if self._large is not None:
            return self._filled < self._large_size
        available = self._end - self._start
        if available < SIZE_BYTES:
            return available > 0
        return bool(available - SIZE_BYTES < SIZE.unpack_from(self._view, self._start)[0])

    @property
    def buffered(self) -> int:
        """Bytes received and not yet taken as frames."""
        return self._end - self._start + (self._filled if self._large is not None else 0)

    def get_buffer(self) -> memoryview:
        """Where the next bytes go; never empty. Valid until the next call of any method."""
        if self._large is not None and self._filled < self._large_size:
            if self._filled == len(self._large):
                self._grow_large(self._large)
            return self._large[self._filled :]
        if self._end == len(self._view):
            self._make_room()
        return self._view[self._end :]

    def buffer_updated(self, size: int) -> None:
        """That many bytes were put into the buffer that get_buffer gave."""
        if self._large is not None and self._filled < self._large_size:
            self._filled += size
        else:
            self._end += size

    def receive_data(self, data: Buffer) -> None:
        """Copies bytes in, for a source that brings its own buffers."""
        view = memoryview(data)
        while view:
            target = self.get_buffer()
            size = min(len(target), len(view))
            target[:size] = view[:size]
            self.buffer_updated(size)
            view = view[size:]

    def set_frame_bytes_max(self, frame_bytes_max: int) -> None:
        """Holds for frames that begin from now on."""
        self._frame_bytes_max = frame_bytes_max

    def next_frame(self) -> Buffer | None:
        """The next frame without its size; the reader never touches it again. None: more bytes are needed.

        Raises Malformed when the stated size is out of bounds; there is no way on from there.
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
            raise Malformed(f"frame of {size} bytes is outside {self._frame_bytes_min} to {self._frame_bytes_max}")
        following = start + SIZE_BYTES + size
        if following > self._end:
            if size + SIZE_BYTES > len(self._view):
                self._begin_large(size)
            return None
        frame = bytes(self._view[start + SIZE_BYTES : following])
        self._start = following
        if following == self._end:
            self._empty()
        return frame

    def close(self) -> None:
        """Nothing more comes: give the buffers back."""
        self._view = memoryview(b"")
        self._large = None
        self._start = self._end = 0

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
        """Nothing is unread: the next bytes go to the front, and what a burst had taken is given back."""
        self._start = self._end = 0
        if len(self._view) > RECEIVE_BUFFER_BYTES:
            self._view = memoryview(bytearray(RECEIVE_BUFFER_BYTES))

    def _make_room(self) -> None:
        """The receive buffer is full: move what is unread to its front, or take a larger one when nothing was read yet."""
        unread = self._end - self._start
        target = self._view if self._start else memoryview(bytearray(2 * len(self._view)))
        target[:unread] = bytes(self._view[self._start : self._end])
        self._view, self._start, self._end = target, 0, unread
