"""Make a log durable. One flush runs at a time; all callers that wait for it share it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from odradek.storage.files import checkpoint

if TYPE_CHECKING:
    from odradek.storage.disk.port import Disk
    from odradek.storage.files.leader_epochs import LeaderEpochs
    from odradek.storage.log.partition_directory import PartitionDirectory
    from odradek.storage.producers.snapshot import SnapshotFiles
    from odradek.storage.segment.segments import Segments


class Flusher:
    """Flush the files of a log, and track which offsets are durable.

    Below `flushed_offset` all batches are durable. Below `_sealed_from`, the base offset of a segment, all index files
    are durable, too. The index files of the active segment are not: after an unclean shutdown, recovery always checks
    that segment. `_sealed_from` stays behind if a segment was sealed during a flush that covers all its batches.
    """

    def __init__(
        self,
        disk: Disk,
        directory: PartitionDirectory,
        segments: Segments,
        snapshots: SnapshotFiles,
        epochs: LeaderEpochs,
        flushed_offset: int,
    ) -> None:
        self.flushed_offset = flushed_offset
        self._sealed_from = segments.base_below(flushed_offset)
        self._disk = disk
        self._directory = directory
        self._segments = segments
        self._snapshots = snapshots
        self._epochs = epochs
        self._epochs_path = f"{directory.path}/{checkpoint.LEADER_EPOCHS}"
        self._abandoned = 0  # number of calls of `abandon`
        self._running: asyncio.Future[None] | None = None

    @property
    def recovery_point(self) -> int:
        """Offset below which no segment needs recovery."""
        if self._sealed_from == self._segments.active.base_offset:
            return self.flushed_offset
        return min(self.flushed_offset, self._sealed_from)

    async def flush(self, end_offset: int) -> None:
        """Make all batches below `end_offset` durable. Return early if the log is truncated or closed.

        Raises:
            OSError: A disk operation fails.
        """
        abandoned = self._abandoned
        while abandoned == self._abandoned and (
            self.flushed_offset < end_offset or self._sealed_from < self._segments.base_below(end_offset)
        ):
            if self._running is not None:
                await asyncio.shield(self._running)
                continue
            self._running = asyncio.get_running_loop().create_future()
            try:
                await self._flush_once(end_offset)
            finally:
                running, self._running = self._running, None
                running.set_result(None)

    async def _flush_once(self, end_offset: int) -> None:
        active = self._segments.active
        abandoned = self._abandoned
        for segment in self._segments.from_offset(min(self._sealed_from, self.flushed_offset)):
            if abandoned != self._abandoned:
                return  # the segment may be removed, or may hold batches written after the flush began
            await segment.sync(indexes=segment is not active)
        await self._snapshots.sync()
        await self._write_epochs()
        await self._directory.sync()
        if abandoned != self._abandoned:
            return
        self.flushed_offset = max(self.flushed_offset, end_offset)
        self._sealed_from = max(self._sealed_from, active.base_offset)

    async def _write_epochs(self) -> None:
        if self._epochs.dirty:
            self._epochs.dirty = False
            try:
                content = checkpoint.encode_leader_epochs(self._epochs.entries())
                await self._disk.replace_file(self._epochs_path, content)
            except BaseException:
                self._epochs.dirty = True
                raise

    def flush_now(self, end_offset: int) -> None:
        """Flush all files for a clean shutdown, with the indexes of the active segment. Wait for the disk."""
        for segment in self._segments.from_offset(min(self._sealed_from, self.flushed_offset)):
            segment.sync_now()
        self._snapshots.sync_now()
        self._directory.sync_metadata_now()
        # This call syncs the partition directory as well: without their names the files are lost. The name of the
        # directory becomes durable when the clean-shutdown marker is written beside it.
        self._disk.replace_file_now(self._epochs_path, checkpoint.encode_leader_epochs(self._epochs.entries()))
        self._epochs.dirty = self._directory.names_changed = False
        self.flushed_offset = end_offset
        self._sealed_from = self._segments.active.base_offset

    def abandon(self) -> None:
        """End a flush under way, because the files will be closed or truncated."""
        self._abandoned += 1

    def lower_to(self, end_offset: int) -> None:
        """Count nothing from `end_offset` on as durable: the log is truncated there."""
        self.abandon()
        self.flushed_offset = min(self.flushed_offset, end_offset)
        self._sealed_from = min(self._sealed_from, self._segments.base_below(end_offset))
