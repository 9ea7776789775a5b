"""Rename the directories of deleted and stray partitions, and remove the deleted ones after file.delete.delay.ms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek.storage.files import names

if TYPE_CHECKING:
    import uuid
    from collections.abc import Iterator

    from odradek.storage.data_directory.directory import DataDirectory
    from odradek.storage.disk.port import Disk


@dataclass(slots=True)
class _DeletedDirectory:
    """Directory of a deleted partition, to be removed `delay_ms` after `seen_ms`."""

    path: str
    delay_ms: int
    seen_ms: int | None = None


class DeletedAndStrayDirectories:
    """Directories of deleted and stray partitions in one data directory. Stray directories are never removed."""

    def __init__(self, disk: Disk, directory: DataDirectory) -> None:
        self._disk = disk
        self._directory = directory
        self._deleted: list[_DeletedDirectory] = []

    def add_deleted(self, path: str, delay_ms: int) -> None:
        """Register a directory that already has a `-delete` name."""
        self._deleted.append(_DeletedDirectory(path, delay_ms))

    def delete(self, path: str, topic: str, partition: int, topic_id: uuid.UUID, *, delay_ms: int) -> None:
        """Rename the directory of a partition to a `-delete` name. Raise OSError if a disk operation fails."""
        deleted = self._free_path(names.deleted_directory_names(topic, partition, topic_id))
        self._disk.rename(path, deleted)
        self.add_deleted(deleted, delay_ms)

    def keep_as_stray(self, path: str, topic: str, partition: int, topic_id: uuid.UUID) -> str:
        """Rename the directory of a partition to a `-stray` name and return the new path.

        Raises:
            OSError: A disk operation fails.
        """
        stray = self._free_path(names.stray_directory_names(topic, partition, topic_id))
        self._disk.rename(path, stray)
        return stray

    async def remove_deleted(self, now_ms: int) -> None:
        """Remove the deleted directories whose delay has passed. The delay starts at the first call after the deletion.

        Raises:
            OSError: A disk operation fails.
        """
        for directory in list(self._deleted):
            if directory.seen_ms is None:
                directory.seen_ms = now_ms
            if now_ms - directory.seen_ms >= directory.delay_ms:
                self._deleted.remove(directory)
                await self._disk.remove_tree(directory.path)

    def _free_path(self, candidates: Iterator[str]) -> str:
        return next(path for path in map(self._directory.path_of, candidates) if not self._disk.exists(path))
