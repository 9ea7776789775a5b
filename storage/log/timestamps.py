"""Look up offsets by timestamp: the first record at or after a time, and the newest record (ListOffsets).

A look-up is a generator that requests pieces of files, threads, pauses and permissions for long work (`Request`).
"""

from __future__ import annotations

from asyncio import sleep
from dataclasses import dataclass, field
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from odradek.frozen import frozen_dataclass
from odradek.protocol.batch import BATCH_LENGTH_MIN, HEADER_BYTES, LENGTH_OVERHEAD, MAX_TIMESTAMP_AT, read_header
from odradek.protocol.compression import ExpansionExceeded
from odradek.protocol.errors import ErrorCode, Malformed, Refusal
from odradek.storage.batches.limits import codec_bytes_max, decompressed_bytes_max
from odradek.storage.batches.record_checks import SLICE_UNITS, body_at_once, record_body
from odradek.storage.batches.work import Pause, WorkSlice
from odradek.storage.log.timestamp_tables import BatchId, TimestampTable, TimestampTables, is_large, make_table
from odradek.storage.segment.lookup import Piece, load_indexes

if TYPE_CHECKING:
    from collections.abc import Generator

    from odradek.protocol.batch import BatchHeader
    from odradek.storage.disk.port import Disk
    from odradek.storage.segment.segment import Segment
    from odradek.storage.segment.segments import Segments

SEARCH_BYTES = 256 * 1024
"""Bytes per read of a search. A search starts at an index entry and mostly ends within one index interval."""
SEARCH_RECORDS_MAX = 300_000
"""Maximum records that one look-up decodes: as many as two uncompressed batches of 1 MiB can have.

A look-up needs one batch, or two if the log start offset lies within the first. It needs more only if headers promise
timestamps that no record has. The look-up then ends at the next batch, without decoding it.
"""
BATCH_UNITS = 4
"""Work per batch header, in units (`odradek.storage.batches.work`)."""
READ_UNITS: Final = 20
"""Work per read of a piece of a file, in units. A read of SEARCH_BYTES takes about 40 µs."""
DECODING_UNITS: Final = 20
"""Work per decoded batch, in units, in addition to one unit per record. It takes about 25 µs."""
ENTRIES_PER_UNIT: Final = 32
"""Index entries that are loaded per unit of work."""

TimestampAndOffset = tuple[int, int, int]
"""Timestamp (ms), offset and leader epoch of a record."""
_LENGTH = Struct(">i")
_TIMESTAMP = Struct(">q")
_NO_BYTES: Final = memoryview(b"")


@frozen_dataclass(frozen=True, slots=True)
class LongWork:
    """Request for the permission to decode a large batch. The permission ends with the look-up or the next request."""

    records: int
    memory_bytes: int


Request: TypeAlias = Piece | Pause | LongWork
Search: TypeAlias = "Generator[Request, Any, TimestampAndOffset | None]"


class LookUps(Protocol):
    """Limit of the work of look-ups by timestamp, and the tables that earlier look-ups have made."""

    tables: TimestampTables

    async def next_turn(self) -> None:
        """Let other work run between two slices of a look-up."""

    async def start(self, records: int, memory_bytes: int) -> None:
        """Wait until a large batch may be decoded."""

    def end(self, memory_bytes: int) -> None:
        """End the work that `start` permitted."""


class UnlimitedLookUps:
    """Look-ups without a limit of concurrent work, for callers that have only one."""

    def __init__(self) -> None:
        self.tables = TimestampTables()

    async def next_turn(self) -> None:
        """Let other tasks run once."""
        await sleep(0)

    async def start(self, records: int, memory_bytes: int) -> None:
        """Permit the work immediately."""

    def end(self, memory_bytes: int) -> None:
        """Permit nothing more and nothing less."""


@dataclass(slots=True)
class TimestampSearch:
    """One look-up by timestamp in one log."""

    directory: str
    segments: Segments
    disk: Disk
    interval: int
    """index.interval.bytes of the log."""
    max_message_bytes: int
    tables: TimestampTables
    work: WorkSlice = field(default_factory=lambda: WorkSlice(SLICE_UNITS))
    records: int = 0
    """Records that this look-up has decoded."""
    _window: memoryview = _NO_BYTES
    """Bytes that the search has read last. A look-up that waits for permission holds none."""

    def first_at_or_after(self, timestamp: int, start_offset: int) -> Search:
        """Return the first record from `start_offset` on with a timestamp of at least `timestamp` (ms), or None.

        Compressed batches are decompressed. The result is exact to the record, except in a batch that exceeds the
        bounds of records, and after SEARCH_RECORDS_MAX records: then it is the first offset of a batch whose header
        has such a timestamp. A consumer that starts there misses no record.
        """
        for segment in self.segments.from_offset(start_offset):
            if segment.max_timestamp < timestamp:
                continue
            units = 0
            if segment.time_index is None or segment.offset_index is None:
                units = yield from self._load_indexes(segment)
            assert segment.time_index is not None
            assert segment.offset_index is not None
            from_offset = max(segment.time_index.offset_for(timestamp), start_offset)
            position, _ = segment.offset_index.position_for(from_offset)
            if self.work.spend(units):  # not before the use of the indexes: they can be unloaded during the pause
                yield None
            record = yield from self._search(segment, position, timestamp, start_offset)
            if record is not None:
                return record
        return None

    def newest(self) -> Search:
        """Return the first record with the largest timestamp of the log; None if no record has a timestamp."""
        segment = max(self.segments, key=lambda segment: segment.max_timestamp)
        if segment.max_timestamp < 0:
            return None
        units = 0
        if segment.offset_index is None:
            units = yield from self._load_indexes(segment)
        assert segment.offset_index is not None
        position, _ = segment.offset_index.position_for(segment.offset_of_max_timestamp)
        if self.work.spend(units):
            yield None
        return (yield from self._search(segment, position, segment.max_timestamp, segment.base_offset))

    def _load_indexes(self, segment: Segment) -> Generator[Request, Any, int]:
        """Load the indexes of a sealed segment. Return the work in units, which the caller counts."""
        yield from load_indexes(segment, self.disk, self.interval)
        self.segments.note_index_use(segment)
        assert segment.time_index is not None
        assert segment.offset_index is not None
        return READ_UNITS + (len(segment.time_index) + len(segment.offset_index)) // ENTRIES_PER_UNIT

    def _search(self, segment: Segment, position: int, timestamp: int, start_offset: int) -> Search:
        end = segment.size
        while end - position >= HEADER_BYTES:
            data = yield from self._read(segment, position, min(SEARCH_BYTES, end - position))
            if len(data) < HEADER_BYTES:  # the log was truncated during a pause
                raise Refusal(ErrorCode.CORRUPT_MESSAGE, f"the log file ends before byte {position}")
            at = 0
            while len(data) - at >= HEADER_BYTES:
                (length,) = _LENGTH.unpack_from(data, at + 8)
                (max_timestamp,) = _TIMESTAMP.unpack_from(data, at + MAX_TIMESTAMP_AT)
                if length < BATCH_LENGTH_MIN:
                    raise Refusal(ErrorCode.CORRUPT_MESSAGE, f"no record batch begins at byte {position + at}")
                if max_timestamp >= timestamp:
                    self._window = data
                    del data  # the search of the batch can have to wait; then it frees the window
                    record = yield from self._in_batch(segment, position, at, timestamp, start_offset)
                    if record is not None:
                        return record
                    data, self._window = self._window, _NO_BYTES
                at += length + LENGTH_OVERHEAD
                if self.work.spend(BATCH_UNITS):
                    yield None
            position += at
        return None

    def _read(self, segment: Segment, position: int, size: int) -> Generator[Request, Any, memoryview]:
        if self.work.spend(READ_UNITS):
            yield None
        return memoryview((yield segment.file, position, size))

    def _in_batch(self, segment: Segment, window_at: int, at: int, timestamp: int, start_offset: int) -> Search:
        """Search the batch at index `at` of the window, whose position in the log file is `window_at`."""
        try:
            header = read_header(self._window, at)
            if not header.record_count:
                return None  # compaction has removed the records; the header has kept the timestamp
            first = max(header.base_offset, start_offset)
            approximate = header.max_timestamp, first, header.leader_epoch
            if self.records + header.record_count > SEARCH_RECORDS_MAX and self.records:
                return approximate
            table = yield from self._table(segment, window_at, at, header, first)
        except ExpansionExceeded:
            return approximate
        except Malformed as error:
            raise Refusal(ErrorCode.CORRUPT_MESSAGE, f"a batch of the log cannot be decoded: {error}") from error
        found = table.find(timestamp)
        return None if found is None else (*found, header.leader_epoch)

    def _table(
        self, segment: Segment, window_at: int, at: int, header: BatchHeader, first: int
    ) -> Generator[Request, Any, TimestampTable]:
        # A batch of another max.message.bytes than today's is legitimate.
        max_message_bytes = max(self.max_message_bytes, header.size)
        position = window_at + at
        if not is_large(header):
            if self.work.spend(DECODING_UNITS):
                yield None
            packed = self._window[at : at + header.size]
            if len(packed) < header.size:
                packed = yield from self._read(segment, position, header.size)
            body = body_at_once(packed, header, max_message_bytes)
            del packed
            if body is not None:
                self.records += header.record_count
                return (yield from make_table(body, header, first, self.work))
        batch = BatchId(self.directory, header.base_offset, header.crc, first)
        table = self.tables.get(batch)
        if table is None:
            self._window = _NO_BYTES  # while the look-up waits, it holds no bytes of the log
            yield LongWork(header.record_count, codec_bytes_max(decompressed_bytes_max(header.size, max_message_bytes)))
            table = self.tables.get(batch)  # another look-up may have made it meanwhile
        if table is None:
            self.records += header.record_count
            packed = yield from self._read(segment, position, header.size)
            body = yield from record_body(packed, header, max_message_bytes, self.work)
            table = yield from make_table(body, header, first, self.work)
            self.tables.put(batch, table)
        return table
