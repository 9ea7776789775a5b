"""Bringing a log to stable storage: one flush at a time, shared by all who wait for it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from odradek.storage.files import checkpoint, names

if TYPE_CHECKING:
    from odradek.storage.disk.port import Disk
    from odradek.storage.files.leader_epochs import LeaderEpochs
    from odradek.storage.producers.snapshot import SnapshotFiles
    from odradek.storage.segment.segments import Segments


class Flusher:
    """Knows what of a log is durable.

    Below `flushed_offset` all batches are on stable storage; below `sealed_from`, the base offset of a segment, all index
    files are, too. The indexes of the active segment never are: it is always recovered after an unclean stop. The two
    differ when a flush ends exactly where a segment was sealed meanwhile.
    """

    def __init__(self, disk: Disk, directory: str, flushed_offset: int, sealed_from: int) -> None:
        self._disk = disk
        self._directory = directory
        self.flushed_offset = flushed_offset
        self.sealed_from = sealed_from
        self.names_changed = True  # since the directory was synced last
        self.metadata_unsynced = False  # partition.metadata has just been written
        self._cuts = 0
        self._running: asyncio.Future[None] | None = None

    async def flush(self, segments: Segments, snapshots: SnapshotFiles, epochs: LeaderEpochs, end_offset: int) -> None:
        """Return when everything below `end_offset`, which has been appended, is durable, or the log has been cut. Raises OSError."""
        cuts = self._cuts
        while cuts == self._cuts and (
            self.flushed_offset < end_offset or self.sealed_from < segments.base_below(end_offset)
        ):
            if self._running is not None:
                await asyncio.shield(self._running)
                continue
            self._running = asyncio.get_running_loop().create_future()
            try:
                await self._flush_once(segments, snapshots, epochs, end_offset)
            finally:
                running, self._running = self._running, None
                running.set_result(None)

    async def _flush_once(
        self, segments: Segments, snapshots: SnapshotFiles, epochs: LeaderEpochs, end_offset: int
    ) -> None:
        active = segments.active
        due = epochs.dirty, self.metadata_unsynced, self.names_changed
        cuts = self._cuts
        try:
            for segment in segments.from_offset(min(self.sealed_from, self.flushed_offset)):
                if cuts != self._cuts:
                    return  # a segment may be gone, and what was written again since is not what was flushed
                await segment.sync(indexes=segment is not active)
            await snapshots.sync()
            await self._sync_small_files(epochs)
        except BaseException:
            # Refused, or cancelled because the node stops: then the clean stop must not take for done what was under way.
            epochs.dirty |= due[0]
            self.metadata_unsynced |= due[1]
            self.names_changed |= due[2]
            raise
        if cuts != self._cuts:
            return
        self.flushed_offset = max(self.flushed_offset, end_offset)
        self.sealed_from = max(self.sealed_from, active.base_offset)

    async def _sync_small_files(self, epochs: LeaderEpochs) -> None:
        if epochs.dirty:
            epochs.dirty = False
            await self._disk.replace_file(self._epochs_path, checkpoint.encode_leader_epochs(epochs.entries()))
        if self.metadata_unsynced:
            self.metadata_unsynced = False
            file = self._disk.open(self._metadata_path, create=False)
            try:
                await file.sync()
            finally:
                file.close()
        if self.names_changed:
            self.names_changed = False
            await self._disk.sync_directory(self._directory)
            await self._disk.sync_directory(names.parent(self._directory))

    def flush_now(self, segments: Segments, snapshots: SnapshotFiles, epochs: LeaderEpochs, end_offset: int) -> None:
        """As `flush`, with the indexes of all segments, waiting on the spot: for a clean stop."""
        for segment in segments.from_offset(min(self.sealed_from, self.flushed_offset)):
            segment.sync_now()
        snapshots.sync_now()
        if self.metadata_unsynced:
            self.metadata_unsynced = False
            file = self._disk.open(self._metadata_path, create=False)
            file.sync_now()
            file.close()
        # Also syncs the directory: without their names the files are lost. The directory's own name is made durable by
        # whoever writes the mark of a clean stop beside it.
        self._disk.write_atomic(self._epochs_path, checkpoint.encode_leader_epochs(epochs.entries()))
        epochs.dirty = self.names_changed = False
        self.flushed_offset = end_offset
        self.sealed_from = segments.active.base_offset

    def recovery_point(self, active_base_offset: int) -> int:
        """Segments below it need no recovery."""
        if self.sealed_from == active_base_offset:
            return self.flushed_offset
        return min(self.flushed_offset, self.sealed_from)

    def abandon(self) -> None:
        """The files are about to be closed, or cut: a flush under way has nothing left to do."""
        self._cuts += 1

    def truncated(self, end_offset: int, segments: Segments) -> None:
        self.abandon()
        self.flushed_offset = min(self.flushed_offset, end_offset)
        self.sealed_from = min(self.sealed_from, segments.base_below(end_offset))

    @property
    def _epochs_path(self) -> str:
        return f"{self._directory}/{checkpoint.LEADER_EPOCHS}"

    @property
    def _metadata_path(self) -> str:
        return f"{self._directory}/{checkpoint.PARTITION_METADATA}"
