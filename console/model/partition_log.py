"""Reading of a partition with the state of each record's transaction, forward or backward, with bounded bytes.

Below the last stable offset, a read_committed fetch lists the aborted transactions. From there on, the markers that
follow a record decide. A transaction without a marker up to the high watermark is open.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from odradek.client.admin.offsets import EARLIEST, LATEST, IsolationLevel, fetch_offsets
from odradek.client.consumer.decode import checked_batches
from odradek.client.errors import ProtocolError, check, refused
from odradek.client.network.fan_out import FanOut
from odradek.console.model.log_record import HEADERS_DECODED_MAX, OBJECT_BYTES, LogRecord, TransactionState
from odradek.console.model.parts import Part
from odradek.protocol.batch import ControlType, control_type, records_of
from odradek.protocol.errors import ErrorCode, Malformed
from odradek.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.record import RECORD_BYTES_MIN
from odradek.protocol.special_values import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from odradek.client.network.cluster import Cluster
    from odradek.client.network.metadata import Topic, TopicPartition
    from odradek.protocol.batch import BatchHeader
    from odradek.protocol.messages.fetch import PartitionData

FETCH_BYTES: Final = 2 * 2**20
"""Maximum size of a Fetch response in bytes, unless its first batch alone is larger."""
BYTES_MAX: Final = 16 * 2**20
"""Maximum bytes that one page reads from a partition, for its records or for a search."""
MARKER_BYTES_MAX: Final = 4 * 2**20
"""Maximum bytes that are read after the records of a page, for the markers of their transactions."""
BATCH_BYTES_MAX: Final = 32 * 2**20
"""Maximum size of one batch after decompression, in bytes. It bounds the memory that a producer can use up here."""
BATCHES_OF_BUDGET: Final = 4
"""Maximum size of one batch after decompression, in multiples of the bytes that are read from the partition."""
RECORDS_PER_TURN: Final = 2_000
"""Records of a batch that are decoded before other requests of the console have a turn: about 5 ms."""
WINDOW_MIN: Final = 100
WINDOW_MAX: Final = 10_000
"""Offsets of one step of a backward read, at least and at most."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Log start offset, last stable offset and high watermark of a partition."""

    start: int
    stable: int
    high: int


@dataclass(frozen=True, slots=True)
class LogPage:
    """Records of a partition in the order of their offsets.

    Attributes:
        bounds: Offsets of the partition.
        rows: The records.
        first: The first offset that was examined.
        end: The offset before which the examined range ends.
        complete: The range has as many records as requested, or reaches the end of the log.
    """

    bounds: Bounds
    rows: list[LogRecord]
    first: int
    end: int
    complete: bool


class Span(NamedTuple):
    """Offsets that were read: from `first` until before `end`."""

    first: int
    end: int


class PartitionReader:
    """Reads one partition for one page.

    Args:
        cluster: The cluster.
        topic: The topic, as its metadata describe it.
        partition: The partition.
        bounds: Its offsets.
        bytes_max: Maximum bytes that are read, after decompression.
    """

    def __init__(
        self, cluster: Cluster, topic: Topic, partition: TopicPartition, bounds: Bounds, bytes_max: int = BYTES_MAX
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._partition = partition
        self._bounds = bounds
        self._bytes_max = self._bytes_left = bytes_max
        self._batch_bytes_max = min(BATCH_BYTES_MAX, BATCHES_OF_BUDGET * bytes_max)
        self._markers: dict[int, dict[int, bool]] = {}

    def memory_bytes_max(self, count: int) -> int:
        """Return the maximum bytes of memory that a reading of `count` records takes.

        The last batch is in memory twice: decompressed, and as records beside those before it. Not included is the part
        of a batch above FETCH_BYTES before decompression, which the property `max.message.bytes` of the topic bounds.
        """
        records = self._bytes_max + self._batch_bytes_max + count * OBJECT_BYTES * (1 + HEADERS_DECODED_MAX)
        return FETCH_BYTES + self._batch_bytes_max + records

    async def backward(self, end: int, count: int, matches: Callable[[LogRecord], bool]) -> LogPage:
        """Read the last records before `end`.

        The page has at least the records of one batch, whatever its size, so that the next page begins elsewhere.
        """
        bounds = self._bounds
        end = max(bounds.start, min(end, bounds.high))
        first, window = end, max(WINDOW_MIN, 2 * count)
        found: deque[LogRecord] = deque()
        while first > bounds.start and len(found) < count and (self._bytes_left > 0 or first == end):
            if self._bytes_left <= 0:
                window, self._bytes_left = 1, 1
            begin = max(bounds.start, first - window)
            rows: deque[LogRecord] = deque(maxlen=count - len(found))
            span = await self._read(begin, first, partial(_keep, rows, matches), FETCH_BYTES, lowest=bounds.start)
            if span.end < first:
                window = max(1, min(window // 4, first - span.end))
                continue
            found.extendleft(reversed(rows))
            first = found[0].offset if len(found) == count else span.first
            window = min(2 * window, WINDOW_MAX)
        complete = len(found) == count or first <= bounds.start
        return LogPage(bounds, await self._decided(list(found), end), first, end, complete)

    async def forward(self, first: int, count: int, matches: Callable[[LogRecord], bool]) -> LogPage:
        """Read the first records from `first` on."""
        bounds = self._bounds
        first = max(bounds.start, min(first, bounds.high))
        found: list[LogRecord] = []
        end = first
        while end < bounds.high and len(found) < count and self._bytes_left > 0:
            window: list[LogRecord] = []
            limit = count - len(found)
            before = end
            add = partial(_keep_first, window, limit, matches)
            end = (await self._read(end, bounds.high, add, FETCH_BYTES)).end
            found += window
            if len(found) == count:
                end = found[-1].offset + 1
            elif end == before:
                break
        complete = len(found) == count or end >= bounds.high
        return LogPage(bounds, await self._decided(found, end), first, end, complete)

    async def _read(
        self, first: int, end: int, add: Callable[[LogRecord], None], bytes_max: int, *, lowest: int | None = None
    ) -> Span:
        """Pass the records from `first` until before `end` to `add`, and return the offsets that were read.

        They end before `end` if the range has more than `bytes_max` bytes. With `lowest`, the records before `first`
        that are in its batch are passed, too, from `lowest` on.
        """
        position, begin = first, first
        while position < end and bytes_max > 0 and self._bytes_left > 0:
            is_stable = position < self._bounds.stable
            limit = min(end, self._bounds.stable) if is_stable else end
            data = await self._fetch(position, stable=is_stable)
            records = data.records or b""
            bytes_max -= len(records)
            aborted = [(each.first_offset, each.producer_id) for each in data.aborted_transactions or ()]
            following = position
            try:
                for header, batch, is_aborted in checked_batches(records, aborted):
                    if header.base_offset >= end:
                        following = limit
                        break
                    if following > position and self._bytes_left <= 0:
                        break
                    following = header.last_offset + 1
                    if lowest is not None and header.base_offset < begin:
                        begin = max(lowest, header.base_offset)
                    expansion = -header.size
                    for number, row in enumerate(self._rows(header, batch, is_aborted, stable=is_stable), 1):
                        expansion += RECORD_BYTES_MIN + row.content_size
                        if begin <= row.offset < end:
                            add(row)
                        if number % RECORDS_PER_TURN == 0:
                            await asyncio.sleep(0)  # other requests of the console
                    self._bytes_left -= max(0, expansion)
                    await asyncio.sleep(0)
            except Malformed as error:
                raise ProtocolError(f"{self._partition}, at offset {following}: {error}") from error
            self._bytes_left -= len(records)
            position = limit if following == position else following
        return Span(begin, min(position, end))

    def _rows(self, header: BatchHeader, batch: memoryview, is_aborted: bool, *, stable: bool) -> Iterable[LogRecord]:
        """Decode a batch. Remember its markers if they are behind the last stable offset.

        A batch that cannot be decoded, such as one that is too large after decompression, ends with a row that has the
        reason. The records around it can then be read.
        """
        index, append_time = self._partition.partition, bool(header.timestamp_type)
        state = TransactionState.NONE
        if header.is_transactional and not header.is_control:
            state = TransactionState.UNKNOWN
            if stable:
                state = TransactionState.ABORTED if is_aborted else TransactionState.COMMITTED
        try:
            for record in records_of(
                batch, header, max_decompressed_bytes=self._batch_bytes_max, headers_max=HEADERS_DECODED_MAX
            ):
                control = control_type(record.key) if header.is_control else None
                if control in {ControlType.COMMIT, ControlType.ABORT} and not stable:
                    markers = self._markers.setdefault(header.producer_id, {})
                    markers[record.offset] = control is ControlType.COMMIT
                content = record.key, record.value, record.headers
                yield LogRecord(index, record.offset, record.timestamp, append_time, *content, state, control, header)
        except Malformed as error:
            last, content = header.last_offset, (None, None, ())
            yield LogRecord(
                index, last, header.max_timestamp, append_time, *content, state, None, header, problem=str(error)
            )

    async def _decided(self, rows: list[LogRecord], end: int) -> list[LogRecord]:
        """Decide the state of the records behind the last stable offset, by the markers up to the high watermark.

        The markers before `end` are known.
        """
        if all(row.state is not TransactionState.UNKNOWN for row in rows):
            return rows
        reached = end
        if any(self._committed(row) is None for row in rows if row.state is TransactionState.UNKNOWN):
            self._bytes_left = MARKER_BYTES_MAX
            unstable = max(end, self._bounds.stable)
            reached = (await self._read(unstable, self._bounds.high, _ignore, MARKER_BYTES_MAX)).end
        undecided = TransactionState.OPEN if reached >= self._bounds.high else TransactionState.UNKNOWN
        states = {None: undecided, True: TransactionState.COMMITTED, False: TransactionState.ABORTED}
        return [
            replace(row, state=states[self._committed(row)]) if row.state is TransactionState.UNKNOWN else row
            for row in rows
        ]

    def _committed(self, row: LogRecord) -> bool | None:
        """Return True if the next marker of the producer is a commit, None if no marker is known."""
        markers = self._markers.get(row.batch.producer_id, {})
        following = min((offset for offset in markers if offset > row.offset), default=None)
        return None if following is None else markers[following]

    async def _fetch(self, position: int, *, stable: bool) -> PartitionData:
        index = self._partition.partition
        leader = self._topic.partition(index).leader
        if leader == NO_LEADER:
            raise refused(ErrorCode.LEADER_NOT_AVAILABLE, f"reading {self._partition}")
        bytes_max = max(1, min(FETCH_BYTES, self._bytes_left))
        wanted = FetchPartition(partition=index, fetch_offset=position, partition_max_bytes=bytes_max)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=bytes_max,
            isolation_level=IsolationLevel.READ_COMMITTED if stable else IsolationLevel.READ_UNCOMMITTED,
            topics=[FetchTopic(topic=self._topic.name, topic_id=self._topic.topic_id, partitions=[wanted])],
        )
        while True:
            response = await self._cluster.request(leader, request)
            check(response.error_code, f"reading {self._partition}")
            if response.responses:
                break
            # While a quota is exceeded, Kafka's brokers omit the partitions. The deadline of the page ends this.
            await asyncio.sleep(response.throttle_time_ms / 1000)
        data: PartitionData = response.responses[0].partitions[0]
        check(data.error_code, f"reading {self._partition}")
        return data


def _keep(rows: deque[LogRecord], matches: Callable[[LogRecord], bool], row: LogRecord) -> None:
    if matches(row):
        rows.append(row)


def _keep_first(rows: list[LogRecord], limit: int, matches: Callable[[LogRecord], bool], row: LogRecord) -> None:
    if len(rows) < limit and matches(row):
        rows.append(row)


def _ignore(row: LogRecord) -> None:
    """Read a record for its marker only."""


async def read_bounds(cluster: Cluster, topic: Topic, indexes: Sequence[int]) -> dict[int, Part[Bounds]]:
    """Return the offsets of partitions by index, with three requests per leader, or the reason why they are missing."""
    wanted = [replace(topic, partitions={index: topic.partition(index) for index in indexes})]
    fan_out = FanOut(cluster, tolerant=True)
    start, stable, high = await asyncio.gather(
        fetch_offsets(fan_out, wanted, EARLIEST),
        fetch_offsets(fan_out, wanted, LATEST, IsolationLevel.READ_COMMITTED),
        fetch_offsets(fan_out, wanted, LATEST),
    )
    found: dict[int, Part[Bounds]] = {}
    for index in indexes:
        key, leader = (topic.name, index), topic.partition(index).leader
        if key in start and key in stable and key in high:
            found[index] = Part(Bounds(start[key], stable[key], high[key]))
        elif leader == NO_LEADER:
            found[index] = Part(error="the partition has no leader")
        else:
            found[index] = Part(error=fan_out.unreachable.get(leader, f"broker {leader} did not return its offsets"))
    return found
