"""Reading from a log without ever making the event loop wait.

A read is a generator that asks for pieces of files and is given their bytes. Run with warm reads it is done on the spot;
at the first piece that is not in memory it is handed out as a `Cold` read, which goes on with reads in threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

from odradek.protocol.batch import BATCH_LENGTH_MIN, HEADER_BYTES, LENGTH_OVERHEAD, MAGIC, MAX_TIMESTAMP_AT
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.storage.files import names
from odradek.storage.segment.index import NO_TIMESTAMP, CorruptIndex, OffsetIndex, TimeIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from odradek.storage.disk.port import Buffer, Disk, File
    from odradek.storage.segment.segment import Segment
    from odradek.storage.segment.segments import Segments

T = TypeVar("T")
Piece = tuple["File", int, int]  # file, position, size

SCAN_BYTES = 1024 * 1024
_TIMESTAMP = Struct(">q")
_WALK = Struct(">qiibIhi")  # base offset, length, leader epoch, magic, checksum, attributes, last offset delta


class ReadResult(NamedTuple):
    """`records` begins with a whole batch, may end inside of one, and is empty when there is nothing to read.

    `segment` and `position` say where it lies; they are what `aborted_transactions` starts from. `log` are the segments that there
    were from there on when the read began, where it took so long that they may have been replaced since.
    """

    records: Buffer
    fetch_offset: int
    segment: Segment | None = None
    position: int = 0
    log: Sequence[Segment] = ()


class Hold:
    """While somebody has it, files that leave the log stay open and on the disk: it may be at work with them."""

    __slots__ = ("__weakref__",)


class ColdRead:
    """A read that needs the device. `resolve` may be awaited once."""

    def __init__(self, reading: Generator[Piece, Buffer, ReadResult], piece: Piece) -> None:
        self._reading = reading
        self._piece = piece
        self.check: Callable[[], None] = _no_check
        self.hold: Hold | None = None
        self.log: Sequence[Segment] = ()

    async def resolve(self) -> ReadResult:
        """Raises what the read raises: Refusal (also when the log was cut meanwhile), OSError."""
        try:
            return (await _finish(self._reading, self._piece))._replace(log=self.log)
        finally:
            self.hold = None
            self.check()  # also instead of what a read of bytes that were cut away has stumbled over


def _no_check() -> None:
    pass


def start(reading: Generator[Piece, Buffer, ReadResult]) -> ReadResult | ColdRead:
    """Run as far as memory goes: the result, or the rest of the read."""
    try:
        piece = next(reading)
        while True:
            data = piece[0].read_warm(piece[1], piece[2])
            if data is None:
                return ColdRead(reading, piece)
            piece = reading.send(data)
    except StopIteration as stop:
        return cast("ReadResult", stop.value)


def run_now(reading: Generator[Piece, Buffer, T]) -> T:
    """Run to the end with reads that may wait: start-up, truncation, tools."""
    try:
        file, position, size = next(reading)
        while True:
            file, position, size = reading.send(file.read(position, size))
    except StopIteration as stop:
        return cast("T", stop.value)


async def run(reading: Generator[Piece, Buffer, T]) -> T:
    """Run to the end; suspends only where the device is needed."""
    try:
        piece = next(reading)
    except StopIteration as stop:
        return cast("T", stop.value)
    return await _finish(reading, piece)


async def _finish(reading: Generator[Piece, Buffer, T], piece: Piece) -> T:
    while True:
        file, position, size = piece
        data = file.read_warm(position, size)
        if data is None:
            data = await file.read_cold(position, size)
        try:
            piece = reading.send(data)
        except StopIteration as stop:
            return cast("T", stop.value)


@dataclass(slots=True, frozen=True)
class Bound:
    """How far a read may go: offsets below `limit`; `log_end` is the end of the log when the read began."""

    limit: int
    log_end: int


def read_batches(
    segments: Segments, disk: Disk, offset: int, bound: Bound, *, max_bytes: int, min_one_batch: bool, interval: int
) -> Generator[Piece, Buffer, ReadResult]:
    """Batches from the one that holds `offset` on, out of one segment, at most `max_bytes` and below the bound.

    A first batch larger than `max_bytes` comes whole with `min_one_batch`, otherwise nothing does. Behind a gap that
    compaction has left the read goes on in the next segment.
    """
    if offset >= bound.limit:
        return ReadResult(b"", offset)
    for segment in segments.from_offset(offset):
        end = segment.size
        found = yield from locate(segment, disk, offset, end, interval=interval)
        if segment is not segments.active:
            segments.note_index_use(segment)
        if found is None:
            continue
        position, known_header = found
        data = yield segment.file, position, min(max_bytes, end - position)
        first = known_header or (_walk(data, 0, segment, position) if len(data) >= _WALK.size else None)
        if first is None:
            head = yield segment.file, position, min(HEADER_BYTES, end - position)
            first = _walk(head, 0, segment, position)
        first_offset, first_size, _ = first
        if first_offset >= bound.limit:
            return ReadResult(b"", offset)
        if first_size > len(data):
            if not min_one_batch:
                return ReadResult(b"", offset)
            data = yield segment.file, position, first_size
        if bound.limit < bound.log_end:
            data = _cut(data, segment, position, first_size, bound.limit)
        return ReadResult(data, offset, segment, position)
    return ReadResult(b"", offset)


def locate(
    segment: Segment, disk: Disk, offset: int, end: int, *, interval: int
) -> Generator[Piece, Buffer, tuple[int, tuple[int, int, int] | None] | None]:
    """Position of the first batch of the segment that ends at or behind `offset`, with its walk entry if it was looked at.

    None when all batches end before it.
    """
    recent = segment.recent.get(offset)
    if recent is not None:
        return recent, None
    if segment.offset_index is None:
        yield from load_indexes(segment, disk, interval)
    assert segment.offset_index is not None
    position, exact = segment.offset_index.position_for(offset)
    if exact:
        return position, None
    window, window_at = memoryview(b""), position
    while end - position >= HEADER_BYTES:
        if position + _WALK.size > window_at + len(window):
            data = yield segment.file, position, min(interval + HEADER_BYTES, end - position)
            window, window_at = memoryview(data), position
        entry = _walk(window, position - window_at, segment, position)
        if entry[2] >= offset:
            return position, entry
        position += entry[1]
    return None


def _walk(buffer: Buffer, at: int, segment: Segment, position: int) -> tuple[int, int, int]:
    """(base offset, size, last offset) of the batch at `at`."""
    if len(buffer) - at < _WALK.size:
        raise _damaged(segment, position)
    base_offset, length, _, magic, _, _, delta = _WALK.unpack_from(buffer, at)
    if length < BATCH_LENGTH_MIN or magic != MAGIC or delta < 0 or base_offset < segment.base_offset:
        raise _damaged(segment, position)
    return base_offset, length + LENGTH_OVERHEAD, base_offset + delta


def _damaged(segment: Segment, position: int) -> Refusal:
    return Refusal(
        ErrorCode.CORRUPT_MESSAGE, f"{segment.path(names.LOG_SUFFIX)}: no batch begins at byte {position} as it should"
    )


def _cut(data: Buffer, segment: Segment, position: int, first_size: int, limit: int) -> Buffer:
    """Leave out batches from `limit` on. The index leads near it, so this walks over one index interval at most."""
    at = first_size
    if segment.offset_index is not None:  # it may have been let go of while a cold read was under way
        at = max(segment.offset_index.position_for(limit)[0] - position, first_size)
    view = memoryview(data)
    while at + _WALK.size <= len(view):
        base_offset, size, _ = _walk(view, at, segment, position + at)
        if base_offset >= limit:
            return view[:at]
        at += size
    return data


def load_indexes(segment: Segment, disk: Disk, interval: int) -> Generator[Piece, Buffer, None]:
    """Bring the indexes of a sealed segment into memory, from their files or, where those are damaged, from the log."""
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


def _rebuild(segment: Segment, interval: int) -> Generator[Piece, Buffer, None]:
    offsets, times = OffsetIndex(segment.base_offset), TimeIndex(segment.base_offset)
    newest, newest_offset, unindexed = NO_TIMESTAMP, segment.base_offset, 0
    position, end = 0, segment.size
    while end - position >= HEADER_BYTES:
        data = yield segment.file, position, min(SCAN_BYTES, end - position)
        at = 0
        while len(data) - at >= HEADER_BYTES:
            base_offset, size, last_offset = _walk(data, at, segment, position + at)
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
    segment.offset_index, segment.time_index = offsets, times
    segment.write_indexes()
