"""Look up offsets by timestamp: the first record at or after a time, and the newest record (ListOffsets)."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from odradek.protocol.batch import (
    BATCH_LENGTH_MIN,
    HEADER_BYTES,
    LEADER_EPOCH_AT,
    LENGTH_OVERHEAD,
    MAX_TIMESTAMP_AT,
    iter_records,
)
from odradek.protocol.errors import ErrorCode, Malformed, Refusal
from odradek.storage.batches.validation import RECORD_BYTES_MAX
from odradek.storage.segment.lookup import load_indexes

if TYPE_CHECKING:
    from collections.abc import Generator

    from odradek.protocol.batch import Record
    from odradek.protocol.schema import Buffer
    from odradek.storage.disk.port import Disk
    from odradek.storage.segment.lookup import Piece
    from odradek.storage.segment.segment import Segment
    from odradek.storage.segment.segments import Segments

SEARCH_BYTES = 256 * 1024
"""Bytes per read of a search. A search starts at an index entry and mostly ends within one index interval."""

TimestampAndOffset = tuple[int, int, int]
"""Timestamp (ms), offset and leader epoch of a record."""
_LENGTH = Struct(">i")
_TIMESTAMP = Struct(">q")


def first_at_or_after(
    segments: Segments, disk: Disk, timestamp: int, start_offset: int, *, interval: int
) -> Generator[Piece, Buffer, TimestampAndOffset | None]:
    """Return the first record from `start_offset` on with a timestamp of at least `timestamp` (ms), or None.

    Compressed batches are decompressed: the result is exact to the record.
    """
    for segment in segments.from_offset(start_offset):
        if segment.max_timestamp < timestamp:
            continue
        if segment.time_index is None or segment.offset_index is None:
            yield from load_indexes(segment, disk, interval)
            segments.note_index_use(segment)
        assert segment.time_index is not None
        assert segment.offset_index is not None
        from_offset = max(segment.time_index.offset_for(timestamp), start_offset)
        position, _ = segment.offset_index.position_for(from_offset)
        record = yield from _search(segment, position, timestamp, start_offset)
        if record is not None:
            return record
    return None


def newest(segments: Segments, disk: Disk, *, interval: int) -> Generator[Piece, Buffer, TimestampAndOffset | None]:
    """Return the first record with the largest timestamp of the log; None if no record has a timestamp."""
    segment = max(segments, key=lambda segment: segment.max_timestamp)
    if segment.max_timestamp < 0:
        return None
    if segment.offset_index is None:
        yield from load_indexes(segment, disk, interval)
        segments.note_index_use(segment)
    assert segment.offset_index is not None
    position, _ = segment.offset_index.position_for(segment.offset_of_max_timestamp)
    return (yield from _search(segment, position, segment.max_timestamp, segment.base_offset))


def _search(
    segment: Segment, position: int, timestamp: int, start_offset: int
) -> Generator[Piece, Buffer, TimestampAndOffset | None]:
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
                batch: Buffer = memoryview(data)[at : at + size]
                if len(batch) < size:
                    batch = yield segment.file, position + at, size
                record = _record(batch, timestamp, start_offset)
                if record is not None:
                    (epoch,) = _LENGTH.unpack_from(data, at + LEADER_EPOCH_AT)
                    return record.timestamp, record.offset, epoch
            at += size
        position += at
    return None


def _record(batch: Buffer, timestamp: int, start_offset: int) -> Record | None:
    try:
        for record in iter_records(batch, max_decompressed_bytes=RECORD_BYTES_MAX):
            if record.timestamp >= timestamp and record.offset >= start_offset:
                return record
    except Malformed as error:
        raise Refusal(ErrorCode.CORRUPT_MESSAGE, f"a batch of the log cannot be decoded: {error}") from error
    return None
