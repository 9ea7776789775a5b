"""A real disk that refuses, or has nothing in memory, where a test says so."""

from __future__ import annotations

import errno
from os import strerror
from typing import TYPE_CHECKING

from odradek.storage.disk.os_disk import OsDisk
from odradek.storage.disk.port import RESOURCE_ERRORS, ResourcesExhausted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from odradek.protocol.schema import Buffer
    from odradek.storage.disk.port import File


class FaultyDisk(OsDisk):
    """`refuse(operation, suffix)`: from now on that File or Disk method fails on paths ending so.

    `cold`: no warm reads.
    """

    def __init__(self) -> None:
        super().__init__()
        self.cold = False
        self.full = False
        """True if data logs must not grow."""
        self.file_systems_synced: list[str] = []
        self.synced: list[str] = []
        """Paths of all files and directories that were synced."""
        self.opened_paths: list[str] = []
        self.listed_paths: list[str] = []
        self.read_paths: list[str] = []
        """Path of the file for each call of `File.read`."""
        self._refused: list[tuple[str, str, int]] = []

    def refuse(self, operation: str, suffix: str = "", reason: int = errno.EIO) -> None:
        self._refused.append((operation, suffix, reason))

    def heal(self) -> None:
        self._refused.clear()

    def check(self, operation: str, path: str) -> None:
        for refused, suffix, reason in self._refused:
            if operation == refused and path.endswith(suffix):
                if reason in RESOURCE_ERRORS and operation != "sync":
                    raise ResourcesExhausted(reason, f"{operation} refused: {strerror(reason)}", path)
                raise OSError(reason, f"{operation} refused: {strerror(reason)}", path)

    def check_resources(self) -> None:
        self.check("check_resources", "")

    def open(self, path: str, *, create: bool) -> File:
        self.check("open", path)
        self.opened_paths.append(path)
        return FaultyFile(self, path, super().open(path, create=create))

    def list_directories(self, directory: str) -> Sequence[str]:
        self.check("list", directory)
        self.listed_paths.append(directory)
        return super().list_directories(directory)

    def list(self, directory: str) -> list[str]:
        self.listed_paths.append(directory)
        return super().list(directory)

    def read_file(self, path: str) -> bytes:
        self.check("read_file", path)
        self.opened_paths.append(path)
        return super().read_file(path)

    def check_space(self, path: str, size: int) -> None:
        if self.full and not self._may_use_reserve:
            raise ResourcesExhausted(errno.ENOSPC, strerror(errno.ENOSPC), path)

    def is_full(self, path: str) -> bool:
        return self.full

    def rename(self, old: str, new: str) -> None:
        self.check("rename", old)
        super().rename(old, new)

    def replace_file_now(self, path: str, data: bytes) -> None:
        self.check("replace_file_now", path)
        super().replace_file_now(path, data)
        self.synced.append(path)

    def sync_file_system_now(self, path: str) -> bool:
        self.check("sync_file_system", path)
        self.file_systems_synced.append(path)
        return super().sync_file_system_now(path)

    async def sync_directory(self, path: str) -> None:
        self.check("sync_directory", path)
        await super().sync_directory(path)
        self.synced.append(path)

    def sync_directory_now(self, path: str) -> None:
        self.check("sync_directory", path)
        super().sync_directory_now(path)
        self.synced.append(path)


class FaultyFile:
    def __init__(self, disk: FaultyDisk, path: str, file: File) -> None:
        self._disk = disk
        self._path = path
        self._file = file

    @property
    def size(self) -> int:
        return self._file.size

    def write(self, offset: int, *buffers: Buffer) -> None:
        self._disk.check("write", self._path)
        self._file.write(offset, *buffers)

    def read(self, offset: int, size: int) -> Buffer:
        self._disk.read_paths.append(self._path)
        return self._file.read(offset, size)

    def read_warm(self, offset: int, size: int) -> Buffer | None:
        return None if self._disk.cold else self._file.read_warm(offset, size)

    async def read_cold(self, offset: int, size: int) -> Buffer:
        self._disk.check("read_cold", self._path)
        return await self._file.read_cold(offset, size)

    async def sync(self) -> None:
        self._disk.check("sync", self._path)
        await self._file.sync()
        self._disk.synced.append(self._path)

    def sync_now(self) -> None:
        self._disk.check("sync", self._path)
        self._file.sync_now()
        self._disk.synced.append(self._path)

    def truncate(self, size: int) -> None:
        self._file.truncate(size)

    def close(self) -> None:
        self._file.close()
