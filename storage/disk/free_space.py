"""The reserve of free space on a disk: logs of data stop to grow before the file system is full."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final

from odradek.storage.disk.port import ResourcesExhausted

if TYPE_CHECKING:
    from collections.abc import Callable

RESERVED_BYTES_MAX: Final = 256 * 1024 * 1024
"""Bytes of the file system that data logs leave free. The metadata log, checkpoints and deletions need a part of it."""
RESERVED_DIVISOR: Final = 20
"""Part of a small file system that data logs leave free, as a divisor: 5 %."""
CHECK_BYTES: Final = 8 * 1024 * 1024
"""Maximum bytes that are appended between two checks of the free space, which take one system call each."""
RESUME_FACTOR: Final = 2
"""Multiple of the reserve that must be free before a full disk counts as not full."""


class FreeSpace:
    """The free space of the file system of one data directory."""

    def __init__(self, free_and_total: Callable[[str], tuple[int, int]], *, reserves: bool) -> None:
        """`free_and_total(path)` reads the bytes of a file system. Without `reserves`, nothing is reserved."""
        self._free_and_total = free_and_total
        self._reserves = reserves
        self._left = 0
        self._full = False
        self._refused = False

    def check(self, path: str, size: int) -> None:
        """Raise ResourcesExhausted if an append of `size` bytes would use the reserve."""
        self._left -= size
        if self._left >= 0 or not self._reserves:
            return
        self._left = 0
        usable = self._usable(path)
        if usable < size:
            self._refused = True
            raise ResourcesExhausted(
                errno.ENOSPC, "the free space of the disk is reserved; free space, or delete records or topics", path
            )
        self._left = min(usable - size, CHECK_BYTES)

    def refused(self) -> None:
        """Note that the file system refused a write for lack of space."""
        self._refused = True

    def is_full(self, path: str) -> bool:
        """Return True if logs must not grow, or if an append or a write was refused since the last call."""
        free, total = self._free_and_total(path)
        factor = RESUME_FACTOR if self._full else 1
        lacking = self._reserves and free <= factor * _reserve(total)
        self._full = lacking or self._refused
        self._refused = False
        return self._full

    def _usable(self, path: str) -> int:
        free, total = self._free_and_total(path)
        return free - _reserve(total)


def _reserve(total: int) -> int:
    return min(RESERVED_BYTES_MAX, total // RESERVED_DIVISOR)
