"""Memory for large reads, used again as soon as nobody looks at it any more.

A buffer of a megabyte that is made for one read and thrown away costs more than the read itself: the allocator gets it from
the kernel and gives it back, so that each of its pages is cleared and faulted in anew.
"""

from __future__ import annotations

from sys import getrefcount

READ_BUFFER_BYTES = 1024 * 1024  # what consumers ask of a partition by default
READ_BUFFER_BYTES_MIN = 64 * 1024  # smaller reads do without: memory of that size stays with the allocator
READ_BUFFERS_MAX = 16
IDLE_REFERENCES = 3  # the list, the variable of the loop and the argument of getrefcount; every view of it is one more


class ReadBuffers:
    """At most READ_BUFFERS_MAX buffers, made when they are needed first. For one thread: the loop's."""

    def __init__(self) -> None:
        self._buffers: list[bytearray] = []

    def take(self, size: int) -> bytearray | memoryview:
        """`size` bytes to be overwritten whole. They are taken back when all views of them are gone."""
        if not READ_BUFFER_BYTES_MIN <= size <= READ_BUFFER_BYTES:
            return bytearray(size)
        for buffer in self._buffers:
            if getrefcount(buffer) == IDLE_REFERENCES:
                return memoryview(buffer)[:size]
        if len(self._buffers) == READ_BUFFERS_MAX:
            return bytearray(size)
        made = bytearray(READ_BUFFER_BYTES)
        self._buffers.append(made)
        return memoryview(made)[:size]
