"""Reserve of file descriptors, so that small operations on files succeed when the process has no free descriptor."""

from __future__ import annotations

import errno
import os
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

from odradek.storage.disk.port import RESOURCE_ERRORS, ResourcesExhausted

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

RESERVED_DESCRIPTORS = 16
"""Descriptors per broker that are held open for its disk operations.

Four threads and the event loop open at most one file each at a time. A roll keeps two files open, and a new partition
keeps three. So 16 suffice for all operations that have begun when the last free descriptor is taken.
"""


class DescriptorReserve:
    """Descriptors without a use. An operation that finds no free descriptor closes one of them and tries again."""

    def __init__(self, size: int, open_spare: Callable[[], int]) -> None:
        """Open `size` descriptors with `open_spare`. With 0, there is no reserve."""
        self._size = size
        self._open_spare = open_spare
        self._spare: list[int] = []
        self._lock = Lock()
        self.fill()

    def fill(self) -> bool:
        """Open the missing descriptors. Return False if the system does not provide them."""
        if len(self._spare) == self._size:
            return True
        with self._lock:
            try:
                while len(self._spare) < self._size:
                    self._spare.append(self._open_spare())
            except OSError:
                return False
        return True

    def check(self) -> None:
        """Raise ResourcesExhausted unless the reserve is full."""
        if not self.fill():
            raise ResourcesExhausted(
                errno.EMFILE, f"fewer than {self._size} file descriptors are free; raise the limit of open files"
            )

    def run(self, opening: Callable[[], T]) -> T:
        """Return the result of `opening`, which opens a file. If no descriptor is free, use those of the reserve.

        `opening` is repeated, so a failed call must have no effect.

        Raises:
            ResourcesExhausted: Neither the system nor the reserve has a descriptor, or memory or disk space is missing.
        """
        self.fill()
        while True:
            try:
                return opening()
            except OSError as error:
                if error.errno not in RESOURCE_ERRORS:
                    raise
                lacks_descriptors = error.errno in {errno.EMFILE, errno.ENFILE}
                if not lacks_descriptors or not self._release():
                    remedy = "" if not lacks_descriptors else "; raise the limit of open files (ulimit -n)"
                    raise ResourcesExhausted(error.errno, f"{error.strerror}{remedy}", error.filename) from error

    def _release(self) -> bool:
        with self._lock:
            if not self._spare:
                return False
            os.close(self._spare.pop())
            return True

    def close(self) -> None:
        """Close all descriptors of the reserve."""
        self._size = 0
        while self._release():
            pass
