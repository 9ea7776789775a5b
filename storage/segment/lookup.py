"""Find batches in segments by generators that request pieces of files and receive their bytes.

The caller of a generator decides how the pieces are read: `resume` suspends only for pieces that are not in the page
cache, `run_now` waits for the disk. A generator requests a pause where a segment has too few index entries.
"""

from __future__ import annotations

from asyncio import sleep
from struct import Struct
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar, cast

from odradek.protocol.batch import (
    BATCH_LENGTH_MIN,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    MAGIC,
    MAX_TIMESTAMP_AT,
    NO_TIMESTAMP,
)
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.storage.batches.scan import SCAN_BYTES
from odradek.storage.files import names
from odradek.storage.segment.index import INDEX_INTERVAL_BYTES_MAX, CorruptIndex, OffsetIndex, TimeIndex

if TYPE_CHECKING:
    from collections.abc import Generator

    from odradek.protocol.schema import Buffer
    from odradek.storage.disk.port import Disk, File
    from odradek.storage.segment.segment import Segment

T = TypeVar("T")
Piece = tuple["File", int, int]
"""Requested bytes: file, position, size."""
Step: TypeAlias = Piece | None
"""Request of a generator: a piece, or None for a pause. A caller that cannot pause continues immediately."""

_TIMESTAMP = Struct(">q")
_EXTENT = Struct(">qiibIhi")  # base offset, length, leader epoch, magic, checksum, attributes, last offset delta
EXTENT_BYTES = _EXTENT.size
"""Bytes at the beginning of a batch that determine its size and its offsets."""
WINDOWS_BEFORE_PAUSE: Final = 2
"""Windows of a segment that one look-up scans before its first pause. A pause follows each further window.

A look-up needs at most two windows if the index has an entry per `index.interval.bytes`. It needs more if the segment
was written with a larger interval, or by Kafka, which adds at most one entry per append.
"""


def run_now(reading: Generator[Step, Buffer, T]) -> T:
    """Run the generator to its end. Wait for the disk. Only start-up, truncation and tools use it."""
    try:
        step = next(reading)
        while True:
            step = reading.send(step[0].read(step[1], step[2]) if step is not None else b"")
    except StopIteration as stop:
        return cast("T", stop.value)


async def resume(reading: Generator[Step, Buffer, T], step: Step) -> T:
    """Run a generator that has requested `step` to its end.

    Suspend for pieces that are not in the page cache, and for pauses.
    """
    while True:
        data = await _supply(step)
        try:
            step = reading.send(data)
        except StopIteration as stop:
            return cast("T", stop.value)


async def _supply(step: Step) -> Buffer:
    """Return the bytes of a piece; no bytes after a pause."""
    if step is None:
        await sleep(0)
        return b""
    file, position, size = step
    data = file.read_warm(position, size)
    return data if data is not None else await file.read_cold(position, size)


def locate(
    segment: Segment, disk: Disk, offset: int, end: int, *, interval: int
) -> Generator[Step, Buffer, tuple[int, tuple[int, int, int] | None] | None]:
    """Return the position of the first batch that ends at or after `offset`, and its `batch_extent` if it was read.

    Return None if all batches of the segment end before `offset`. `end` bounds the search, in bytes of the log file.
    """
    recent = segment.recent_positions.get(offset)
    if recent is not None:
        return recent, None
    if segment.offset_index is None:
        yield from load_indexes(segment, disk, interval)
    assert segment.offset_index is not None
    position, exact = segment.offset_index.position_for(offset)
    if exact:
        return position, None
    window, window_at, windows = memoryview(b""), position, 0
    window_bytes = min(interval, INDEX_INTERVAL_BYTES_MAX) + HEADER_BYTES
    while end - position >= HEADER_BYTES:
        if position + EXTENT_BYTES > window_at + len(window):
            windows += 1
            if windows > WINDOWS_BEFORE_PAUSE:
                yield None
            data = yield segment.file, position, min(window_bytes, end - position)
            window_bytes = INDEX_INTERVAL_BYTES_MAX  # a small interval would need many more reads and pauses
            window, window_at = memoryview(data), position
        extent = batch_extent(window, position - window_at, segment, position)
        if extent[2] >= offset:
            return position, extent
        position += extent[1]
    return None


def batch_extent(buffer: Buffer, at: int, segment: Segment, position: int) -> tuple[int, int, int]:
    """Return (base offset, size, last offset) of the batch that begins at index `at` of the buffer.

    `position` is the position of the batch in the log file of the segment.

    Raises:
        Refusal: CORRUPT_MESSAGE if no batch begins there.
    """
    if len(buffer) - at < EXTENT_BYTES:
        raise _damaged(segment, position)
    base_offset, length, _, magic, _, _, delta = _EXTENT.unpack_from(buffer, at)
    if length < BATCH_LENGTH_MIN or magic != MAGIC or delta < 0 or base_offset < segment.base_offset:
        raise _damaged(segment, position)
    return base_offset, length + LENGTH_OVERHEAD, base_offset + delta


def _damaged(segment: Segment, position: int) -> Refusal:
    return Refusal(
        ErrorCode.CORRUPT_MESSAGE, f"{segment.path(names.LOG_SUFFIX)}: no record batch begins at byte {position}"
    )


def load_indexes(segment: Segment, disk: Disk, interval: int) -> Generator[Step, Buffer, None]:
    """Load the indexes of a sealed segment from their files. If a file is damaged, rebuild both from the log file."""
    contents = []
    for suffix in (names.OFFSET_INDEX_SUFFIX, names.TIME_INDEX_SUFFIX):
        file = disk.open(segment.path(suffix), create=True)
        try:
            contents.append((yield file, 0, file.size))
        finally:
            file.close()
    try:
        segment.load_indexes(*contents)
    except CorruptIndex:
        yield from _rebuild(segment, interval)


def _rebuild(segment: Segment, interval: int) -> Generator[Step, Buffer, None]:
    interval = min(interval, INDEX_INTERVAL_BYTES_MAX)
    offsets, times = OffsetIndex(segment.base_offset), TimeIndex(segment.base_offset)
    newest, newest_offset, unindexed = NO_TIMESTAMP, segment.base_offset, 0
    position, end = 0, segment.size
    while end - position >= HEADER_BYTES:
        if position:
            yield None
        data = yield segment.file, position, min(SCAN_BYTES, end - position)
        if len(data) < HEADER_BYTES:  # the log was truncated during a pause
            raise _damaged(segment, position)
        at = 0
        while len(data) - at >= HEADER_BYTES:
            base_offset, size, last_offset = batch_extent(data, at, segment, position + at)
            (max_timestamp,) = _TIMESTAMP.unpack_from(data, at + MAX_TIMESTAMP_AT)
            if max_timestamp > newest:
                newest, newest_offset = max_timestamp, last_offset
            if unindexed > interval:
                offsets.append(last_offset, position + at, base_offset)
                times.maybe_append(newest, newest_offset)
                unindexed = 0
            unindexed += size
            at += size
        position += at
    times.maybe_append(newest, newest_offset)
    if segment.offset_index is None:  # otherwise a truncation during a pause has loaded the indexes that it needs
        segment.replace_indexes(offsets, times)
