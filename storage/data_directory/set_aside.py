"""Partition directories that hold no log any more: deleted ones until they are removed, and strays."""

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
    path: str
    delay_ms: int
    seen_ms: int | None = None


class SetAsideDirectories:
    """Rename partition directories out of the way, and remove the deleted ones after file.delete.delay.ms."""

    def __init__(self, disk: Disk, directory: DataDirectory) -> None:
        self._disk = disk
        self._directory = directory
        self._deleted: list[_DeletedDirectory] = []

    def add_deleted(self, path: str, delay_ms: int) -> None:
        """Note a directory that has its deleted name already."""
        self._deleted.append(_DeletedDirectory(path, delay_ms))

    def delete(self, path: str, topic: str, partition: int, topic_id: uuid.UUID, *, delay_ms: int) -> None:
        """Give the directory its deleted name. Raise OSError if the disk refuses."""
        deleted = self._free_path(names.deleted_directories(topic, partition, topic_id))
        self._disk.rename(path, deleted)
        self.add_deleted(deleted, delay_ms)

    def keep_as_stray(self, path: str, topic: str, partition: int, topic_id: uuid.UUID) -> str:
        """Give the directory the name of a stray and return its path. Raise OSError if the disk refuses."""
        stray = self._free_path(names.stray_directories(topic, partition, topic_id))
        self._disk.rename(path, stray)
        return stray

    async def remove_deleted(self, now_ms: int) -> None:
        """Remove directories deleted at least their delay ago. The delay counts from the first call that finds the directory."""
        for directory in list(self._deleted):
            if directory.seen_ms is None:
                directory.seen_ms = now_ms
            if now_ms - directory.seen_ms >= directory.delay_ms:
                self._deleted.remove(directory)
                await self._disk.remove_tree(directory.path)

    def _free_path(self, candidates: Iterator[str]) -> str:
        return next(path for path in map(self._directory.path_of, candidates) if not self._disk.exists(path))
