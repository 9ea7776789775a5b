"""The parts of a log while it is opened, and what the checkpoints of the data directory say about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from odradek.storage.files.leader_epochs import LeaderEpochs
from odradek.storage.producers.state import ProducerState

if TYPE_CHECKING:
    from odradek.protocol.batch import BatchHeader
    from odradek.storage.disk.port import Disk
    from odradek.storage.files.truncation_mark import TruncationMark
    from odradek.storage.producers.snapshot import SnapshotFiles
    from odradek.storage.segment.segment import Segment
    from odradek.storage.segment.segments import Segments


@dataclass(frozen=True)
class OpenOptions:
    """What the checkpoints of the data directory say about a log. `now_ms` is the time of the start."""

    now_ms: int
    recovery_point: int = 0
    log_start_offset: int = 0
    high_watermark: int = 0
    cleaned_to: int | None = None  # the offset up to which the log was compacted; None if it never was
    clean: bool = False  # the previous shutdown wrote the clean-shutdown marker
    durable_end: int = 0  # all records below were durable: if one is missing, the disk is damaged


@dataclass(slots=True)
class LoadedLog:
    """The parts of a log. Loading and recovery fill them; `PartitionLog` takes them over."""

    disk: Disk
    segments: Segments
    snapshots: SnapshotFiles
    truncation_mark: TruncationMark
    gaps_noted: bool
    log_start_offset: int
    log_end_offset: int
    flushed_offset: int = 0
    epochs: LeaderEpochs = field(default_factory=LeaderEpochs)
    producers: ProducerState = field(default_factory=ProducerState)

    def note_epoch(self, header: BatchHeader) -> None:
        """Add the leader epoch of a batch if it is a new one."""
        if header.leader_epoch > self.epochs.latest:
            self.epochs.assign(header.leader_epoch, header.base_offset)

    def remove(self, segment: Segment) -> None:
        """Remove the files of a segment that was taken out of the list, and its snapshot. Raise OSError if a disk operation fails."""
        self.truncation_mark.set()
        for path in segment.rename_to_deleted():
            self.disk.remove(path)
        segment.close()
        if segment.base_offset in self.snapshots.offsets:
            self.snapshots.remove(segment.base_offset)
