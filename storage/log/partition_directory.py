"""Write the small files of a partition directory, and track which of them are durable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.protocol.primitives import ZERO_UUID
from odradek.storage.files import checkpoint, names

if TYPE_CHECKING:
    import uuid

    from odradek.storage.disk.port import Disk
    from odradek.storage.recovery.loaded_log import LoadedLog


class PartitionDirectory:
    """Directory of a partition: `partition.metadata`, the marker file for gaps, and the names of all files."""

    def __init__(self, disk: Disk, path: str, loaded: LoadedLog) -> None:
        self.path = path
        self.names_changed = not loaded.intact
        """True if a file was created or renamed since the directory was synced."""
        self._disk = disk
        self._gaps_noted = loaded.gaps_noted
        self._topic_id = loaded.topic_id
        self._metadata_path = f"{path}/{checkpoint.PARTITION_METADATA}"
        self._metadata_unsynced = False

    def write_topic_id(self, topic_id: uuid.UUID) -> None:
        """Write `partition.metadata` unless it has the topic id. The next flush makes it durable."""
        if topic_id in {ZERO_UUID, self._topic_id}:
            return
        file = self._disk.open(self._metadata_path, create=True)
        file.truncate(0)
        file.write(0, checkpoint.encode_partition_metadata(topic_id))
        file.close()
        self._topic_id = topic_id
        self._metadata_unsynced = self.names_changed = True

    @property
    def durable(self) -> bool:
        """True if `partition.metadata` and the names of all files are durable."""
        return not (self._metadata_unsynced or self.names_changed)

    def note_gaps(self) -> None:
        """Create the marker file for gaps: offsets may be missing between batches, so recovery accepts gaps.

        The next flush makes the file durable, together with the first batches after a gap.
        """
        if not self._gaps_noted:
            self._disk.open(f"{self.path}/{names.GAPS_MARK}", create=True).close()
            self.names_changed = True
            self._gaps_noted = True

    async def sync(self) -> None:
        """Make `partition.metadata` and the names of all files durable. Raise OSError if a disk operation fails."""
        due = self._metadata_unsynced, self.names_changed
        try:
            if self._metadata_unsynced:
                self._metadata_unsynced = False
                file = self._disk.open(self._metadata_path, create=False)
                try:
                    await file.sync()
                finally:
                    file.close()
            if self.names_changed:
                self.names_changed = False
                await self._disk.sync_directory(self.path)
                await self._disk.sync_directory(names.parent(self.path))
        except BaseException:
            # The disk operation failed, or the broker stops and cancelled it: a clean shutdown must still sync these
            # files.
            self._metadata_unsynced |= due[0]
            self.names_changed |= due[1]
            raise

    def sync_metadata_now(self) -> None:
        """Make `partition.metadata` durable; wait for the disk. Raise OSError if a disk operation fails."""
        if self._metadata_unsynced:
            self._metadata_unsynced = False
            file = self._disk.open(self._metadata_path, create=False)
            file.sync_now()
            file.close()
