"""Check segments batch by batch after an unclean shutdown, and derive their indexes and the producer state again.

The log is truncated at the first batch that fails a check; later segments are removed. No content of the files raises
an error or causes an endless loop: each step consumes a batch or ends the scan. Only a failed disk operation raises
OSError.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, NamedTuple

import structlog

from odradek.protocol.batch import verify_crc
from odradek.protocol.errors import Refusal
from odradek.storage.batches.scan import Scan, contains_batch, is_whole_batch
from odradek.storage.batches.validation import read_marker
from odradek.storage.files import names
from odradek.storage.recovery.producer_replay import BatchApplier
from odradek.storage.segment.index import RELATIVE_OFFSET_MAX

if TYPE_CHECKING:
    from odradek.protocol.batch import BatchHeader
    from odradek.storage.config import LogConfig
    from odradek.storage.producers.entry import EndMarker
    from odradek.storage.recovery.loaded_log import LoadedLog, OpenOptions
    from odradek.storage.segment.segment import Segment

_logger = structlog.get_logger(__name__)


class Start(NamedTuple):
    """Where the recovery of a log starts: the first segment to recover, and the first batch to check in it."""

    number: int
    """Position of the segment in the list of segments."""
    offset: int
    """Offset from which the batches are checked."""
    position: int
    """Position of `offset` in the log file. If it is 0, the whole segment is recovered with its indexes."""


class Recovery:
    """Recovery of one log. The caller has replayed the producer state up to the first segment to recover."""

    def __init__(self, loaded: LoadedLog, directory: str, config: LogConfig, options: OpenOptions) -> None:
        self._loaded = loaded
        self._directory = directory
        self._config = config
        self._options = options

    def recover_from(self, start: Start) -> None:
        """Recover the segments from `start` on. The first one has its index entries below `start.offset`.

        Raises:
            OSError: A disk operation fails, or records below `durable_end` are lost (`refuse_loss`).
        """
        loaded = self._loaded
        loaded.epochs.truncate_from_end(start.offset)
        loaded.log_end_offset = start.offset
        segments, progress = list(loaded.segments)[start.number :], self._options.progress
        for number, segment in enumerate(segments):
            progress.remaining_segments = len(segments) - number
            position = start.position if number == 0 else 0
            if position == 0:
                if segment.base_offset != loaded.log_end_offset and not self._gap_allowed(segment):
                    self._remove_after_gap(segment)
                    break
                loaded.producers.end_offset = loaded.log_end_offset = segment.base_offset
                self._take_snapshot()
            if not self._recover_segment(segment, position):
                break
        progress.remaining_segments = 0
        loaded.producers.end_offset = loaded.log_end_offset
        # A snapshot at the recovery start exists if it was used. If it was not, it must not be written again.
        at_start = loaded.log_end_offset == self._options.recovery_start
        if not at_start and (loaded.producers.entries or not loaded.segments.active.needs_no_index_files):
            self._take_snapshot()

    def refuse_loss(self, reason: str) -> None:
        """Raise OSError if the log ends below `durable_end`. The caller calls this before it truncates anything."""
        log_end, durable_end = self._loaded.log_end_offset, self._options.durable_end
        if log_end < durable_end:
            message = (
                f"the log is damaged at offset {log_end} ({reason}); records up to offset {durable_end} were durable"
            )
            raise OSError(errno.EIO, message, self._directory)

    def note_loss_below_checkpoints(self) -> None:
        """Report the loss of records: the log ends below its checkpointed high watermark or recovery point."""
        log_end, high_watermark = self._loaded.log_end_offset, self._options.high_watermark
        if log_end < self._options.recovery_point:
            self._note_loss(
                f"the log ends at offset {log_end}; records up to offset {self._options.recovery_point} were flushed"
            )
        elif log_end < high_watermark:
            self._note_loss(f"the log ends at offset {log_end}; records up to offset {high_watermark} were committed")

    def _note_loss(self, reason: str) -> None:
        if self._options.on_loss is not None:
            self._options.on_loss(f"{self._directory}: {reason}")

    def _is_torn_tail(self, segment: Segment, scan: Scan) -> bool:
        """Return True if the process can have ended during the write of the bytes at `scan.position`.

        Then they are the start of one batch, at the end of the last segment. After a clean shutdown, no batch is
        incomplete.
        """
        if self._options.clean or segment is not self._loaded.segments.active or not scan.incomplete:
            return False
        start, end = scan.position, segment.size
        if is_whole_batch(segment.file, start, end):
            return False
        return not contains_batch(segment.file, start, end, self._loaded.log_end_offset)

    def _gap_allowed(self, segment: Segment) -> bool:
        """Return True if offsets may be missing before the segment.

        Only compaction leaves gaps between segments and between batches. A gap in the part that was never flushed is
        not accepted: a power failure can lose an older segment and keep a newer one.

        Compaction flushes a log first, so all records below the cleaner offset were flushed. The recovery point can be
        lower: its checkpoint can be damaged, or a recovery began at a damaged segment below it.
        """
        options = self._options
        flushed = options.clean or segment.base_offset <= max(options.recovery_point, options.cleaned_to or 0)
        return self._gaps and flushed and segment.base_offset > self._loaded.log_end_offset

    @property
    def _gaps(self) -> bool:
        return self._loaded.gaps_noted or self._config.compacted

    def _recover_segment(self, segment: Segment, start: int) -> bool:
        """Derive the index entries, the producer state and the epochs from the batches at position `start` and later.

        Return False if the segment was truncated. All later segments are removed then.
        """
        loaded = self._loaded
        if start == 0:
            segment.reset_indexes()
        scan = Scan(segment.file, start, segment.size)
        applier = BatchApplier(loaded.producers, self._options.monotonic_ms, segment)
        for position, header, batch in scan:
            marker, defect = self._check(segment, header, batch)
            if defect:
                scan.defect = defect
                break
            segment.note_batch(header, position, self._config.index_interval_bytes)
            loaded.note_epoch(header)
            if header.has_producer:
                applier.add(header, marker)
            loaded.log_end_offset = header.last_offset + 1
        applier.commit()
        intact = scan.position == segment.size
        if not intact:
            self.refuse_loss(f"byte {scan.position} of {segment.path(names.LOG_SUFFIX)}: {scan.defect}")
            if not self._is_torn_tail(segment, scan):
                self._note_loss(f"byte {scan.position} of {segment.path(names.LOG_SUFFIX)}: {scan.defect}")
            _logger.warning(
                "log truncated at the first damaged batch",
                path=segment.path(names.LOG_SUFFIX),
                byte=scan.position,
                offset=loaded.log_end_offset,
                removed_bytes=segment.size - scan.position,
                reason=scan.defect,
            )
            # The later segments go first, and durably. Otherwise a start after a crash could find no damage in this
            # segment, and the later ones behind a hole.
            self._remove_from(segment.base_offset + 1)
            loaded.truncation_mark.set()
            segment.truncate_file(scan.position)
        if start == 0:
            segment.replace_txn_index()
        if segment is loaded.segments.active:
            segment.write_last()
        else:
            if segment.base_offset < self._checked_from:
                segment.replace_indexes_of_sealed()
            segment.seal()
        return intact

    @property
    def _checked_from(self) -> int:
        """Base offset of the first segment that a start after a crash recovers. It trusts index files below that."""
        return self._loaded.segments.base_below(self._options.recovery_point)

    def _check(self, segment: Segment, header: BatchHeader, batch: memoryview) -> tuple[EndMarker | None, str]:
        """Return the transaction marker in the batch (or None) and the defect of the batch ('' if it has none).

        Offsets have gaps only after compaction. Otherwise a gap shows a damaged base offset, which the checksum does
        not cover.
        """
        expected = self._loaded.log_end_offset
        if header.base_offset < expected or (header.base_offset > expected and not self._gaps):
            return None, f"base offset {header.base_offset} instead of {expected}"
        if header.last_offset - segment.base_offset > RELATIVE_OFFSET_MAX:
            return None, f"offset {header.last_offset} is too far from the segment's base offset"
        if not verify_crc(batch, 0, header):
            return None, "the checksum does not match"
        if not header.is_control:
            return None, ""
        try:
            return read_marker(batch, header), ""
        except Refusal as refusal:
            return None, refusal.message or "control record"

    def _remove_after_gap(self, segment: Segment) -> None:
        self.refuse_loss(f"the next segment begins at {segment.base_offset}")
        self._note_loss(f"the log ends at offset {self._loaded.log_end_offset}, before segment {segment.base_offset}")
        self._remove_from(segment.base_offset)

    def _remove_from(self, base_offset: int) -> None:
        removed = self._loaded.segments.remove_from(base_offset)
        for later in removed:
            _logger.warning(
                "segment after the truncation point removed", path=later.path(names.LOG_SUFFIX), bytes=later.size
            )
            self._loaded.remove(later)
        if removed:
            self._loaded.disk.sync_directory_now(self._directory)

    def _take_snapshot(self) -> None:
        loaded = self._loaded
        if loaded.log_end_offset > 0:
            loaded.snapshots.take(loaded.producers.entries.values(), loaded.log_end_offset)
