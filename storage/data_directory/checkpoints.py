"""The offset checkpoints of a data directory: four files, each with one offset per log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek.storage.files import checkpoint
from odradek.storage.files.offset_checkpoint import OffsetCheckpoint
from odradek.storage.recovery.loaded_log import OpenOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from odradek.storage.data_directory.directory import DataDirectory
    from odradek.storage.disk.port import Disk
    from odradek.storage.files.checkpoint import TopicPartition
    from odradek.storage.log.log import PartitionLog


@dataclass(frozen=True, slots=True)
class CheckpointedOffsets:
    """The content of the checkpoints at the start of the node."""

    recovery_points: Mapping[TopicPartition, int]
    log_starts: Mapping[TopicPartition, int]
    high_watermarks: Mapping[TopicPartition, int]
    cleaned: Mapping[TopicPartition, int]

    def open_options(self, key: TopicPartition, *, now_ms: int, clean: bool, refuse_loss: bool) -> OpenOptions:
        """Return how to open a log. With `refuse_loss`, a log that ends below its high watermark is refused."""
        high_watermark = self.high_watermarks.get(key, 0)
        cleaned_to = self.cleaned.get(key)
        return OpenOptions(
            now_ms,
            recovery_point=self.recovery_points.get(key, 0),
            log_start_offset=self.log_starts.get(key, 0),
            # Only what is committed is compacted. The checkpoint of the high watermark may be older than that of the compaction.
            high_watermark=max(high_watermark, cleaned_to or 0),
            cleaned_to=cleaned_to,
            clean=clean,
            durable_end=high_watermark if refuse_loss else 0,
        )

    def durable_ends(self) -> dict[TopicPartition, int]:
        """Return the offset below which each log was durable at the stop, if it is flushed before its records are committed."""
        return {
            key: max(self.recovery_points.get(key, 0), self.high_watermarks.get(key, 0))
            for key in [*self.recovery_points, *self.high_watermarks]
        }


class Checkpoints:
    """Read and write the four offset checkpoints. `logs` are the open logs, which the owner changes."""

    def __init__(self, disk: Disk, directory: DataDirectory, logs: Mapping[TopicPartition, PartitionLog]) -> None:
        def offsets_of(name: str, value: Callable[[PartitionLog], int | None]) -> OffsetCheckpoint:
            def current() -> dict[TopicPartition, int]:
                offsets = {key: value(each) for key, each in logs.items()}
                return {key: offset for key, offset in offsets.items() if offset is not None}

            return OffsetCheckpoint(disk, directory.path_of(name), current)

        self.recovery_points = offsets_of(checkpoint.RECOVERY_POINTS, lambda each: each.recovery_point)
        self.log_starts = offsets_of(checkpoint.LOG_START_OFFSETS, lambda each: each.log_start_offset)
        self.high_watermarks = offsets_of(checkpoint.HIGH_WATERMARKS, lambda each: each.high_watermark)
        self.cleaned = offsets_of(checkpoint.CLEANER_OFFSETS, lambda each: each.cleaned_to)
        self._all = (self.recovery_points, self.log_starts, self.high_watermarks, self.cleaned)

    def read(self) -> CheckpointedOffsets:
        """Read all checkpoints. Raise OSError if the disk refuses."""
        return CheckpointedOffsets(*(each.read() for each in self._all))

    def keep(self, key: TopicPartition) -> None:
        """Keep the entries of a log that could not be opened: the next start may open it."""
        for each in self._all:
            each.keep(key)

    def limit(self, log_ends: Mapping[TopicPartition, int]) -> None:
        """Cap recovery points, high watermarks and cleaner offsets at the recovered log ends; wait for the disk.

        Otherwise a checkpoint could cover records that are appended in place of lost ones, and the next recovery would trust them.

        Raises:
            OSError: The disk refuses.
        """
        for each in (self.recovery_points, self.high_watermarks, self.cleaned):
            each.limit(log_ends)

    def may_name(self, key: TopicPartition) -> bool:
        """Determine whether a checkpoint on the disk may have an entry for a log of that name."""
        return any(each.may_name(key) for each in self._all)

    async def remove_stale_entries(self, logs: Mapping[TopicPartition, PartitionLog]) -> None:
        """Write each checkpoint that has an entry for none of `logs`. Raise OSError if the disk refuses."""
        for each in self._all:
            if each.may_name_other_than(logs):
                await each.replace()

    def write(self) -> None:
        """Write all checkpoints; wait for the disk. Raise OSError if the disk refuses."""
        for each in self._all:
            each.write()
