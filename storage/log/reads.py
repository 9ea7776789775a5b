"""Read batches from a log without blocking the event loop.

A read is a generator that requests pieces of files (`odradek.storage.segment.lookup`). `start` runs it with reads from
the page cache. At the first piece that is not there, or at a pause, the read becomes a `ColdRead`, which reads in
threads.
"""

from __future__ import annotations

from asyncio import sleep
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from odradek.protocol.batch import HEADER_BYTES, iter_batches
from odradek.protocol.errors import ErrorCode, Malformed, Refusal
from odradek.storage.batches.work import WorkSlice
from odradek.storage.log.timestamps import LongWork, TimestampSearch
from odradek.storage.segment.lookup import EXTENT_BYTES, batch_extent, locate, resume

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from odradek.protocol.batch import BatchHeader
    from odradek.protocol.schema import Buffer
    from odradek.storage.config import LogConfig
    from odradek.storage.disk.port import Disk
    from odradek.storage.log.local_log import LocalLog
    from odradek.storage.log.removal import Hold
    from odradek.storage.log.timestamps import LookUps, Search, TimestampAndOffset
    from odradek.storage.segment.lookup import Step
    from odradek.storage.segment.segment import Segment
    from odradek.storage.segment.segments import Segments

DROP_BATCHES_BEFORE_PAUSE: Final = 2_048
"""Batches that a read scans for its limit before a pause, which take about 1 ms.

It scans at most 1,100 batches if the index has an entry per INDEX_INTERVAL_BYTES_MAX.
"""


class ReadResult(NamedTuple):
    """Batches of one read.

    `records` begins with a whole batch and may end within a batch. It is empty if there is nothing to read. `segment`
    and `position` say where it begins; `aborted_transactions` needs them. A cold read sets `segments`: the segments
    from that one on when the read began. Compaction or retention may replace them before the read ends.
    """

    records: Buffer
    fetch_offset: int
    segment: Segment | None = None
    position: int = 0
    segments: Sequence[Segment] = ()


class ColdRead:
    """Read that needs the device, or a pause. `resolve` may be awaited once."""

    def __init__(self, reading: Generator[Step, Buffer, ReadResult], step: Step) -> None:
        self._reading = reading
        self._step = step
        self.check: Callable[[], None] = _no_check
        self.hold: Hold | None = None
        self.segments: Sequence[Segment] = ()

    async def resolve(self) -> ReadResult:
        """Complete the read.

        Raises:
            Refusal: As `PartitionLog.read`; OFFSET_NOT_AVAILABLE if the log was truncated during the read, and
                UNKNOWN_TOPIC_OR_PARTITION if it was closed.
            OSError: A disk operation fails.
        """
        try:
            return (await resume(self._reading, self._step))._replace(segments=self.segments)
        finally:
            self.hold = None
            self.check()  # replaces an error that the read of truncated bytes or closed files has raised


def _no_check() -> None:
    pass


def start(reading: Generator[Step, Buffer, ReadResult]) -> ReadResult | ColdRead:
    """Run the read with pieces from the page cache.

    Return the result, or a ColdRead if a piece is not there or the read requests a pause.
    """
    try:
        step = next(reading)
        while True:
            data = step[0].read_warm(step[1], step[2]) if step is not None else None
            if data is None:
                return ColdRead(reading, step)
            step = reading.send(data)
    except StopIteration as stop:
        return cast("ReadResult", stop.value)


def read_batches(
    segments: Segments,
    disk: Disk,
    offset: int,
    *,
    limit: int,
    log_end: int,
    max_bytes: int,
    min_one_batch: bool,
    interval: int,
) -> Generator[Step, Buffer, ReadResult]:
    """Read batches of one segment, from the one that holds `offset` up to `limit` (exclusive), at most `max_bytes`.

    `log_end` is the log end offset when the read begins. With `min_one_batch`, a first batch larger than `max_bytes` is
    returned whole; otherwise the result is empty then. If compaction has left no batch from `offset` on in its segment,
    the read continues in the next segment.
    """
    if offset >= limit:
        return ReadResult(b"", offset)
    for segment in segments.from_offset(offset):
        end = segment.size
        location = yield from locate(segment, disk, offset, end, interval=interval)
        if segment is not segments.active:
            segments.note_index_use(segment)
        if location is None:
            continue
        position, known_extent = location
        data = yield segment.file, position, min(max_bytes, end - position)
        first = known_extent or (batch_extent(data, 0, segment, position) if len(data) >= EXTENT_BYTES else None)
        if first is None:
            header = yield segment.file, position, min(HEADER_BYTES, end - position)
            first = batch_extent(header, 0, segment, position)
        first_offset, first_size, _ = first
        if first_offset >= limit:
            return ReadResult(b"", offset)
        if first_size > len(data):
            if not min_one_batch:
                return ReadResult(b"", offset)
            data = yield segment.file, position, first_size
        if limit < log_end:
            data = yield from _drop_from_limit(data, segment, position, first_size, limit)
        return ReadResult(data, offset, segment, position)
    return ReadResult(b"", offset)


def _drop_from_limit(
    data: Buffer, segment: Segment, position: int, first_size: int, limit: int
) -> Generator[Step, Buffer, Buffer]:
    """Drop the batches from `limit` on. The scan starts at the last index entry before `limit`.

    The scan pauses where no index entry follows for a long way: the segment was written with a larger interval, or the
    index was unloaded during a cold read.
    """
    at = first_size
    if segment.offset_index is not None:  # None if it was unloaded during a cold read
        at = max(segment.offset_index.position_for(limit)[0] - position, first_size)
    view = memoryview(data)
    work = WorkSlice(DROP_BATCHES_BEFORE_PAUSE)
    while at + EXTENT_BYTES <= len(view):
        base_offset, size, _ = batch_extent(view, at, segment, position + at)
        if base_offset >= limit:
            return view[:at]
        at += size
        if work.spend():
            yield None
    return data


def batch_out_of_range(result: ReadResult | ColdRead, offset: int, limit: int) -> BatchHeader | None:
    """Return the first batch of a read that is out of order, ends below `offset`, or begins at or above `limit`.

    Return None if there is no such batch, or if the read is cold and has no data yet.
    """
    if isinstance(result, ColdRead):
        return None
    expected = None
    with suppress(Malformed):  # The file is damaged; the consumer detects it.
        for header, _ in iter_batches(result.records):
            follows = header.last_offset >= offset if expected is None else header.base_offset >= expected
            if not follows or header.base_offset >= limit:
                return header
            expected = header.last_offset + 1
    return None


class LogReader:
    """Read from the segments of one log. The caller checks the offsets and supplies the log end offset."""

    def __init__(self, local: LocalLog) -> None:
        self._local = local
        self._segments = local.segments
        self._disk = local.disk

    def read(
        self, offset: int, limit: int, log_end: int, *, max_bytes: int, min_one_batch: bool, interval: int
    ) -> ReadResult | ColdRead:
        """Read batches, from the one that holds `offset` up to `limit` (exclusive). See `PartitionLog.read`."""
        if limit == log_end:
            active = self._segments.active
            position = active.recent_positions.get(offset)
            if position is not None:
                size = active.size - position
                if size <= max_bytes and size <= len(active.recent_bytes):
                    return ReadResult(active.recent_bytes[-size:], offset, active, position)
        reading = read_batches(
            self._segments,
            self._disk,
            offset,
            limit=limit,
            log_end=log_end,
            max_bytes=max_bytes,
            min_one_batch=min_one_batch,
            interval=interval,
        )
        result = start(reading)
        if isinstance(result, ColdRead):
            result.check = partial(self._check_unchanged, self._local.truncation.count)
            result.hold = self._local.hold()
            result.segments = self._segments.from_offset(offset)
        return result

    def _check_unchanged(self, count: int) -> None:
        """Raise Refusal if the log was closed, or truncated since `count` truncations: the files have changed."""
        if self._local.closed:
            raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the log was closed during the read")
        if self._local.truncation.count != count:
            # Not OFFSET_OUT_OF_RANGE: the offset may still exist, and that error would make the reader reset its
            # position.
            raise Refusal(ErrorCode.OFFSET_NOT_AVAILABLE, "the log was truncated during the read")

    async def first_at_or_after(
        self, timestamp: int, start_offset: int, config: LogConfig, look_ups: LookUps
    ) -> TimestampAndOffset | None:
        """Return (timestamp, offset, leader epoch) of the first record with a timestamp of at least `timestamp` (ms).

        Only records from `start_offset` on count. Return None if there is none.
        """
        search = self._new_search(config, look_ups)
        return await self._run(search.first_at_or_after(timestamp, start_offset), look_ups)

    async def newest(self, config: LogConfig, look_ups: LookUps) -> TimestampAndOffset | None:
        """Return (timestamp, offset, leader epoch) of the first record with the newest timestamp.

        Return None if no record has a timestamp.
        """
        return await self._run(self._new_search(config, look_ups).newest(), look_ups)

    def _new_search(self, config: LogConfig, look_ups: LookUps) -> TimestampSearch:
        return TimestampSearch(
            self._local.directory,
            self._segments,
            self._disk,
            config.index_interval_bytes,
            config.max_message_bytes,
            look_ups.tables,
        )

    async def _run(self, search: Search, look_ups: LookUps) -> TimestampAndOffset | None:
        """Run a look-up: read pieces, decompress in threads, and let other tasks run at each pause."""
        hold = self._local.hold()
        permitted: LongWork | None = None
        truncations = self._local.truncation.count
        try:
            request = next(search)
            while True:
                result: Any = None
                if isinstance(request, tuple):
                    file, position, size = request
                    result = file.read_warm(position, size)
                    if result is None:
                        result = await file.read_cold(position, size)
                elif isinstance(request, LongWork):
                    if permitted is not None:
                        look_ups.end(permitted.memory_bytes)
                        permitted = None
                    await look_ups.start(request.records, request.memory_bytes)
                    permitted = request
                elif request is None:
                    # Permitted work is limited already. It must not wait for a turn while other work waits for it.
                    await (look_ups.next_turn() if permitted is None else sleep(0))
                else:
                    try:
                        result = await self._disk.in_thread(request)
                    except Malformed as error:
                        request = search.throw(error)
                        continue
                request = search.send(result)
        except StopIteration as stop:
            found: TimestampAndOffset | None = stop.value
            return found
        finally:
            if permitted is not None:
                look_ups.end(permitted.memory_bytes)
            del hold
            self._check_unchanged(truncations)  # replaces the error of a read of truncated bytes or closed files


def aborted_transactions(
    segments: Segments, log_end: int, fetch_offset: int, result: ReadResult
) -> list[tuple[int, int]]:
    """Return (producer id, first offset) of each aborted transaction that may have records in `result`.

    They are in the order of their markers. As in Kafka, some may have no record in the result.
    """
    if not len(result.records):
        return []
    source = result.segment
    assert source is not None
    index = source.offset_index
    upper = index.offset_at_or_after(result.position + len(result.records)) if index is not None else None
    if upper is None:
        upper = segments.end_of(segments.number_for(source.base_offset), log_end)
    with_markers: Sequence[Segment] = segments.from_offset(source.base_offset)
    if with_markers[0] is not source:
        # Compaction has replaced the segment during the read, and possibly those with the markers. The new transaction
        # indexes lack the transactions whose records it has removed.
        with_markers = result.segments[result.segments.index(source) :]
    aborted: list[tuple[int, int]] = []
    for segment in with_markers:
        if segment.txn_index.collect(fetch_offset, upper, aborted):
            break
    return list(dict.fromkeys(aborted))
