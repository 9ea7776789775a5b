"""The file that records, for the next process, that a truncation of the log may not be durable.

A truncation must be durable before the next append. Otherwise:
1. A follower truncates its log and appends batches of the new leader.
2. Power fails. The disk keeps the later writes, but loses the truncation and the first write after it.
3. The truncated batches are back in the middle of the new leader's batches.
Every checksum is right and the epochs at the log end are the leader's, so no check finds the difference. A removed segment whose
name comes back has the same effect. Kafka relies on the order in which file systems write.

The mark exists until the truncation is durable, so that the process after a `kill -9` completes the sync. The mark itself needs no
sync: after a power failure no write is pending.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.storage.files import names

if TYPE_CHECKING:
    from odradek.storage.disk.port import Disk, File


class TruncationMark:
    """The mark of one log."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._path = f"{directory}/{names.TRUNCATION_MARK}"

    def set(self) -> None:
        """Create the mark. Call this before each truncation. Raise OSError if the disk refuses."""
        self._disk.open(self._path, create=True).close()

    def is_set(self) -> bool:
        """Determine whether a truncation may not be durable."""
        return self._disk.exists(self._path)

    async def sync(self, active: File) -> None:
        """Make a truncation durable. `active` is the log file of the active segment. Raise OSError if the disk refuses."""
        await active.sync()
        await self._disk.sync_directory(self._directory)

    def sync_now(self, active: File) -> None:
        """Make a truncation durable, wait for the disk, and remove the mark. Raise OSError if the disk refuses."""
        active.sync_now()
        self._disk.sync_directory_now(self._directory)
        self.remove()

    def remove(self) -> None:
        """Remove the mark. Call this after `sync`, unless the log was truncated again meanwhile."""
        self._disk.remove(self._path)
