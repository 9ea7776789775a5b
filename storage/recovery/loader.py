"""Open a log from the files of its partition directory.

After a clean shutdown the index files are trusted. After an unclean shutdown, each segment that contains or follows the
recovery point is recovered (`odradek.storage.recovery.recovery`). The first one is recovered from the recovery start if
it has one. A segment whose index files do not fit its log file is recovered in both cases, with all later segments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from odradek.protocol.primitives import ZERO_UUID
from odradek.storage.batches.scan import Scan
from odradek.storage.files import checkpoint, names
from odradek.storage.files.checkpoint import CorruptCheckpoint
from odradek.storage.files.leader_epochs import LeaderEpochs
from odradek.storage.files.truncation_mark import TruncationMark
from odradek.storage.producers.snapshot import SnapshotFiles
from odradek.storage.recovery.loaded_log import LoadedLog, OpenOptions
from odradek.storage.recovery.producer_replay import Replay, replay_producers
from odradek.storage.recovery.recovery import Recovery, Start
from odradek.storage.recovery.sweep import sweep
from odradek.storage.segment.index import CorruptIndex
from odradek.storage.segment.segment import Segment
from odradek.storage.segment.segments import Segments

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable, Collection, Sequence

    from odradek.protocol.batch import BatchHeader
    from odradek.storage.config import LogConfig
    from odradek.storage.disk.port import Disk

_logger = structlog.get_logger(__name__)


def load(disk: Disk, directory: str, config: LogConfig, options: OpenOptions) -> LoadedLog:
    """Create the log, or open and recover it. Wait for the disk.

    Raises:
        OSError: A disk operation fails, or records below `options.durable_end` are lost.
    """
    found = _list(disk, directory)
    present = sweep(disk, directory, found)
    log_start_offset = max(0, options.log_start_offset)
    segments = _open_segments(disk, directory, present, log_start_offset, options.now_ms)
    snapshots = SnapshotFiles(disk, directory, present)
    snapshots.remove_strays(
        [segment.base_offset for segment in segments],
        high_watermark=options.high_watermark,
        recovery_start=options.recovery_start,
    )
    loaded = LoadedLog(
        disk,
        segments,
        snapshots,
        TruncationMark(disk, directory, present=names.TRUNCATION_MARK in present),
        names.GAPS_MARK in present,
        read_topic_id(disk, directory) if checkpoint.PARTITION_METADATA in present else ZERO_UUID,
        log_start_offset,
        log_end_offset=segments.active.base_offset,
        intact=options.clean and present == found and segments.first.offset_index is None,
    )
    _Loader(loaded, directory, config, options, frozenset(present)).load()
    return loaded


def _list(disk: Disk, directory: str) -> list[str]:
    try:
        return disk.list(directory)
    except FileNotFoundError:
        disk.make_directory(directory)
        return []


def read_topic_id(disk: Disk, directory: str) -> uuid.UUID:
    """Return the topic id in `partition.metadata` of a log; ZERO_UUID if the file is missing or damaged.

    Raises:
        OSError: A disk operation fails.
    """
    path = f"{directory}/{checkpoint.PARTITION_METADATA}"
    try:
        return checkpoint.decode_partition_metadata(disk.read_file(path))
    except FileNotFoundError:
        return ZERO_UUID
    except CorruptCheckpoint as error:
        # `LogManager.create` writes the topic id from the metadata.
        _logger.warning("damaged topic id ignored", path=path, reason=str(error))
        return ZERO_UUID


def _open_segments(disk: Disk, directory: str, present: Sequence[str], log_start_offset: int, now_ms: int) -> Segments:
    parsed = [names.parse_offset_file(name) for name in present if name.endswith(names.LOG_SUFFIX)]
    bases = sorted(entry[0] for entry in parsed if entry is not None and entry[1] == names.LOG_SUFFIX)
    segments = Segments()
    for base in bases:
        segments.add(Segment(disk, directory, base, created_ms=now_ms, create=False))
    if not bases:
        segments.add(Segment(disk, directory, log_start_offset, created_ms=now_ms, create=True))
    return segments


def _ignore(_: BatchHeader) -> None:
    """Note nothing: the file has the leader epochs."""


class _Loader:
    """Complete a `LoadedLog` whose segments are open."""

    def __init__(
        self, loaded: LoadedLog, directory: str, config: LogConfig, options: OpenOptions, present: Collection[str]
    ) -> None:
        """`present` has the names of all files in the directory."""
        self._present = present
        self._loaded = loaded
        self._directory = directory
        self._config = config
        self._options = options
        self._recovery = Recovery(loaded, directory, config, options)

    def load(self) -> None:
        """Recover damaged segments, and set offsets, producer state and leader epochs. Raise OSError as `load` does."""
        loaded, options = self._loaded, self._options
        epochs_intact = self._read_epochs()
        damaged = self._first_damaged(_ignore if epochs_intact else loaded.note_epoch)
        start = None if damaged is None else self._start_of_recovery(damaged)
        if start is None:
            self._replay(loaded.log_end_offset, at_clean_start=options.clean)
        else:
            loaded.snapshots.distrust_above(start.offset)
            self._replay(start.offset, at_clean_start=False, end_byte=start.position or None)
            self._recovery.recover_from(start)
            loaded.snapshots.remove_distrusted()
        self._recovery.refuse_loss("the log ends there")
        self._recovery.note_loss_below_checkpoints()
        if loaded.log_end_offset < loaded.log_start_offset:
            self._reset_to_log_start()
        loaded.log_start_offset = max(loaded.log_start_offset, loaded.segments.first.base_offset)
        loaded.flushed_offset = loaded.log_end_offset
        if not options.clean:
            loaded.flushed_offset = min(options.recovery_point, loaded.log_end_offset)
        if start is not None:
            loaded.flushed_offset = min(loaded.flushed_offset, start.offset)
            if start.position > 0:
                loaded.recovery_start, loaded.recovery_start_byte = start.offset, start.position
        if not epochs_intact and start != Start(0, loaded.segments.first.base_offset, 0):
            segments = loaded.segments
            if damaged is None and segments.is_read_at_start:
                # `_first_damaged` has read all batches, and noted their epochs. A clean shutdown leaves out the file of
                # such a log if it has one epoch.
                epochs_intact = loaded.epochs.is_one_epoch(segments.active.base_offset, loaded.log_end_offset)
                loaded.epochs.changed_from = None if epochs_intact else 0
            else:
                self._derive_epochs()
        # An epoch that starts at the log end stays: its leader was elected and has not appended a record.
        loaded.epochs.truncate_from_end(loaded.log_end_offset + 1)
        loaded.epochs.truncate_from_start(loaded.log_start_offset)
        loaded.intact = loaded.intact and start is None and epochs_intact and not loaded.snapshots.unsynced
        if loaded.intact and loaded.log_end_offset in loaded.snapshots.offsets:
            loaded.recovery_start = loaded.log_end_offset
            loaded.recovery_start_byte = loaded.segments.active.size
        if loaded.truncation_mark.is_set():
            loaded.intact = False
            loaded.truncation_mark.sync_now(loaded.segments.active.file)

    def _read_epochs(self) -> bool:
        """Read the leader epochs.

        Return False if the file is missing or damaged, so they must be derived from the log.
        """
        loaded = self._loaded
        path = f"{self._directory}/{checkpoint.LEADER_EPOCHS}"
        loaded.has_epochs_file = checkpoint.LEADER_EPOCHS in self._present
        if not loaded.has_epochs_file:
            return loaded.segments.active.size == 0 and len(loaded.segments) == 1
        try:
            loaded.epochs = LeaderEpochs(checkpoint.decode_leader_epochs(loaded.disk.read_file(path)))
        except CorruptCheckpoint as error:
            _logger.warning("damaged leader epoch checkpoint rebuilt", path=path, reason=str(error))
            return False
        return True

    def _derive_epochs(self) -> None:
        self._loaded.epochs = LeaderEpochs()
        for segment in self._loaded.segments:
            for _, header, _ in Scan(segment.file, 0, segment.size):
                self._loaded.note_epoch(header)
        self._loaded.epochs.note_changed(0)

    def _first_damaged(self, note: Callable[[BatchHeader], None]) -> int | None:
        """Return the position in the list of the first segment to recover; None if no segment needs it.

        `note` receives the header of each batch that the check of the active segment reads.
        """
        segments = self._loaded.segments
        first_unflushed = None if self._options.clean else segments.number_for(self._options.recovery_point)
        for number, segment in enumerate(segments):
            if segment.offset_index is not None:
                break  # this start has created the segment
            if number == first_unflushed:
                return number
            try:
                if segment is segments.active:
                    self._loaded.log_end_offset = segment.open_active(self._present, note)
                else:
                    segment.open_sealed(segments.at(number + 1).base_offset, self._present)
            except CorruptIndex as error:
                _logger.warning("segment recovery required", path=segment.path(names.LOG_SUFFIX), reason=str(error))
                return number
        return None

    def _start_of_recovery(self, damaged: int) -> Start:
        """Return where to start: at the recovery start if the first segment to recover has a valid one.

        Otherwise the snapshot at the recovery start is removed durably. Without it, no later start uses that offset:
        recovery rebuilds the files that were durable below it.
        """
        loaded, options = self._loaded, self._options
        segment, offset = loaded.segments.at(damaged), options.recovery_start
        if (
            offset is None
            or offset not in loaded.snapshots.offsets
            or offset == loaded.segments.base_below(offset)  # it is in two segments
        ):
            return Start(damaged, segment.base_offset, 0)
        first_unflushed = None if options.clean else loaded.segments.number_for(options.recovery_point)
        if damaged == first_unflushed == loaded.segments.number_for(offset):
            try:
                return Start(damaged, offset, segment.open_at(offset, self._present))
            except CorruptIndex as error:
                path = segment.path(names.LOG_SUFFIX)
                _logger.warning("recovery start not usable", path=path, offset=offset, reason=str(error))
        loaded.snapshots.remove(offset)
        loaded.disk.sync_directory_now(self._directory)
        return Start(damaged, segment.base_offset, 0)

    def _reset_to_log_start(self) -> None:
        """Remove all segments: the log ends below its log start offset, so all its records were deleted."""
        loaded, directory = self._loaded, self._directory
        _logger.warning(
            "log reset to its log start offset",
            directory=directory,
            log_end_offset=loaded.log_end_offset,
            log_start_offset=loaded.log_start_offset,
        )
        for segment in loaded.segments.remove_from(-1):
            loaded.remove(segment)
        loaded.snapshots.remove_outside(0, 0)
        start = loaded.log_start_offset
        loaded.segments.add(Segment(loaded.disk, directory, start, created_ms=self._options.now_ms, create=True))
        loaded.log_end_offset = start
        loaded.producers.clear(start)
        loaded.epochs.clear()

    def _replay(self, end_offset: int, *, at_clean_start: bool, end_byte: int | None = None) -> None:
        loaded, options = self._loaded, self._options
        replay_producers(
            loaded.producers,
            loaded.snapshots,
            loaded.segments,
            Replay(
                loaded.log_start_offset,
                options.high_watermark,
                end_offset,
                at_clean_start,
                options.monotonic_ms,
                end_byte,
            ),
        )
