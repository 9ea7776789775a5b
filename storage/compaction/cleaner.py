"""Compaction at work: the newest offset of each key is looked up, then segment after segment is written anew and swapped in.

What a crash leaves of it, step by step (`odradek.storage.recovery.sweep` sorts it out):
1. `.cleaned` files, or some of them renamed to `.swap`: they go, the old segments are whole.
2. All `.swap`, which is durable before any old segment goes: the swap is completed.
3. Old segments renamed to `.deleted`, `.swap` to its final name: the same, or nothing is left to do.

Segments are swapped one group after the other, from the lowest offset up. A log of which only some are new is as good as one
of which none is: of a key it has its newest value, and maybe older ones before it, and a tombstone only goes in a cleaning
that comes after one that has taken away, to the end, what it had superseded.

Readers keep the segment that they have begun with: its files are renamed, and removed after file.delete.delay.ms.
"""

from __future__ import annotations

from asyncio import CancelledError
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

from odradek.protocol.batch import HEADER_BYTES, BatchHeader, read_header, verify_crc
from odradek.protocol.errors import Malformed
from odradek.protocol.record import read_raw_records
from odradek.storage.compaction import selection
from odradek.storage.compaction.batch_filter import BatchFilter, LastRecord, Steps, WorkSlice, decompressed, marker_kind
from odradek.storage.compaction.cleaned_transactions import CleanedTransactions
from odradek.storage.compaction.offset_map import OffsetMap
from odradek.storage.config import LONG_MAX
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
"""Batches that are written at once: each is looked at then, which is part of the slice."""
SEGMENT_BYTES_MAX = 2**31 - 1
"""A position in an index has 32 bits."""


class CleaningInterrupted(Exception):
    """The log was cut, deleted or closed meanwhile: what was not swapped in yet is thrown away."""


@dataclass(frozen=True, slots=True)
class CleanerLimits:
    """Memory in bytes: log.cleaner.dedupe.buffer.size, log.cleaner.io.buffer.load.factor and log.cleaner.io.buffer.size."""

    dedupe_buffer_size: int
    load_factor: float
    io_buffer_size: int

    @property
    def chunk_bytes(self) -> int:
        """Read, or written, at a time: a larger batch comes alone."""
        return max(self.io_buffer_size // 2, HEADER_BYTES)


@dataclass(frozen=True, slots=True)
class CleaningDone:
    """`end_offset` is where the log is dirty from now on. Sizes are bytes of segments."""

    end_offset: int
    bytes_before: int
    bytes_after: int


def cleanable(log: PartitionLog, now_ms: int) -> Cleanable:
    """Return the part of the log that may be compacted."""
    offsets = selection.Offsets(log.log_start_offset, log.last_stable_offset, log.log_end_offset, log.cleaned_to)
    return selection.cleanable_part(log.segments.facts(), log.config, offsets, now_ms=now_ms)


async def read_first_timestamps(log: PartitionLog) -> None:
    """Bring in what max.compaction.lag.ms is judged by, of sealed segments that were not written by this process. Raises OSError."""
    if log.config.max_compaction_lag_ms == LONG_MAX:
        return
    for segment in list(log.segments):
        if segment.first_batch_timestamp is None and segment.size >= HEADER_BYTES and not log.closed:
            head = segment.file.read_warm(0, HEADER_BYTES)
            if head is None:
                head = await segment.file.read_cold(0, HEADER_BYTES)
            segment.note_first_batch(head)


class Cleaning:
    """One cleaning of one log. `pace` is awaited between two slices of work, with the bytes read and written since."""

    def __init__(
        self,
        log: PartitionLog,
        plan: Cleanable,
        limits: CleanerLimits,
        pace: Callable[[int], Awaitable[None]],
        *,
        now_ms: int,
    ) -> None:
        self._log = log
        self._plan = plan
        self._limits = limits
        self._pace = pace
        self._now_ms = now_ms
        self._begun_with = log.local.truncation.count, log.cleaned_to
        self._slice = WorkSlice()
        self._offsets = OffsetMap(limits.dedupe_buffer_size, limits.load_factor)
        self._moved_bytes = 0

    async def run(self) -> CleaningDone:
        """Before this everything below the bound of the plan is durable, and so are the recovery points that say so.

        Raises:
            CleaningInterrupted: see there. Malformed: the log is damaged; nothing of the damaged segment was replaced.
            OSError: the disk refuses; where `log.failed` is set then, the log must not be used any more.
        """
        log, plan = self._log, self._plan
        self._check()
        sources = [segment for segment in log.segments if segment.base_offset < plan.bound]
        if not sources:
            raise CleaningInterrupted  # retention has been here since it was planned
        aborted = [entry for segment in log.segments for entry in segment.txn_index.entries()]
        stopping = False
        try:
            await self._drive(self._map_offsets(sources, aborted))
            end = min(self._offsets.latest_offset + 1, plan.bound)
            taken = [segment for segment in sources if segment.base_offset < end]
            log.local.note_gaps()
            return await self._rewrite(taken, aborted, end)
        except CancelledError:
            stopping = True  # nobody is left who would be held up by what is freed in one go
            raise
        finally:
            while not stopping and self._offsets.release():
                await self._pace(0)

    async def _rewrite(self, sources: list[Segment], aborted: list[AbortedTransaction], end: int) -> CleaningDone:
        log = self._log
        transactions = CleanedTransactions(aborted)
        by_base = {segment.base_offset: segment for segment in sources}
        rows = [row for row in log.segments.facts() if row.base_offset in by_base]
        before = after = 0
        for group in selection.groups(rows, log.config, bound=self._plan.bound):
            old = [by_base[row.base_offset] for row in group]
            before += sum(segment.size for segment in old)
            after += await self._clean_group(old, transactions)
        self._check()
        log.note_cleaned(end)
        return CleaningDone(end, before, after)

    async def _clean_group(self, sources: list[Segment], transactions: CleanedTransactions) -> int:
        """Write the sources anew as one segment and swap it in; its size."""
        log = self._log
        self._check()
        base = sources[0].base_offset
        for suffix in names.SEGMENT_SUFFIXES:  # of an earlier cleaning that the disk would not let clean up
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
        """Write what stays of the sources, ready to be swapped in. Return whether anything has changed.

        One segment in which nothing has changed is not made ready.
        """
        transactions.keep_aborted = cleaned.add_aborted
        changed = await self._drive(self._fill(cleaned, sources, transactions))
        if changed or len(sources) > 1:
            cleaned.seal()
            await cleaned.sync(indexes=True)
            self._check()
            cleaned.rename(names.SWAP_SUFFIX)
            await self._log.disk.sync_directory(self._log.directory)
            self._check()
        return changed

    def _discard(self, cleaned: Segment) -> None:
        """Remove the files of a segment that does not replace any. What the disk refuses, the next compaction or start removes."""
        with suppress(OSError):
            cleaned.close()
            if not self._log.closed:  # the directory of a closed log may belong to another log
                cleaned.remove()

    def _check(self) -> None:
        log = self._log
        if log.closed or log.failed or (log.local.truncation.count, log.cleaned_to) != self._begun_with:
            raise CleaningInterrupted

    # -- steps, as generators (see `odradek.storage.compaction.batch_filter`) ----------------------------------------------------------------

    def _map_offsets(self, sources: list[Segment], aborted: list[AbortedTransaction]) -> Steps[None]:
        """Look up the newest offset of each key in what is dirty, or in as much of it as there is room for."""
        first = self._plan.first_dirty
        self._offsets.note_offset(first - 1)
        transactions = CleanedTransactions(entry for entry in aborted if entry.last_offset >= first)
        ends = [*(segment.base_offset for segment in sources[1:]), self._plan.bound]

        def visit(header: BatchHeader, batch: memoryview) -> Steps[bool]:
            if header.last_offset < first:
                return True
            if header.is_control:
                transactions.control(header, marker_kind(header, batch))
            elif not transactions.data(header) and header.record_count:
                body = yield from decompressed(header, batch)
                for record in read_raw_records(body, header.record_count):
                    offset = header.base_offset + record.offset_delta
                    if record.key is not None and offset >= first and not self._offsets.put(record.key, offset):
                        return False
                    if self._slice.spend():
                        yield None
            self._offsets.note_offset(header.last_offset)
            return True

        for segment, end in zip(sources, ends, strict=True):
            if end > first:
                if not (yield from self._walk(segment, visit)):
                    return  # full: what follows is for the next time
                self._offsets.note_offset(end - 1)

    def _fill(self, cleaned: Segment, sources: list[Segment], transactions: CleanedTransactions) -> Steps[bool]:
        """Write what stays of the sources; whether anything has changed."""
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
            self._now_ms,
            log.config.delete_retention_ms,
            self._slice,
        )
        out = _Output(cleaned, log.config.index_interval_bytes, self._limits.chunk_bytes)
        changed = False

        def visit(header: BatchHeader, batch: memoryview) -> Steps[bool]:
            nonlocal changed
            left = yield from batches.clean(header, batch)
            changed = changed or left is not batch
            if left is not None:
                self._moved_bytes += out.add(left)
            return True

        for segment in sources:
            yield from self._walk(segment, visit)
        self._moved_bytes += out.flush()
        return changed

    def _walk(self, segment: Segment, visit: Callable[[BatchHeader, memoryview], Steps[bool]]) -> Steps[bool]:
        """Visit the batches of a segment until one says False. Raises Malformed where the file is damaged."""
        path, end = segment.path(names.LOG_SUFFIX), segment.size
        position = window_at = 0
        window = memoryview(b"")
        while position < end:
            at = position - window_at
            if len(window) - at < min(HEADER_BYTES, end - position):
                window = memoryview((yield segment.file, position, min(self._limits.chunk_bytes, end - position)))
                window_at, at = position, 0
            header = read_header(window, at)
            if header.size > len(window) - at:
                window = memoryview((yield segment.file, position, min(header.size, end - position)))
                window_at, at = position, 0
            if not verify_crc(window, at, header):
                raise Malformed(f"{path}: the batch at byte {position} is damaged")
            if not (yield from visit(header, window[at : at + header.size])):
                return False
            position += header.size
            if self._slice.spend_on_batch(header.size):
                yield None
        return True

    async def _drive(self, steps: Steps[T]) -> T:
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


class _Output:
    """Batches on their way into a segment, written some at a time."""

    def __init__(self, segment: Segment, index_interval_bytes: int, chunk_bytes: int) -> None:
        self._segment = segment
        self._index_interval_bytes = index_interval_bytes
        self._chunk_bytes = chunk_bytes
        self._batches: list[BatchHeader] = []
        self._buffers: list[Buffer] = []
        self._size = 0

    def add(self, batch: Buffer) -> int:
        """Bytes that have been written. Raises as `flush`."""
        header = read_header(batch)
        self._batches.append(header)
        self._buffers.append(batch)
        self._size += header.size
        full = self._size >= self._chunk_bytes or len(self._batches) >= WRITTEN_BATCHES_MAX
        return self.flush() if full else 0

    def flush(self) -> int:
        """Bytes that have been written. Raises OSError, and Malformed for more than a segment can hold."""
        written, self._size = self._size, 0
        if self._segment.size + written > SEGMENT_BYTES_MAX:
            raise Malformed(f"{self._segment.path(names.LOG_SUFFIX)}: cleaned, it is larger than a segment may be")
        if written:
            self._segment.append(self._batches, self._buffers, self._index_interval_bytes)
        self._batches.clear()
        self._buffers.clear()
        return written
