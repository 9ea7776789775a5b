"""Read and write the five offset checkpoints of a data directory. Each file has one offset per log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.frozen import frozen_dataclass
from odradek.protocol.internal_topics import CLUSTER_METADATA
from odradek.storage.files import checkpoint
from odradek.storage.files.offset_checkpoint import OffsetCheckpoint
from odradek.storage.recovery.loaded_log import OpenOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from odradek.storage.data_directory.directory import DataDirectory
    from odradek.storage.disk.port import Disk
    from odradek.storage.files.checkpoint import TopicPartition
    from odradek.storage.log.log import PartitionLog
    from odradek.storage.recovery.loaded_log import RecoveryProgress


@frozen_dataclass(frozen=True, slots=True)
class CheckpointedOffsets:
    """Content of the five offset checkpoints when the node starts."""

    recovery_points: Mapping[TopicPartition, int]
    log_starts: Mapping[TopicPartition, int]
    high_watermarks: Mapping[TopicPartition, int]
    cleaned: Mapping[TopicPartition, int]
    recovery_starts: Mapping[TopicPartition, int]

    def open_options(
        self,
        key: TopicPartition,
        *,
        now_ms: int,
        monotonic_ms: int,
        clean: bool,
        refuse_loss: bool,
        on_loss: Callable[[str], None] | None,
        progress: RecoveryProgress,
    ) -> OpenOptions:
        """Return the options to open a log.

        With `refuse_loss`, a log that ends below its high watermark is not opened.
        """
        high_watermark = self.high_watermarks.get(key, 0)
        cleaned_to = self.cleaned.get(key)
        return OpenOptions(
            now_ms,
            monotonic_ms,
            recovery_point=self.recovery_points.get(key, 0),
            log_start_offset=self.log_starts.get(key, 0),
            # The high watermark is at least the cleaner offset, since only committed records are compacted. Its own
            # checkpoint may be older.
            high_watermark=max(high_watermark, cleaned_to or 0),
            cleaned_to=cleaned_to,
            clean=clean,
            recovery_start=self.recovery_starts.get(key),
            durable_end=high_watermark if refuse_loss else 0,
            on_loss=on_loss,
            progress=progress,
        )

    def durable_ends(self) -> dict[TopicPartition, int]:
        """Return the offset below which each log was durable when the node stopped.

        The result is valid for logs that are flushed before their records are committed.
        """
        return {
            key: max(self.recovery_points.get(key, 0), self.high_watermarks.get(key, 0))
            for key in [*self.recovery_points, *self.high_watermarks]
        }


def _recovery_start(log: PartitionLog) -> int | None:
    """Return the recovery start of a log. The metadata log has none: Raft needs the check of all its records."""
    return None if log.topic == CLUSTER_METADATA else log.recovery_start


class Checkpoints:
    """The five offset checkpoints of a data directory. `logs` is the owner's mutable mapping of open logs."""

    def __init__(self, disk: Disk, directory: DataDirectory, logs: Mapping[TopicPartition, PartitionLog]) -> None:
        def checkpoint_of(name: str, offset_of: Callable[[PartitionLog], int | None]) -> OffsetCheckpoint:
            def present_offset(key: TopicPartition) -> int | None:
                return None if (log := logs.get(key)) is None else offset_of(log)

            return OffsetCheckpoint(disk, directory.path_of(name), logs.keys(), present_offset)

        self.recovery_points = checkpoint_of(checkpoint.RECOVERY_POINTS, lambda log: log.recovery_point)
        self.log_starts = checkpoint_of(checkpoint.LOG_START_OFFSETS, lambda log: log.log_start_offset)
        self.high_watermarks = checkpoint_of(checkpoint.HIGH_WATERMARKS, lambda log: log.high_watermark)
        self.cleaned = checkpoint_of(checkpoint.CLEANER_OFFSETS, lambda log: log.cleaned_to)
        self.recovery_starts = checkpoint_of(checkpoint.RECOVERY_STARTS, _recovery_start)
        self._all = (
            self.recovery_points,
            self.log_starts,
            self.high_watermarks,
            self.cleaned,
            self.recovery_starts,
        )

    def read(self) -> CheckpointedOffsets:
        """Read all checkpoints. The call blocks. Raise OSError if a disk operation fails."""
        return CheckpointedOffsets(*(file.read() for file in self._all))

    def keep_entries(self, key: TopicPartition) -> None:
        """Keep the entries of a log that is not open yet, or could not be opened: the next start may open the log."""
        for file in self._all:
            file.keep_entry(key)

    def release_entries(self, key: TopicPartition) -> None:
        """Write the offsets of the log from now on, because it is open."""
        for file in self._all:
            file.release_entry(key)

    async def cap(self, log_ends: Mapping[TopicPartition, int]) -> None:
        """Cap recovery points, high watermarks and cleaner offsets at the recovered log ends.

        Otherwise an entry could cover records that are appended in place of lost records, and the next recovery would
        not check them. For the same reason, remove the recovery starts that recovery has not used.

        Raises:
            OSError: A disk operation fails.
        """
        for file in (self.recovery_points, self.high_watermarks, self.cleaned):
            await file.cap(log_ends)
        if self.recovery_starts.is_behind:
            await self.recovery_starts.write()

    def may_have_entry(self, key: TopicPartition) -> bool:
        """Return True if a checkpoint on the disk may have an entry for the partition."""
        return any(file.may_have_entry(key) for file in self._all)

    async def remove_stale_entries(self, logs: Mapping[TopicPartition, PartitionLog]) -> None:
        """Write each checkpoint that may have an entry for a log outside of `logs`.

        Raises:
            OSError: A disk operation fails.
        """
        for file in self._all:
            if file.may_have_entry_outside(logs):
                await file.write()

    def write_now(self) -> None:
        """Write all checkpoints. The call blocks. Raise OSError if a disk operation fails."""
        for file in self._all:
            file.write_now()
