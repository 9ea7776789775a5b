"""Look up offsets by timestamp: the first record at or after a time, and the newest record (ListOffsets).

A look-up is a generator that requests pieces of files, threads, pauses and permissions for long work (`Request`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

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
    from odradek.protocol.schema import Buffer
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

TimestampAndOffset = tuple[int, int, int]
"""Timestamp (ms), offset and leader epoch of a record."""
_LENGTH = Struct(">i")
_TIMESTAMP = Struct(">q")


@dataclass(frozen=True, slots=True)
class LongWork:
    """Request for the permission to decode a large batch. The permission ends with the look-up or the next request."""

    records: int
    memory_bytes: int


Request: TypeAlias = Piece | Pause | LongWork
Search: TypeAlias = "Generator[Request, Any, TimestampAndOffset | None]"


class LookUps(Protocol):
    """Limit of the long work of look-ups by timestamp, and the tables that earlier look-ups have made."""

    tables: TimestampTables

    async def start(self, records: int, memory_bytes: int) -> None:
        """Wait until a large batch may be decoded."""

    def end(self, memory_bytes: int) -> None:
        """End the work that `start` permitted."""


class UnlimitedLookUps:
    """Look-ups without a limit of concurrent work, for callers that have only one."""

    def __init__(self) -> None:
        self.tables = TimestampTables()

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

    def first_at_or_after(self, timestamp: int, start_offset: int) -> Search:
        """Return the first record from `start_offset` on with a timestamp of at least `timestamp` (ms), or None.

        Compressed batches are decompressed. The result is exact to the record, except in a batch that exceeds the
        bounds of records, and after SEARCH_RECORDS_MAX records: then it is the first offset of a batch whose header
        has such a timestamp. A consumer that starts there misses no record.
        """
        for segment in self.segments.from_offset(start_offset):
            if segment.max_timestamp < timestamp:
                continue
            if segment.time_index is None or segment.offset_index is None:
                yield from load_indexes(segment, self.disk, self.interval)
                self.segments.note_index_use(segment)
            assert segment.time_index is not None
            assert segment.offset_index is not None
            from_offset = max(segment.time_index.offset_for(timestamp), start_offset)
            position, _ = segment.offset_index.position_for(from_offset)
            record = yield from self._search(segment, position, timestamp, start_offset)
            if record is not None:
                return record
        return None

    def newest(self) -> Search:
        """Return the first record with the largest timestamp of the log; None if no record has a timestamp."""
        segment = max(self.segments, key=lambda segment: segment.max_timestamp)
        if segment.max_timestamp < 0:
            return None
        if segment.offset_index is None:
            yield from load_indexes(segment, self.disk, self.interval)
            self.segments.note_index_use(segment)
        assert segment.offset_index is not None
        position, _ = segment.offset_index.position_for(segment.offset_of_max_timestamp)
        return (yield from self._search(segment, position, segment.max_timestamp, segment.base_offset))

    def _search(self, segment: Segment, position: int, timestamp: int, start_offset: int) -> Search:
        end = segment.size
        while end - position >= HEADER_BYTES:
            data = yield segment.file, position, min(SEARCH_BYTES, end - position)
            at = 0
            while len(data) - at >= HEADER_BYTES:
                (length,) = _LENGTH.unpack_from(data, at + 8)
                (max_timestamp,) = _TIMESTAMP.unpack_from(data, at + MAX_TIMESTAMP_AT)
                if length < BATCH_LENGTH_MIN:
                    raise Refusal(ErrorCode.CORRUPT_MESSAGE, f"no record batch begins at byte {position + at}")
                size = length + LENGTH_OVERHEAD
                if max_timestamp >= timestamp:
                    data = memoryview(data)[at : at + size]  # frees the rest: the batch can have to wait
                    position, at = position + at, 0
                    record = yield from self._in_batch(segment, position, data, timestamp, start_offset)
                    if record is not None:
                        return record
                    position += size
                    break
                at += size
                if self.work.spend(BATCH_UNITS):
                    yield None
            else:
                position += at
        return None

    def _in_batch(self, segment: Segment, position: int, data: Buffer, timestamp: int, start_offset: int) -> Search:
        """Search the batch at `position`. `data` has its header, and all of the batch if it is small."""
        try:
            header = read_header(data)
            if not header.record_count:
                return None  # compaction has removed the records; the header has kept the timestamp
            first = max(header.base_offset, start_offset)
            approximate = header.max_timestamp, first, header.leader_epoch
            if self.records + header.record_count > SEARCH_RECORDS_MAX and self.records:
                return approximate
            table = yield from self._table(segment, position, header, data, first)
        except ExpansionExceeded:
            return approximate
        except Malformed as error:
            raise Refusal(ErrorCode.CORRUPT_MESSAGE, f"a batch of the log cannot be decoded: {error}") from error
        found = table.find(timestamp)
        return None if found is None else (*found, header.leader_epoch)

    def _table(
        self, segment: Segment, position: int, header: BatchHeader, data: Buffer, first: int
    ) -> Generator[Request, Any, TimestampTable]:
        # A batch of another max.message.bytes than today's is legitimate.
        max_message_bytes = max(self.max_message_bytes, header.size)
        if not is_large(header):
            if len(data) < header.size:
                data = yield segment.file, position, header.size
            body = body_at_once(memoryview(data), header, max_message_bytes)
            if body is not None:
                self.records += header.record_count
                return (yield from make_table(body, header, first, self.work))
        batch = BatchId(self.directory, header.base_offset, header.crc, first)
        table = self.tables.get(batch)
        if table is None:
            del data  # while the look-up waits, it holds no bytes of the batch
            yield LongWork(header.record_count, codec_bytes_max(decompressed_bytes_max(header.size, max_message_bytes)))
            table = self.tables.get(batch)  # another look-up may have made it meanwhile
        if table is None:
            self.records += header.record_count
            packed = yield segment.file, position, header.size
            body = yield from record_body(memoryview(packed), header, max_message_bytes, self.work)
            table = yield from make_table(body, header, first, self.work)
            self.tables.put(batch, table)
        return table
