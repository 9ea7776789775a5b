"""A real disk that opens log files of topics `t` only when a test permits it."""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING

from odradek.storage.files import names
from tests.support.faulty_disk import FaultyDisk

if TYPE_CHECKING:
    from odradek.storage.disk.port import File

GUARD_S = 60.0


class BlockedDisk(FaultyDisk):
    """Disk that opens log files of partitions of `t` only while the event `allowed` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.allowed = Event()
        self.allowed.set()
        self.waiting = Event()
        """Set when a thread waits, or has waited, for `allowed`."""

    def open(self, path: str, *, create: bool) -> File:
        if "/t-" in path and path.endswith(names.LOG_SUFFIX):
            self.waiting.set()
            assert self.allowed.wait(GUARD_S)
        return super().open(path, create=create)
