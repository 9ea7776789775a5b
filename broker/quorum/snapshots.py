"""Files of metadata snapshots, in the directory of the metadata log (KIP-630).

A snapshot is `<end offset>-<epoch>.checkpoint`. While it is written, its name also has the suffix `.part`.
"""

import re
from typing import TYPE_CHECKING, Final

from odradek.cluster.raft.messages import EpochEnd
from odradek.cluster.raft.ports import SnapshotBytes
from odradek.storage.files.names import OFFSET_MAX

if TYPE_CHECKING:
    from odradek.protocol.schema import Buffer
    from odradek.storage.disk.port import Disk, File

SUFFIX: Final = ".checkpoint"
PART_SUFFIX: Final = ".part"
DAMAGED_SUFFIX: Final = ".damaged"
_NAME: Final = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")
LEADER_EPOCH_MAX: Final = 2**31 - 1


def file_name(snapshot: EpochEnd) -> str:
    return f"{snapshot.end_offset:020d}-{snapshot.epoch:010d}{SUFFIX}"


def parse_file_name(name: str) -> EpochEnd | None:
    """Return the snapshot with this file name; None if it is not the name of a complete snapshot."""
    match = _NAME.fullmatch(name)
    if match is None or int(match[1]) > OFFSET_MAX or int(match[2]) > LEADER_EPOCH_MAX:
        return None
    return EpochEnd(int(match[2]), int(match[1]))


class SnapshotFiles:
    """The snapshots in one directory. Methods raise OSError if the disk does."""

    def __init__(self, disk: "Disk", directory: str, *, disk_of_writers: "Disk") -> None:
        self._disk = disk
        self._disk_of_writers = disk_of_writers
        self._directory = directory

    def complete(self) -> list[EpochEnd]:
        """Return the complete snapshots, by ascending end offset."""
        parsed = [parse_file_name(name) for name in self._disk.list(self._directory)]
        return sorted(
            (snapshot for snapshot in parsed if snapshot is not None), key=lambda snapshot: snapshot.end_offset
        )

    def remove_unfinished(self) -> None:
        """Remove the files of snapshots whose writer did not finish."""
        for name in self._disk.list(self._directory):
            if name.endswith(SUFFIX + PART_SUFFIX):
                self._disk.remove(f"{self._directory}/{name}")

    def path(self, snapshot: EpochEnd) -> str:
        return f"{self._directory}/{file_name(snapshot)}"

    def create(self, snapshot: EpochEnd) -> "SnapshotFileWriter":
        return SnapshotFileWriter(self._disk_of_writers, self._directory, self.path(snapshot))

    async def read(self, snapshot: EpochEnd, position: int, max_bytes: int) -> SnapshotBytes | None:
        """Return at most `max_bytes` from `position` on; None if the snapshot does not exist."""
        path = self.path(snapshot)
        if not self._disk.exists(path):
            return None
        file = self._disk.open(path, create=False)
        try:
            if not 0 <= position < file.size:
                return SnapshotBytes(file.size, b"")
            return SnapshotBytes(file.size, bytes(await file.read_cold(position, min(max_bytes, file.size - position))))
        finally:
            file.close()

    def remove(self, snapshot: EpochEnd) -> None:
        self._disk.remove(self.path(snapshot))

    def rename_damaged(self, snapshot: EpochEnd) -> str:
        """Rename a damaged snapshot, so that it is not used but can be analyzed. Return its new path."""
        path = self.path(snapshot) + DAMAGED_SUFFIX
        self._disk.rename(self.path(snapshot), path)
        return path


class SnapshotFileWriter:
    """Writer of one snapshot file. It implements `odradek.cluster.raft.ports.SnapshotWriter`."""

    def __init__(self, disk: "Disk", directory: str, path: str) -> None:
        self._disk = disk
        self._directory = directory
        self._path = path
        self._file: File | None = disk.open(path + PART_SUFFIX, create=True)
        self._file.truncate(0)

    def append(self, data: "Buffer") -> None:
        assert self._file is not None
        self._file.write(self._file.size, data)

    async def finish(self) -> None:
        file, self._file = self._file, None
        assert file is not None
        try:
            await file.sync()
        finally:
            file.close()
        self._disk.rename(self._path + PART_SUFFIX, self._path)
        await self._disk.sync_directory(self._directory)

    def abandon(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()
            self._disk.remove(self._path + PART_SUFFIX)
