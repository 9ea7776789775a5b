"""Parts of a log while it is opened, and the checkpointed facts that opening it needs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from odradek.storage.files.leader_epochs import LeaderEpochs
from odradek.storage.producers.state import ProducerState

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable

    from odradek.protocol.batch import BatchHeader
    from odradek.storage.disk.port import Disk
    from odradek.storage.files.truncation_mark import TruncationMark
    from odradek.storage.producers.snapshot import SnapshotFiles
    from odradek.storage.segment.segment import Segment
    from odradek.storage.segment.segments import Segments


class RecoveryProgress:
    """Progress of one thread that opens logs."""

    def __init__(self) -> None:
        self.remaining_segments = 0
        """Segments that are still to be recovered in the log that is opened now."""


@dataclass(frozen=True)
class OpenOptions:
    """Checkpointed facts about a log from the data directory. `now_ms` is the wall-clock time of the start."""

    now_ms: int
    monotonic_ms: int = 0
    """Time of the start by the monotonic clock, at which the idle time of the loaded producers begins.

    A log that is created has none, and needs no time.
    """
    recovery_point: int = 0
    log_start_offset: int = 0
    high_watermark: int = 0
    cleaned_to: int | None = None
    """Offset up to which the log was compacted; None if it never was."""
    clean: bool = False
    """True if the previous shutdown wrote the clean-shutdown marker."""
    recovery_start: int | None = None
    """Offset at which recovery of its segment may start (`Flusher.recovery_start`); None if there is none."""
    durable_end: int = 0
    """All records below this offset were durable. If one is missing, the disk is damaged."""
    on_loss: Callable[[str], None] | None = None
    """Called with a reason before the log is truncated at damage that a killed process does not cause."""
    progress: RecoveryProgress = field(default_factory=RecoveryProgress)


@dataclass(slots=True)
class LoadedLog:
    """Parts of a log. Loading and recovery fill them; `PartitionLog` uses them afterwards."""

    disk: Disk
    segments: Segments
    snapshots: SnapshotFiles
    truncation_mark: TruncationMark
    gaps_noted: bool
    topic_id: uuid.UUID
    """Topic id in `partition.metadata`; ZERO_UUID if the file is missing or damaged."""
    log_start_offset: int
    log_end_offset: int
    flushed_offset: int = 0
    recovery_start: int | None = None
    """Offset in the active segment at which a later recovery may start: below it, all files are durable."""
    recovery_start_byte: int = 0
    """Position of `recovery_start` in the active segment."""
    intact: bool = False
    """True if all files are durable as the clean shutdown left them, and this start has changed none of them."""
    epochs: LeaderEpochs = field(default_factory=LeaderEpochs)
    has_epochs_file: bool = False
    """True if the directory has `leader-epoch-checkpoint`."""
    producers: ProducerState = field(default_factory=ProducerState)

    def note_epoch(self, header: BatchHeader) -> None:
        """Add the leader epoch of a batch if it is a new one."""
        if header.leader_epoch > self.epochs.latest:
            self.epochs.assign(header.leader_epoch, header.base_offset)

    def remove(self, segment: Segment) -> None:
        """Remove the files of a segment that was removed from the list, and its snapshot.

        Raises:
            OSError: A disk operation fails.
        """
        self.truncation_mark.set()
        for path in segment.rename_to_deleted():
            self.disk.remove(path)
        segment.close()
        if segment.base_offset in self.snapshots.offsets:
            self.snapshots.remove(segment.base_offset)
