"""Make a log durable. One flush runs at a time; all callers that wait for it share it."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from odradek.storage.files import checkpoint
from odradek.storage.files.leader_epochs import UNDEFINED_EPOCH
from odradek.storage.producers.snapshot import encode_snapshot

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from odradek.storage.disk.port import Disk
    from odradek.storage.log.partition_directory import PartitionDirectory
    from odradek.storage.producers.entry import ProducerEntry
    from odradek.storage.recovery.loaded_log import LoadedLog


TEMPORARY_SUFFIX = ".tmp"
"""Suffix of a file that is written before it replaces another one, as `Disk.replace_file` has it."""
RECOVERY_START_BYTES_MIN: Final = 1024 * 1024
"""Minimum bytes of a segment before a recovery start. To read fewer bytes again takes a recovery a few milliseconds."""


class LogState(NamedTuple):
    """Facts of a log that its recovery start keeps."""

    log_end_offset: int
    high_watermark: int
    producers: Collection[ProducerEntry]


class Flusher:
    """Flush the files of a log, and track which offsets are durable.

    Below `flushed_offset` all batches are durable. Below `_sealed_from`, the base offset of a segment, all index files
    are durable, too. `_sealed_from` stays behind if a segment was sealed during a flush that covers all its batches.

    In the active segment, the index entries are durable only below `recovery_start`, which `flush_for_recovery` moves.
    After an unclean shutdown, recovery checks that segment from there on, or as a whole.
    """

    def __init__(
        self,
        disk: Disk,
        directory: PartitionDirectory,
        loaded: LoadedLog,
    ) -> None:
        self.flushed_offset = loaded.flushed_offset
        self._sealed_from = loaded.segments.base_below(loaded.flushed_offset)
        self._complete_end = loaded.log_end_offset if loaded.intact else None
        """Log end at which all files were durable, the index files of the active segment and a snapshot included.

        None if the log was truncated since, or never was in that state.
        """
        self._recovery_start = loaded.recovery_start
        self._recovery_start_byte = loaded.recovery_start_byte
        self._disk = disk
        self._directory = directory
        self._segments = loaded.segments
        self._snapshots = loaded.snapshots
        self._epochs = loaded.epochs
        self._epochs_path = f"{directory.path}/{checkpoint.LEADER_EPOCHS}"
        self._has_epochs_file = loaded.has_epochs_file
        self._epochs_aside = False
        self._abandoned = 0  # number of calls of `abandon`
        self._running: asyncio.Future[None] | None = None

    @property
    def recovery_point(self) -> int:
        """Offset at which recovery starts: it checks the segment for this offset and all later ones.

        If batches of the active segment are flushed, this is the last flushed offset, not the offset after it. The
        next segment may start there, and recovery would take the index files of the segment before it as durable.
        """
        active_base = self._segments.active.base_offset
        if self._sealed_from < active_base:
            return min(self.flushed_offset, self._sealed_from)
        return self.flushed_offset - 1 if self.flushed_offset > active_base else self.flushed_offset

    @property
    def recovery_start(self) -> int | None:
        """Offset at which recovery may start in its segment; None if recovery must check the whole segment.

        Below it all batches and index entries are durable, and a durable producer snapshot is there.
        """
        start = self._recovery_start
        if start is None or self._recovery_start_byte < RECOVERY_START_BYTES_MIN:
            return None
        return start if start > max(self._sealed_from, self._segments.first.base_offset) else None

    @property
    def bytes_to_recover(self) -> int:
        """Bytes of the batches that a recovery would check now."""
        unsealed = sum(segment.size for segment in self._segments.from_offset(self._sealed_from))
        return unsealed if self.recovery_start is None else unsealed - self._recovery_start_byte

    def is_complete(self, end_offset: int) -> bool:
        """Return True if the log ends at `end_offset` and all its files are as a clean shutdown leaves them.

        An epoch that starts at the log end may be missing from `leader-epoch-checkpoint`. It has no record, and the
        next leader of the partition gets a higher epoch.
        """
        changed_from = self._epochs.changed_from
        return (
            self._complete_end == end_offset
            and (changed_from is None or changed_from >= end_offset)
            and self._directory.durable
            and not self._snapshots.unsynced
        )

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
            await self._run_alone(partial(self._flush_once, end_offset))

    async def flush_for_recovery(self, state: Callable[[], LogState | None]) -> None:
        """Make the log durable with the indexes of the active segment, and move the recovery start to the log end.

        `state` returns the state of the log when the flush begins; None if the log has failed, and then nothing is
        done. The recovery start stays if the log is truncated, rolled or closed meanwhile.

        Raises:
            OSError: A disk operation fails.
        """
        abandoned = self._abandoned
        while self._running is not None:
            await asyncio.shield(self._running)
        if abandoned == self._abandoned:
            await self._run_alone(partial(self._flush_for_recovery_once, state))

    async def _run_alone(self, flush: Callable[[], Awaitable[None]]) -> None:
        self._running = asyncio.get_running_loop().create_future()
        try:
            await flush()
        finally:
            running, self._running = self._running, None
            running.set_result(None)

    async def _flush_once(self, end_offset: int, *, active_indexes: bool = False) -> None:
        active = self._segments.active
        abandoned = self._abandoned
        for segment in self._segments.from_offset(min(self._sealed_from, self.flushed_offset)):
            if abandoned != self._abandoned:
                return  # the segment may be removed, or may hold batches written after the flush began
            await segment.sync(indexes=active_indexes or segment is not active)
        await self._snapshots.sync()
        await self._write_epochs()
        await self._directory.sync()
        if abandoned != self._abandoned:
            return
        self.flushed_offset = max(self.flushed_offset, end_offset)
        self._sealed_from = max(self._sealed_from, active.base_offset)

    async def _flush_for_recovery_once(self, state_now: Callable[[], LogState | None]) -> None:
        """Sync the index entries before the snapshot is written: a recovery start needs both."""
        active, abandoned = self._segments.active, self._abandoned
        state = state_now()
        if state is None:
            return
        end_offset, snapshot, end_byte = state.log_end_offset, encode_snapshot(state.producers), active.size
        active.write_pending()
        await self._flush_once(end_offset, active_indexes=True)
        if abandoned != self._abandoned or active is not self._segments.active:
            return
        self._snapshots.write(snapshot, end_offset)
        await self._snapshots.sync()
        await self._disk.sync_directory(self._directory.path)
        if abandoned != self._abandoned or active is not self._segments.active:
            return
        checkpointed = self._recovery_start  # a crash can follow before the new recovery start is written
        self._recovery_start, self._recovery_start_byte = end_offset, end_byte
        self._snapshots.remove_strays(
            [segment.base_offset for segment in self._segments],
            high_watermark=state.high_watermark,
            recovery_start=checkpointed,
        )

    async def _write_epochs(self) -> None:
        if self._epochs.dirty or not (self._has_epochs_file or self._epochs.latest == UNDEFINED_EPOCH):
            changed_from, self._epochs.changed_from = self._epochs.changed_from or 0, None
            try:
                content = checkpoint.encode_leader_epochs(self._epochs.entries())
                await self._disk.replace_file(self._epochs_path, content)
                self._has_epochs_file = True
            except BaseException:
                self._epochs.note_changed(changed_from)
                raise

    def write_epochs_aside(self, end_offset: int) -> None:
        """Write `leader-epoch-checkpoint` under a temporary name if it needs a change, for a clean shutdown.

        `install_epochs` gives it its name, after the caller has made the content durable.

        A new file takes two thirds of the time to close a log. The file of a log that ends at `end_offset`, has one
        epoch, and whose records a start reads anyway, is left out.
        """
        if self._has_epochs_file:
            is_needed = self._epochs.dirty
        else:
            segments = self._segments
            is_derived = segments.is_read_at_start and self._epochs.is_one_epoch(
                segments.active.base_offset, end_offset
            )
            is_needed = self._epochs.latest != UNDEFINED_EPOCH and not is_derived
        if is_needed:
            self._epochs_aside = True
            file = self._disk.open(f"{self._epochs_path}{TEMPORARY_SUFFIX}", create=True)
            file.truncate(0)
            file.write(0, checkpoint.encode_leader_epochs(self._epochs.entries()))
            file.close()

    def install_epochs(self) -> None:
        """Give the file of `write_epochs_aside` its name."""
        if self._epochs_aside:
            self._epochs_aside = False
            self._has_epochs_file = True
            self._disk.rename(f"{self._epochs_path}{TEMPORARY_SUFFIX}", self._epochs_path)

    def sync_files_now(self) -> None:
        """Make the content of all files durable, with the indexes of the active segment. Wait for the disk."""
        for segment in self._segments.from_offset(min(self._sealed_from, self.flushed_offset)):
            segment.sync_now()
        self._snapshots.sync_now()
        self._directory.sync_metadata_now()
        if self._epochs_aside:
            file = self._disk.open(f"{self._epochs_path}{TEMPORARY_SUFFIX}", create=False)
            file.sync_now()
            file.close()

    def abandon(self) -> None:
        """End a flush under way, because the files will be closed or truncated."""
        self._abandoned += 1

    def lower_to(self, end_offset: int) -> None:
        """Count nothing from `end_offset` on as durable: the log is truncated there."""
        self.abandon()
        self._complete_end = None
        if self._recovery_start is not None and self._recovery_start > end_offset:
            self._recovery_start = None
        self.flushed_offset = min(self.flushed_offset, end_offset)
        self._sealed_from = min(self._sealed_from, self._segments.base_below(end_offset))
