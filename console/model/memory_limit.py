"""Memory that the pages of records hold together. A page waits for it, and is refused after a time."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

BYTES_MAX: Final = 512 * 2**20
"""Maximum bytes of records that all pages of a console hold together.

A reading of a partition reserves up to 84 MiB, and 23 MiB if the page has 32 partitions. So 6 to 22 readings run at the
same time.
"""
WAIT_S: Final = 5.0
"""Seconds for which a reading waits until other pages release memory."""


class MemoryBusy(Exception):
    """Other pages held the memory for WAIT_S."""


class MemoryLimit:
    """Bytes that pages reserve before they read. Readings that wait receive memory in the order of their requests."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self.free_bytes = bytes_max
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @contextmanager
    def page(self) -> Iterator[PageMemory]:
        """Yield the memory of a page. At the end, all of it is released."""
        memory = PageMemory(self)
        try:
            yield memory
        finally:
            memory.release(memory.held_bytes)

    async def take(self, size: int) -> None:
        """Wait for a number of bytes. Raise MemoryBusy if they are not free within WAIT_S."""
        assert size <= self.bytes_max, "a reading needs more memory than there is"
        if not self._waiting and size <= self.free_bytes:
            self.free_bytes -= size
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            async with asyncio.timeout(WAIT_S):
                await turn
        except BaseException as error:
            # The time can end in the same turn of the loop in which the bytes are given.
            self.give(0 if turn.cancelled() else size)
            if isinstance(error, TimeoutError):
                raise MemoryBusy from None
            raise

    def give(self, size: int) -> None:
        """Release bytes, and let readings continue that wait for them."""
        self.free_bytes += size
        while self._waiting and (self._waiting[0][1].cancelled() or self._waiting[0][0] <= self.free_bytes):
            taken, turn = self._waiting.popleft()
            if not turn.cancelled():
                self.free_bytes -= taken
                turn.set_result(None)


class PageMemory:
    """Memory of one page."""

    def __init__(self, limit: MemoryLimit) -> None:
        self.held_bytes = 0
        self._limit = limit

    async def reserve(self, size: int) -> None:
        """Wait for a number of bytes. Raise MemoryBusy if other pages hold the memory for too long."""
        await self._limit.take(size)
        self.held_bytes += size

    def release(self, size: int) -> None:
        """Release bytes that the page does not hold any more."""
        self.held_bytes -= size
        self._limit.give(size)
