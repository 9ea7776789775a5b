"""Compact one log: map each key to its newest offset, then rewrite groups of segments and swap them in.

Each group of segments is replaced in three steps. After a crash, the next start completes or reverts the replacement
(`odradek.storage.recovery.sweep`):

1. The new segment is written to `.cleaned` files, which are renamed to `.swap`. If a `.cleaned` file is left after a
   crash, the start removes all new files. The old segments are complete.
2. All `.swap` names are made durable. After a crash, the start completes the replacement.
3. The old segments are renamed to `.deleted`, and the new files to their final names. After a crash, the start
   completes the replacement.

Groups are replaced from the lowest offset up. A crash between two groups is safe: for each key the log has the newest
value, and possibly older values before it. A tombstone is removed only by a compaction after the one that has removed
all records that the tombstone deletes.

A read that has begun continues with the old segment. Its files are removed after file.delete.delay.ms.
"""

from __future__ import annotations

from asyncio import CancelledError
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from odradek.frozen import frozen_dataclass
from odradek.invariants.storage import COMPACTION_BOUND
from odradek.protocol.batch import HEADER_BYTES, BatchHeader, read_header, verify_crc
from odradek.protocol.errors import Malformed
from odradek.protocol.primitives import INT64_MAX
from odradek.protocol.record import read_raw_records
from odradek.storage.compaction import selection
from odradek.storage.compaction.batch_filter import (
    BatchFilter,
    CleaningSlice,
    LastRecord,
    Steps,
    decompressed,
    marker_kind,
)
from odradek.storage.compaction.cleaned_transactions import CleanedTransactions
from odradek.storage.compaction.offset_map import LARGE_KEY_BYTES, OffsetMap, key_digest
from odradek.storage.files import names
from odradek.storage.segment.segment import Segment

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from odradek.protocol.schema import Buffer
    from odradek.storage.compaction.selection import Cleanable
    from odradek.storage.log.log import PartitionLog
    from odradek.storage.segment.index import AbortedTransaction

T = TypeVar("T")
WRITTEN_BATCHES_MAX = 64
"""Maximum batches per write. The segment indexes each of them without a pause."""
SEGMENT_BYTES_MAX = 2**31 - 1
"""Maximum bytes per segment: an index entry stores the position in 32 bits."""
CHUNK_BYTES_MAX = 4 * 1024 * 1024
"""Maximum bytes per read and per write, whatever log.cleaner.io.buffer.size is. A read that is in memory takes 1 ms."""
DEDUPE_BYTES_MAX = 256 * 1024 * 1024
"""Maximum bytes for the keys of a compaction, whatever log.cleaner.dedupe.buffer.size is."""


class CleaningInterrupted(Exception):
    """The log was truncated, deleted or closed during the compaction.

    Groups that are not replaced yet stay unchanged.
    """


@frozen_dataclass(frozen=True, slots=True)
class CleanerLimits:
    """Memory limits of a compaction, in bytes: the broker properties log.cleaner.* of the same names."""

    dedupe_buffer_size: int
    load_factor: float
    io_buffer_size: int

    @property
    def dedupe_bytes(self) -> int:
        """Bytes for the keys of the compaction."""
        return min(self.dedupe_buffer_size, DEDUPE_BYTES_MAX)

    @property
    def chunk_bytes(self) -> int:
        """Bytes per read and per write. A batch that is larger is read or written alone."""
        return min(max(self.io_buffer_size // 2, HEADER_BYTES), CHUNK_BYTES_MAX)


@frozen_dataclass(frozen=True, slots=True)
class CleaningResult:
    """Result of one compaction. The log is dirty from `end_offset` on. Sizes are bytes of the rewritten segments."""

    end_offset: int
    bytes_before: int
    bytes_after: int


def cleanable(log: PartitionLog, expiry_ms: int) -> Cleanable:
    """Return the part of the log that may be compacted."""
    offsets = selection.Offsets(log.log_start_offset, log.last_stable_offset, log.log_end_offset, log.cleaned_to)
    return selection.cleanable_part(log.segments.facts(), log.config, offsets, now_ms=expiry_ms)


async def read_first_timestamps(log: PartitionLog) -> None:
    """Read the timestamp of the first batch of each segment if max.compaction.lag.ms is set, which depends on it.

    Segments that this process has written have it in memory.

    Raises:
        OSError: A disk operation fails.
    """
    if log.config.max_compaction_lag_ms == INT64_MAX:
        return
    for segment in list(log.segments):
        if segment.first_batch_timestamp is None and segment.size >= HEADER_BYTES and not log.closed:
            header = segment.file.read_warm(0, HEADER_BYTES)
            if header is None:
                header = await segment.file.read_cold(0, HEADER_BYTES)
            segment.note_first_batch(header)


class Cleaning:
    """One compaction of one log.

    `pace` is awaited between two slices of work. Its argument is the number of bytes read and written since the last
    call.

    A delete horizon passes by the expiry time, but a new one is a timestamp of the wall clock, as those of the records:

    1. The expiry time is behind the wall clock by a day, because the broker was stopped for a day.
    2. Compaction sets a delete horizon of the expiry time plus delete.retention.ms, for example 12 hours.
    3. Another replica copies the batch. There the delete horizon has passed, and the tombstone is removed immediately.
    """

    def __init__(
        self,
        log: PartitionLog,
        plan: Cleanable,
        limits: CleanerLimits,
        pace: Callable[[int], Awaitable[None]],
        *,
        expiry_ms: int,
        wall_ms: int,
    ) -> None:
        self._log = log
        self._plan = plan
        self._limits = limits
        self._pace = pace
        self._expiry_ms = expiry_ms
        self._wall_ms = wall_ms
        self._initial_state = log.local.truncation.count, log.cleaned_to
        self._slice = CleaningSlice()
        self._offsets = OffsetMap(limits.dedupe_bytes, limits.load_factor)
        self._moved_bytes = 0

    async def run(self) -> CleaningResult:
        """Compact the log. The caller has made all records below `plan.bound`, and the recovery point, durable.

        Raises:
            CleaningInterrupted: See the class.
            Malformed: A batch is damaged. Its segment was not replaced.
            OSError: A disk operation fails. If `log.failed` is set then, the log must not be used any more.
        """
        log, plan = self._log, self._plan
        self._check()
        if plan.bound > min(log.last_stable_offset, log.segments.active.base_offset):
            raise COMPACTION_BOUND.violated(
                bound=plan.bound, last_stable=log.last_stable_offset, active=log.segments.active.base_offset
            )
        sources = [segment for segment in log.segments if segment.base_offset < plan.bound]
        if not sources:
            raise CleaningInterrupted  # retention has removed the segments since the plan was made
        aborted = [entry for segment in log.segments for entry in segment.txn_index.entries()]
        stopping = False
        try:
            await self._drive(self._map_offsets(sources, aborted))
            end = min(self._offsets.latest_offset + 1, plan.bound)
            mapped = [segment for segment in sources if segment.base_offset < end]
            log.local.note_gaps()
            return await self._rewrite(mapped, aborted, end)
        except CancelledError:
            stopping = True  # the broker stops, so the map may be freed in one step that blocks the event loop
            raise
        finally:
            while not stopping and self._offsets.release():
                await self._pace(0)

    async def _rewrite(self, sources: list[Segment], aborted: list[AbortedTransaction], end: int) -> CleaningResult:
        log = self._log
        transactions = CleanedTransactions(aborted)
        by_base = {segment.base_offset: segment for segment in sources}
        facts = [segment for segment in log.segments.facts() if segment.base_offset in by_base]
        bytes_before = bytes_after = 0
        for group in selection.groups(facts, log.config, bound=self._plan.bound):
            old = [by_base[segment.base_offset] for segment in group]
            bytes_before += sum(segment.size for segment in old)
            bytes_after += await self._clean_group(old, transactions)
        self._check()
        log.note_cleaned(end)
        return CleaningResult(end, bytes_before, bytes_after)

    async def _clean_group(self, sources: list[Segment], transactions: CleanedTransactions) -> int:
        """Rewrite the sources as one segment and swap it in. Return the size of the new segment in bytes."""
        log = self._log
        self._check()
        base = sources[0].base_offset
        # Remove files that an earlier compaction could not remove because of disk errors.
        for suffix in names.SEGMENT_SUFFIXES:
            for ending in (names.CLEANED_SUFFIX, names.SWAP_SUFFIX):
                log.disk.remove(f"{log.directory}/{names.offset_file(base, suffix)}{ending}")
        cleaned = Segment(
            log.disk,
            log.directory,
            base,
            created_ms=sources[-1].created_ms,
            create=True,
            file_suffix=names.CLEANED_SUFFIX,
        )
        try:
            changed = await self._write(cleaned, sources, transactions)
        except BaseException:
            self._discard(cleaned)
            raise
        if not changed and len(sources) == 1:
            self._discard(cleaned)
            return cleaned.size
        if not log.local.replace_segments(sources, cleaned):
            self._discard(cleaned)
            raise CleaningInterrupted
        await log.disk.sync_directory(log.directory)
        return cleaned.size

    async def _write(self, cleaned: Segment, sources: list[Segment], transactions: CleanedTransactions) -> bool:
        """Write the retained records of the sources to `cleaned`. Return True if any batch was changed or removed.

        Unless `cleaned` is an unchanged copy of one segment, its files have `.swap` names and are durable then.
        """
        transactions.keep_aborted = cleaned.add_aborted
        changed = await self._drive(self._filter(cleaned, sources, transactions))
        if changed or len(sources) > 1:
            cleaned.seal()
            await cleaned.sync(indexes=True)
            self._check()
            cleaned.rename(names.SWAP_SUFFIX)
            await self._log.disk.sync_directory(self._log.directory)
            self._check()
        return changed

    def _discard(self, cleaned: Segment) -> None:
        """Remove the files of a new segment that is not used.

        The next compaction or start removes files that remain.
        """
        with suppress(OSError):
            cleaned.close()
            if not self._log.closed:  # after a close, the directory of that name may be that of another log
                cleaned.remove()

    def _check(self) -> None:
        """Raise CleaningInterrupted if the log was closed, truncated or compacted since the compaction began."""
        log = self._log
        if log.closed or log.failed or (log.local.truncation.count, log.cleaned_to) != self._initial_state:
            raise CleaningInterrupted

    # ---- generators of steps (see `odradek.storage.compaction.batch_filter`) ----------------------------------------

    def _map_offsets(self, sources: list[Segment], aborted: list[AbortedTransaction]) -> Steps[None]:
        """Map each key in the dirty part to its newest offset. Stop if the map is full."""
        first = self._plan.first_dirty
        self._offsets.note_offset(first - 1)
        transactions = CleanedTransactions(entry for entry in aborted if entry.last_offset >= first)
        ends = [*(segment.base_offset for segment in sources[1:]), self._plan.bound]

        def visit(header: BatchHeader, batch: memoryview) -> Steps[bool]:
            if header.last_offset < first:
                return True
            if header.is_control:
                transactions.on_control_batch(header, marker_kind(header, batch))
            elif not transactions.on_data_batch(header) and header.record_count:
                body = yield from decompressed(header, batch)
                for record in read_raw_records(body, header.record_count):
                    offset = header.base_offset + record.offset_delta
                    key = record.key
                    if key is not None and offset >= first:
                        digest = key_digest(key) if len(key) <= LARGE_KEY_BYTES else (yield partial(key_digest, key))
                        if not self._offsets.put(digest, offset):
                            return False
                    if self._slice.spend_on_record(record):
                        yield None
            self._offsets.note_offset(header.last_offset)
            return True

        for segment, end in zip(sources, ends, strict=True):
            if end > first:
                if not (yield from self._walk(segment, visit)):
                    return  # the map is full; the next compaction continues here
                self._offsets.note_offset(end - 1)

    def _filter(self, cleaned: Segment, sources: list[Segment], transactions: CleanedTransactions) -> Steps[bool]:
        """Write the retained records of the sources to `cleaned`. Return True if any batch was changed or removed."""
        log = self._log
        last_of_producers = {
            entry.producer_id: LastRecord(entry.last_data_offset, entry.epoch)
            for entry in log.producers.entries.values()
        }
        batches = BatchFilter(
            self._offsets,
            transactions,
            last_of_producers,
            self._plan.bound,
            self._expiry_ms,
            min(self._wall_ms + log.config.delete_retention_ms, INT64_MAX),
            self._slice,
        )
        writer = _SegmentWriter(cleaned, log.config.index_interval_bytes, self._limits.chunk_bytes)
        changed = False

        def visit(header: BatchHeader, batch: memoryview) -> Steps[bool]:
            nonlocal changed
            retained = yield from batches.clean(header, batch)
            changed = changed or retained is not batch
            if retained is not None:
                self._moved_bytes += writer.add(retained)
            return True

        for segment in sources:
            yield from self._walk(segment, visit)
        self._moved_bytes += writer.flush()
        return changed

    def _walk(self, segment: Segment, visit: Callable[[BatchHeader, memoryview], Steps[bool]]) -> Steps[bool]:
        """Call `visit` for each batch of the segment until it returns False. Return False in that case.

        Raises:
            Malformed: A batch is damaged. The message has the file, the position and the offset.
        """
        end, offset = segment.size, segment.base_offset
        position = window_start = 0
        window = memoryview(b"")
        try:
            while position < end:
                at = position - window_start
                if len(window) - at < min(HEADER_BYTES, end - position):
                    window = memoryview((yield segment.file, position, min(self._limits.chunk_bytes, end - position)))
                    window_start, at = position, 0
                header = read_header(window, at)
                offset = header.base_offset
                if header.size > len(window) - at:
                    window = memoryview((yield segment.file, position, min(header.size, end - position)))
                    window_start, at = position, 0
                if not verify_crc(window, at, header):
                    raise Malformed("the checksum does not match")
                if not (yield from visit(header, window[at : at + header.size])):
                    return False
                position, offset = position + header.size, header.last_offset + 1
                if self._slice.spend_on_batch(header.size):
                    yield None
        except Malformed as error:
            path = segment.path(names.LOG_SUFFIX)
            raise Malformed(f"{path}: batch at byte {position}, at or after offset {offset}: {error}") from error
        return True

    async def _drive(self, steps: Steps[T]) -> T:
        """Run the generator to its end: carry out its steps, and check after each that the log is unchanged."""
        result: Any = None
        while True:
            try:
                step = steps.send(result)
            except StopIteration as stop:
                return cast("T", stop.value)
            if step is None:
                moved, self._moved_bytes = self._moved_bytes, 0
                await self._pace(moved)
                result = None
            elif isinstance(step, tuple):
                file, position, size = step
                result = file.read_warm(position, size)
                if result is None:
                    result = await file.read_cold(position, size)
                self._moved_bytes += size
            else:
                result = await self._log.disk.in_thread(step)
            self._check()


class _SegmentWriter:
    """Buffer of batches that are appended to a new segment in groups."""

    def __init__(self, segment: Segment, index_interval_bytes: int, chunk_bytes: int) -> None:
        self._segment = segment
        self._index_interval_bytes = index_interval_bytes
        self._chunk_bytes = chunk_bytes
        self._batches: list[BatchHeader] = []
        self._buffers: list[Buffer] = []
        self._size = 0

    def add(self, batch: Buffer) -> int:
        """Add a batch, and flush if the buffer is full. Return the bytes written. Raise as `flush` does."""
        header = read_header(batch)
        self._batches.append(header)
        self._buffers.append(batch)
        self._size += header.size
        full = self._size >= self._chunk_bytes or len(self._batches) >= WRITTEN_BATCHES_MAX
        return self.flush() if full else 0

    def flush(self) -> int:
        """Append the buffered batches to the segment. Return the bytes written.

        Raises:
            OSError: A disk operation fails.
            Malformed: The segment would exceed SEGMENT_BYTES_MAX.
        """
        written, self._size = self._size, 0
        if self._segment.size + written > SEGMENT_BYTES_MAX:
            path = self._segment.path(names.LOG_SUFFIX)
            raise Malformed(f"{path}: the compacted segment would exceed {SEGMENT_BYTES_MAX} bytes")
        if written:
            self._segment.append(self._batches, self._buffers, self._index_interval_bytes)
        self._batches.clear()
        self._buffers.clear()
        return written
