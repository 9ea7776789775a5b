"""Disk that tests can fill."""

import errno
from typing import Any

from odradek.storage.disk.free_space import FreeSpace
from odradek.storage.disk.os_disk import OsDisk
from odradek.storage.disk.port import ResourcesExhausted


class FillableSpace(FreeSpace):
    """Free space of a disk. If `filled`, no log of data can grow.

    The metadata log can: a broker keeps a reserve of the disk for it.
    """

    filled = False

    def check(self, path: str, size: int) -> None:
        if self.filled:
            raise ResourcesExhausted(errno.ENOSPC, "a test has filled the disk", path)
        super().check(path, size)

    def is_full(self, path: str) -> bool:
        return super().is_full(path) or self.filled


class FillableDisk(OsDisk):
    """Disk of a broker that was started for tests."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.space: FillableSpace = FillableSpace(self.space._free_and_total, reserves=True)

    def fill(self, filled: bool) -> None:
        """Take all free space, or give it back."""
        self.space.filled = filled
