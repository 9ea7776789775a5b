"""Mark a log whose last truncation may not be durable, so that the next run completes the truncation.

A truncation must be durable before the next append. Otherwise:

1. A follower truncates its log and appends batches of the new leader.
2. Power fails. The disk keeps later writes, but loses the truncation and the first write after it.
3. Truncated batches are in the log again, between batches of the new leader.

No check can find them: all checksums are correct, and the leader epochs at the log end are those of the leader. A
removed segment whose name is in the directory again has the same effect. Kafka relies on the write order of the file
system.

The mark is a file (`odradek.truncation`) that exists until the truncation is durable. After `kill -9`, the next run
syncs the log if it finds the mark. The mark itself needs no sync: after a power failure no truncation is pending, and
recovery reads the actual content of the disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.storage.files import names

if TYPE_CHECKING:
    from odradek.storage.disk.port import Disk, File


class TruncationMark:
    """Truncation mark in the partition directory of one log."""

    def __init__(self, disk: Disk, directory: str, *, present: bool) -> None:
        """`present` is True if the directory has the file."""
        self._disk = disk
        self._present = present
        self._directory = directory
        self._path = f"{directory}/{names.TRUNCATION_MARK}"

    def set(self) -> None:
        """Create the mark. The caller truncates the log afterwards. Raise OSError if a disk operation fails."""
        self._present = True
        self._disk.open(self._path, create=True).close()

    def is_set(self) -> bool:
        """Return True if a truncation of the log may not be durable."""
        return self._present

    async def sync(self, active: File) -> None:
        """Make the truncation durable. `active` is the log file of the active segment. The mark stays.

        Raises:
            OSError: A disk operation fails.
        """
        await active.sync()
        await self._disk.sync_directory(self._directory)

    def sync_now(self, active: File) -> None:
        """Make the truncation durable and remove the mark. The call blocks. Raise OSError if a disk operation fails."""
        active.sync_now()
        self._disk.sync_directory_now(self._directory)
        self.remove()

    def remove(self) -> None:
        """Remove the mark. The caller has completed `sync`, and has not truncated the log again since."""
        self._disk.remove(self._path)
        self._present = False
