"""Keep the files of segments that retention, truncation or compaction has removed from a log, until they are unused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

if TYPE_CHECKING:
    from odradek.storage.disk.port import Disk
    from odradek.storage.producers.snapshot import SnapshotFiles
    from odradek.storage.segment.segment import Segment


FILES_PER_STEP: Final = 200
"""Files after which a call of `remove_files` ends. The files of segments that left the log together are removed in one
call, up to four per segment. The removal of a file takes about 20 µs."""


class Hold:
    """Protection of files that a read or a flush uses. It ends when no reference to this object is left."""

    __slots__ = ("__weakref__",)


@dataclass(slots=True)
class _RemovedFiles:
    """Files that were renamed to `.deleted`. They stay while `holds` is not empty."""

    paths: list[str]
    segments: list[Segment]
    holds: WeakSet[Hold]
    seen_ms: int | None = None


class RemovedSegments:
    """Rename the files of removed segments, and remove them after file.delete.delay.ms unless a hold keeps them."""

    def __init__(self, disk: Disk, snapshots: SnapshotFiles) -> None:
        self._disk = disk
        self._snapshots = snapshots
        self._removed: list[_RemovedFiles] = []
        self._holds: WeakSet[Hold] = WeakSet()

    def add(self, segments: list[Segment], *, replaced_by: Segment | None = None) -> None:
        """Rename the files of segments that were removed from the log.

        `replaced_by` is the compacted segment that replaces them. It keeps the producer snapshot at its base offset.

        Raises:
            OSError: A disk operation fails.
        """
        paths: list[str] = []
        for segment in segments:
            paths += segment.rename_to_deleted()
            if replaced_by is None or segment.base_offset != replaced_by.base_offset:
                paths += self._snapshots.rename_to_deleted(segment.base_offset)
        self._removed.append(_RemovedFiles(paths, segments, WeakSet(self._holds)))

    def hold(self) -> Hold:
        """Protect all files that the log has now from removal, as long as the returned object is referenced."""
        hold = Hold()
        self._holds.add(hold)
        return hold

    def remove_files(self, now_ms: int, delay_ms: int) -> int:
        """Remove files without a hold, `delay_ms` after the first call that found them. Return the number of files.

        The call ends early after FILES_PER_STEP files. If it removed at least as many, there may be more.
        """
        count = 0
        for files in list(self._removed):
            if files.seen_ms is None:
                files.seen_ms = now_ms
            if now_ms - files.seen_ms >= delay_ms and not files.holds and count < FILES_PER_STEP:
                for path in files.paths:
                    self._disk.remove(path)
                for segment in files.segments:
                    segment.close()
                self._removed.remove(files)
                count += len(files.paths)
        return count

    def close(self) -> None:
        """Close the files of all removed segments."""
        for files in self._removed:
            for segment in files.segments:
                segment.close()
