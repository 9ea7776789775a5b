"""Truncate the active segment of a log, and make truncations durable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.storage.batches.scan import Scan
from odradek.storage.segment.lookup import load_indexes, locate, run_now

if TYPE_CHECKING:
    from odradek.storage.disk.port import Disk
    from odradek.storage.files.truncation_mark import TruncationMark
    from odradek.storage.segment.segment import Segment


class Truncation:
    """Truncations of one log: their number, and whether the last one is durable (see `files/truncation_mark.py`)."""

    def __init__(self, mark: TruncationMark) -> None:
        self.count = 0
        """Truncations since the log was opened.

        The result of a read that began before the last one must be discarded.
        """
        self.unsynced: Segment | None = None
        """Active segment after the last truncation, until that truncation is durable; None otherwise."""
        self._mark = mark

    def begin(self) -> None:
        """Create the marker file, before anything is truncated. Raise OSError if a disk operation fails."""
        self._mark.set()

    def end(self, active: Segment) -> None:
        """Note that the log was truncated. `active` is its active segment now."""
        self.count += 1
        self.unsynced = active

    async def sync(self) -> None:
        """Make the last truncation durable. Raise OSError if a disk operation fails."""
        while (active := self.unsynced) is not None:
            count = self.count
            await self._mark.sync(active.file)
            if count == self.count and self.unsynced is active:
                self.unsynced = None
                self._mark.remove()

    def sync_now(self) -> None:
        """Make the last truncation durable. Wait for the disk. Raise OSError if a disk operation fails."""
        if self.unsynced is not None:
            self._mark.sync_now(self.unsynced.file)
            self.unsynced = None

    def close(self) -> None:
        """Stop tracking. The next start finds the marker file and makes the truncation durable."""
        self.unsynced = None


def truncate_segment(segment: Segment, disk: Disk, offset: int, *, interval: int) -> int:
    """Truncate the segment before the batch that holds `offset`. Return its new end offset."""
    if segment.offset_index is None:
        run_now(load_indexes(segment, disk, interval))
    segment.drop_recent()
    location = run_now(locate(segment, disk, offset, segment.size, interval=interval))
    if location is None:
        return segment.end_offset()
    position = location[0]
    removed = next(iter(Scan(segment.file, position, segment.size)), None)
    end = offset if removed is None else removed[1].base_offset
    segment.truncate(position, offset)
    return min(offset, end)
