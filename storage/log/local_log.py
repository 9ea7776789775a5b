"""Manage the files of one log: segments, producer snapshots, marker files, flushes (as Kafka's `LocalLog`).

`odradek.storage.log.log.PartitionLog` adds the offsets, the producer state and the leader epochs.
"""

from __future__ import annotations

import errno
from contextlib import contextmanager
from typing import TYPE_CHECKING

import structlog

from odradek.invariants.storage import SEGMENT_CONTIGUOUS
from odradek.storage.disk.port import ResourcesExhausted
from odradek.storage.files import names
from odradek.storage.log.flushing import Flusher
from odradek.storage.log.partition_directory import PartitionDirectory
from odradek.storage.log.removal import RemovedSegments
from odradek.storage.log.truncation import Truncation, truncate_segment
from odradek.storage.segment.index import RELATIVE_OFFSET_MAX
from odradek.storage.segment.rolling import roll_jitter_ms, should_roll
from odradek.storage.segment.segment import Segment

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from odradek.storage.config import LogConfig
    from odradek.storage.disk.port import Disk
    from odradek.storage.log.append import PreparedAppend
    from odradek.storage.log.flushing import LogState
    from odradek.storage.log.removal import Hold
    from odradek.storage.producers.entry import ProducerEntry
    from odradek.storage.recovery.loaded_log import LoadedLog


_logger = structlog.get_logger(__name__)


class LocalLog:
    """Files of one log. Other classes read its attributes; only its methods change them."""

    def __init__(self, disk: Disk, directory: str, loaded: LoadedLog) -> None:
        self.disk = disk
        self.directory = directory
        self.segments = loaded.segments
        self.snapshots = loaded.snapshots
        self.failed = False
        """A write or flush has failed, or an invariant was violated. The files must not be changed until recovery."""
        self.closed = False
        self._roll_postponed = False
        """True while the active segment exceeds its limits, because no descriptor or memory is left for a roll."""
        self.truncation = Truncation(loaded.truncation_mark)
        self._removed = RemovedSegments(disk, loaded.snapshots)
        self._files = PartitionDirectory(disk, directory, loaded)
        self._flusher = Flusher(disk, self._files, loaded)

    @contextmanager
    def failing_on_error(self, *, can_repeat: bool = False) -> Iterator[None]:
        """Set `failed` if a disk operation fails or an invariant is violated.

        With `can_repeat`, ResourcesExhausted does not set it: the caller repeats the operation later.
        """
        try:
            yield
        except ResourcesExhausted:
            self.failed = self.failed or not can_repeat
            raise
        except OSError:
            self.failed = True
            raise

    def write_topic_id(self, topic_id: uuid.UUID) -> None:
        """Write `partition.metadata` unless it has the topic id. The next flush makes it durable."""
        self._files.write_topic_id(topic_id)

    # ---- append -----------------------------------------------------------------------------------------------------

    def check_writable(self) -> None:
        """Make the last truncation durable before an append. Wait for the disk.

        The call is not `async`: a replica that becomes leader appends without a chance to await it.

        Raises:
            OSError: A disk operation fails, or the log has failed or is closed.
        """
        if self.failed or self.closed:
            raise OSError(errno.EIO, f"{self.directory}: the log has failed or is closed and accepts no append")
        with self.failing_on_error(can_repeat=True):
            self.truncation.sync_now()

    def append(
        self,
        append: PreparedAppend,
        config: LogConfig,
        log_end_offset: int,
        producers: Mapping[int, ProducerEntry],
        now_ms: int,
    ) -> Segment:
        """Write the batches to the active segment, after rolling it if necessary. Return the segment.

        If no descriptor or memory is left for a roll, the active segment exceeds segment.bytes and segment.ms.

        Raises:
            ResourcesExhausted: The active segment cannot grow further, or the write found no memory. Nothing has
                changed.
            OSError: A disk operation fails, or the new segment violates SEGMENT_CONTIGUOUS.
        """
        segment = self.segments.active
        if should_roll(
            segment,
            config,
            incoming=append.size,
            last_offset=append.last_offset,
            newest_timestamp=append.newest_timestamp,
            now_ms=now_ms,
            jitter_ms=config.segment_jitter_ms and roll_jitter_ms(config, self.directory, segment.base_offset),
        ):
            # The new segment begins at the log end, even if the leader's log has a gap there. Otherwise recovery would
            # conclude that the segment before it is lost.
            fits = append.last_offset - log_end_offset <= RELATIVE_OFFSET_MAX
            base_offset = log_end_offset if fits else append.first_offset
            try:
                if segment.base_offset != base_offset:
                    segment = self.roll(base_offset, producers.values(), now_ms)
            except ResourcesExhausted as error:
                if not segment.can_exceed_limits(config, append.size, append.last_offset):
                    raise
                self._log_postponed(error)
            else:
                self._roll_postponed = False
                if segment.base_offset != log_end_offset and not append.gap:
                    raise SEGMENT_CONTIGUOUS.violated(base_offset=segment.base_offset, log_end=log_end_offset)
        if append.gap:
            self.note_gaps()
        segment.append(append.headers, append.buffers, config.index_interval_bytes)
        return segment

    def _log_postponed(self, error: ResourcesExhausted) -> None:
        if not self._roll_postponed:
            self._roll_postponed = True
            _logger.warning("roll postponed: no resources", directory=self.directory, reason=str(error))

    def roll(self, base_offset: int, producers: Iterable[ProducerEntry], now_ms: int) -> Segment:
        """Seal the active segment, write a snapshot of `producers`, and create a segment at `base_offset`.

        Raises:
            ResourcesExhausted: No descriptor or memory is left. The active segment stays, and the roll can be repeated.
            OSError: A disk operation fails.
        """
        self.disk.check_resources()
        sealed = self.segments.active
        sealed.seal()
        self.snapshots.take(producers, base_offset)
        for suffix in names.SEGMENT_SUFFIXES:
            self.disk.remove(f"{self.directory}/{names.offset_file(base_offset, suffix)}")
        segment = self._add_segment(base_offset, now_ms)
        self.segments.note_index_use(sealed)
        return segment

    def _add_segment(self, base_offset: int, now_ms: int) -> Segment:
        segment = Segment(self.disk, self.directory, base_offset, created_ms=now_ms, create=True)
        self.segments.add(segment)
        self._files.names_changed = True
        return segment

    def note_gaps(self) -> None:
        """Note in a marker file that offsets may be missing between batches. See `PartitionDirectory.note_gaps`."""
        self._files.note_gaps()

    # ---- flush ------------------------------------------------------------------------------------------------------

    @property
    def flushed_offset(self) -> int:
        """Offset below which all batches are durable."""
        return self._flusher.flushed_offset

    @property
    def recovery_point(self) -> int:
        """Offset from which a recovery after an unclean shutdown begins."""
        return self._flusher.recovery_point

    async def flush(self, end_offset: int) -> None:
        """Make all batches below `end_offset` durable. Concurrent calls share one flush.

        Raises:
            ResourcesExhausted: No descriptor or memory is left. The flush can be repeated.
            OSError: A disk operation fails; the log is then marked as failed.
        """
        with self._flushing():
            await self._flusher.flush(end_offset)

    @contextmanager
    def _flushing(self) -> Iterator[None]:
        """Protect all files from removal during a flush, and mark the log as failed if a disk operation fails."""
        hold = self._removed.hold()
        try:
            yield
        except ResourcesExhausted:
            raise
        except OSError:
            if not self.closed:
                self.failed = True
                raise
        finally:
            del hold

    @property
    def recovery_start(self) -> int | None:
        """Offset at which recovery may start in its segment; None if there is none (`Flusher.recovery_start`)."""
        return self._flusher.recovery_start

    @property
    def bytes_to_recover(self) -> int:
        """Bytes of the batches that a recovery after an unclean shutdown would check now."""
        return self._flusher.bytes_to_recover

    async def flush_for_recovery(self, state: Callable[[], LogState | None]) -> None:
        """Make the log durable up to its end, and move the recovery start there (`Flusher.flush_for_recovery`).

        Raises:
            ResourcesExhausted: No descriptor or memory is left. The flush can be repeated.
            OSError: A disk operation fails; the log is then marked as failed.
        """
        with self._flushing():
            await self._flusher.flush_for_recovery(state)

    def lower_recovery_point(self, offset: int) -> None:
        """Count nothing from `offset` on as flushed."""
        self._flusher.lower_to(offset)

    # ---- remove segments --------------------------------------------------------------------------------------------

    def hold(self) -> Hold:
        """Protect all files that the log has now from removal, as long as the returned object is referenced."""
        return self._removed.hold()

    def remove_first(self, count: int) -> None:
        """Remove the first `count` segments from the log. Raise OSError if a disk operation fails."""
        self._removed.add(self.segments.remove_first(count))
        self._files.names_changed = True

    def remove_deleted(self, now_ms: int, delay_ms: int) -> int:
        """Remove the files of segments that left the log at least `delay_ms` ago. Return the number of files.

        The delay begins with the first call after the segments left the log. Files that a read or a flush uses stay.
        """
        return self._removed.remove_files(now_ms, delay_ms)

    def replace_segments(self, old: list[Segment], cleaned: Segment) -> bool:
        """Replace the segments `old` by a compacted one. Return False without a change if the log lacks one of them.

        The list of segments and the file names change in one step of the event loop. So no reader finds a missing
        segment.

        Raises:
            OSError: A disk operation fails, or SEGMENT_ORDER is violated; the log is then marked as failed.
        """
        with self.failing_on_error():
            if not self.segments.replace(old, cleaned):
                return False
            self._removed.add(old, replaced_by=cleaned)
            cleaned.rename("")
        self._files.names_changed = True
        self.segments.note_index_use(cleaned)
        return True

    # ---- truncate ---------------------------------------------------------------------------------------------------

    def truncate_to(self, offset: int, *, index_interval_bytes: int) -> int:
        """Truncate before the batch that holds `offset`, and return the new end offset. Wait for the disk.

        The caller completes the truncation by `truncated_to`.

        Raises:
            OSError: A disk operation fails.
        """
        self.truncation.begin()
        self._removed.add(self.segments.remove_from(offset + 1))
        return truncate_segment(self.segments.active, self.disk, offset, interval=index_interval_bytes)

    def truncate_fully_and_start_at(self, offset: int, now_ms: int) -> None:
        """Remove all segments and create an empty one at `offset`. Wait for the disk.

        The caller completes the truncation by `truncated_to`.

        Raises:
            OSError: A disk operation fails.
        """
        self.truncation.begin()
        self._removed.add(self.segments.remove_from(-1))
        self._add_segment(offset, now_ms)

    def truncated_to(self, end_offset: int) -> None:
        """Note that the log was truncated to `end_offset`. Reads and flushes under way end without a result."""
        self.truncation.end(self.segments.active)
        self._flusher.lower_to(end_offset)

    async def sync_truncation(self) -> None:
        """Make the last truncation durable.

        Raises:
            OSError: A disk operation fails; the log is then marked as failed.
        """
        try:
            await self.truncation.sync()
        except ResourcesExhausted:
            raise
        except OSError:
            if not self.closed:
                self.failed = True
                raise

    # ---- close ------------------------------------------------------------------------------------------------------

    def is_complete(self, end_offset: int) -> bool:
        """Return True if a clean shutdown of the log, which ends at `end_offset`, has nothing to write.

        Either all files are durable, or the log never had a record. A power failure can remove the files of such a log,
        and the next start creates them again.
        """
        return self._flusher.is_complete(end_offset) or (end_offset == 0 and self.truncation.count == 0)

    def write_last(self, end_offset: int, producers: Mapping[int, ProducerEntry]) -> None:
        """Write all that a clean shutdown leaves: indexes, a snapshot of `producers` at the log end, leader epochs.

        A log without producers gets no snapshot if a start reads its active segment anyway.

        The caller makes all files durable, calls `install_epochs`, and makes the directory durable.

        Raises:
            OSError: A disk operation fails; the log is then marked as failed.
        """
        with self.failing_on_error():
            self.truncation.sync_now()
            self.segments.active.write_last()
            if end_offset > 0 and (producers or not self.segments.active.needs_no_index_files):
                self.snapshots.take(producers.values(), end_offset)
            self._flusher.write_epochs_aside(end_offset)

    def install_epochs(self) -> None:
        """Replace `leader-epoch-checkpoint` by the file of `write_last`. Raise OSError if a disk operation fails."""
        with self.failing_on_error():
            self._flusher.install_epochs()

    def sync_now(self) -> None:
        """Make all files durable after `write_last`. Wait for the disk.

        The name of the directory becomes durable when the clean-shutdown marker is written beside it.

        Raises:
            OSError: A disk operation fails; the log is then marked as failed.
        """
        with self.failing_on_error():
            self._flusher.sync_files_now()
            self._flusher.install_epochs()
            self.disk.sync_directory_now(self.directory)

    def close(self) -> None:
        """Close all files, without a flush. Idempotent."""
        if self.closed:
            return
        self.closed = True
        self.truncation.close()
        self._flusher.abandon()
        for segment in self.segments:
            segment.close()
        self._removed.close()
