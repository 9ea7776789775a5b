"""Reusable buffers for large reads.

A new buffer of 1 MiB per read would cost more than the read: the allocator maps and unmaps its memory each time, so the
kernel has to clear and fault in every page again.
"""

from __future__ import annotations

from sys import getrefcount

READ_BUFFER_BYTES = 1024 * 1024
"""Bytes per buffer: `max.partition.fetch.bytes` of consumers by default."""
READ_BUFFER_BYTES_MIN = 64 * 1024
"""Minimum bytes of a read that uses a buffer. The allocator keeps smaller pieces of memory for reuse itself."""
READ_BUFFERS_MAX = 16
"""Maximum buffers per disk (16 MiB of memory). Further concurrent reads allocate."""
IDLE_REFERENCES = 3
"""References to a buffer without views: the list, the loop variable, and the argument of getrefcount."""


class ReadBuffers:
    """Pool of up to READ_BUFFERS_MAX buffers, allocated on demand. Only the thread of the event loop may use it."""

    def __init__(self) -> None:
        self._buffers: list[bytearray] = []

    def take(self, size: int) -> bytearray | memoryview:
        """Return `size` bytes that the caller overwrites. The buffer is free again when no view of it is left."""
        if not READ_BUFFER_BYTES_MIN <= size <= READ_BUFFER_BYTES:
            return bytearray(size)
        for buffer in self._buffers:
            if getrefcount(buffer) == IDLE_REFERENCES:
                return memoryview(buffer)[:size]
        if len(self._buffers) == READ_BUFFERS_MAX:
            return bytearray(size)
        new = bytearray(READ_BUFFER_BYTES)
        self._buffers.append(new)
        return memoryview(new)[:size]
