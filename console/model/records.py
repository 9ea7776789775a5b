"""A page of the records of a topic: the newest ones, those around an offset or a time, or those with a key."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from odradek.client.admin.offsets import fetch_offsets
from odradek.client.errors import ClientError, InvalidArgument, NotFound, ProtocolError
from odradek.client.network.fan_out import FanOut
from odradek.client.network.metadata import TopicPartition
from odradek.console.model.partition_log import BYTES_MAX, LogPage, PartitionReader, read_bounds
from odradek.console.model.parts import Part, read_part
from odradek.console.model.record_cursor import PARTITIONS_MAX, format_cursor, newest, oldest, positions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from odradek.client.network.cluster import Cluster
    from odradek.client.network.metadata import Topic
    from odradek.console.model.log_record import LogRecord
    from odradek.console.model.memory_limit import PageMemory
    from odradek.console.model.partition_log import Bounds

RECORDS_PER_PAGE: Final = 50
SEARCH_BYTES_MIN: Final = 2 * 2**20
"""Bytes that a search reads from each partition at least."""
READS_MAX: Final = 4
"""Maximum partitions that one page reads at the same time."""


@dataclass(frozen=True, slots=True)
class RecordQuery:
    """The records that a page shows: the newest, or those around a position.

    At most one of `before`, `start`, `time_ms`, `older` and `newer` is set.

    Attributes:
        partition: Index of the partition. None: all partitions.
        before: Show the records before this offset.
        start: Show the records from this offset on.
        time_ms: Show the records from this time on, in ms since 1970.
        key: Show only records with this key.
        markers: Show the markers of transactions, too.
        older: Show the records before these offsets of partitions, and the newest of other partitions.
        newer: Show the records from these offsets of partitions on.
    """

    partition: int | None = None
    before: int | None = None
    start: int | None = None
    time_ms: int | None = None
    key: bytes | None = None
    markers: bool = False
    older: Mapping[int, int] | None = None
    newer: Mapping[int, int] | None = None

    def matches(self, row: LogRecord) -> bool:
        """Return True if the page shows this record."""
        if row.problem:
            return True
        if row.control is not None:
            return self.markers and self.key is None
        return self.key is None or row.key == self.key

    @property
    def forward(self) -> bool:
        """Return True if the records follow a position."""
        return self.start is not None or self.time_ms is not None or self.newer is not None

    @property
    def positions(self) -> Mapping[int, int]:
        """Return the offsets of partitions that the address of the page has."""
        found = self.newer if self.older is None else self.older
        return {} if found is None else found


@dataclass(frozen=True, slots=True)
class RecordsPage:
    """Content of a page of records.

    Attributes:
        partitions: Number of partitions of the topic.
        rows: The records: the newest first.
        pages: What was read of each partition, or the reason why it was not read.
        skipped: Partitions that were not read, because there are more than PARTITIONS_MAX.
        forward: The records follow a position. False: they are the newest ones that match.
        older: Position of the page with older records of several partitions. Empty if there are none.
        newer: Position of the page with newer records of several partitions. Empty if there are none.
    """

    partitions: int
    rows: list[LogRecord]
    pages: Mapping[int, Part[LogPage]]
    skipped: int
    forward: bool
    older: str = ""
    newer: str = ""

    @property
    def complete(self) -> bool:
        """Return True if no partition has offsets that were left out because of the bytes of a page."""
        return all(part.value is None or part.value.complete for part in self.pages.values())

    @property
    def only(self) -> LogPage | None:
        """Return what was read if the page shows one partition."""
        return next(iter(self.pages.values())).value if len(self.pages) == 1 else None


async def read_records(cluster: Cluster, name: str, query: RecordQuery, memory: PageMemory) -> RecordsPage:
    """Read a page of records. Each reading of a partition reserves memory, and keeps that of its records.

    Raises:
        ClientError: The topic or the partition does not exist, or the positions are not those of its partitions.
        MemoryBusy: Other pages hold the memory.
    """
    topic = await cluster.topic(name, refresh=True)
    if query.partition is None:
        indexes: Sequence[int] = list(topic.partitions)[:PARTITIONS_MAX]
    else:
        indexes = [topic.partition(query.partition).index]
    if not query.positions.keys() <= set(indexes):
        raise InvalidArgument("the position in the address has other partitions", "show the newest records")
    bytes_max = max(SEARCH_BYTES_MIN, BYTES_MAX // max(1, len(indexes)))
    running = asyncio.Semaphore(READS_MAX)

    bounds = await read_bounds(cluster, topic, indexes)
    starts: Mapping[int, Part[int]] = {}
    if query.time_ms is not None:
        starts = await _read_starts(cluster, topic, indexes, query.time_ms)

    async def read(index: int) -> Part[LogPage]:
        found, at_time = bounds[index].value, starts.get(index, Part(-1))
        if found is None or at_time.value is None:
            return Part(error=bounds[index].error or at_time.error)
        reader = PartitionReader(cluster, topic, TopicPartition(name, index), found, bytes_max)
        reserved = reader.memory_bytes_max(RECORDS_PER_PAGE)
        async with running:
            await memory.reserve(reserved)
            part = await read_part(read_partition(reader, found, index, query, at_time.value))
            kept = 0 if part.value is None else sum(row.memory_bytes for row in part.value.rows)
            memory.release(max(0, reserved - kept))
        return part

    try:
        async with asyncio.TaskGroup() as group:
            readings = {index: group.create_task(read(index)) for index in indexes}
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    pages = {index: reading.result() for index, reading in readings.items()}
    skipped = 0 if query.partition is not None else len(topic.partitions) - len(indexes)
    return _page(len(topic.partitions), query, pages, skipped)


async def _read_starts(cluster: Cluster, topic: Topic, indexes: Sequence[int], time_ms: int) -> dict[int, Part[int]]:
    """Return the offset of the first record from a time on by partition, or the reason why it is missing.

    The offset is -1 if there is no such record.
    """
    fan_out = FanOut(cluster, tolerant=True)
    selected = replace(topic, partitions={index: topic.partitions[index] for index in indexes})
    offsets = await fetch_offsets(fan_out, [selected], time_ms)
    starts: dict[int, Part[int]] = {}
    for index, partition in selected.partitions.items():
        leader = partition.leader
        reason = fan_out.unreachable.get(leader, f"broker {leader} did not return its offset at this time")
        found = offsets.get((topic.name, index))
        starts[index] = Part(error=reason) if found is None else Part(found)
    return starts


def _page(partitions: int, query: RecordQuery, parts: Mapping[int, Part[LogPage]], skipped: int) -> RecordsPage:
    """Select the records of a page from those of its partitions, and the positions of the pages around it."""
    pages = {index: part.value for index, part in parts.items() if part.value is not None}
    select = oldest if query.forward else newest
    taken = select(pages, RECORDS_PER_PAGE, strict=query.key is None)
    older, newer = positions(pages, taken, forward=query.forward)
    rows: list[LogRecord] = []
    for index, page in pages.items():
        rows += page.rows[: taken[index]] if query.forward else page.rows[len(page.rows) - taken[index] :]
    if len(parts) > 1:
        rows.sort(key=lambda row: row.timestamp_ms)
    has_older = any(older[index] > page.bounds.start for index, page in pages.items())
    has_newer = any(newer[index] < page.bounds.high for index, page in pages.items())
    known = {index: offset for index, offset in query.positions.items() if index not in pages}
    return RecordsPage(
        partitions,
        rows[::-1],
        parts,
        skipped,
        query.forward,
        format_cursor(known | older) if has_older else "",
        format_cursor(known | newer) if has_newer else "",
    )


async def read_partition(
    reader: PartitionReader, bounds: Bounds, index: int, query: RecordQuery, at_time: int
) -> LogPage:
    """Read the records of one partition. Raise ClientError if its leader does not return them.

    `at_time` is the offset of the first record from the time of the query on, or -1 if there is none.
    """
    start = query.start if query.newer is None else query.newer.get(index, bounds.high)
    if query.time_ms is not None:
        start = at_time if at_time >= 0 else bounds.high
    if start is not None:
        return await reader.forward(start, RECORDS_PER_PAGE, query.matches)
    before = query.before if query.older is None else query.older.get(index)
    return await reader.backward(bounds.high if before is None else before, RECORDS_PER_PAGE, query.matches)


async def read_record(cluster: Cluster, name: str, index: int, offset: int, memory: PageMemory) -> LogRecord:
    """Read one record, which may take the memory that the reading reserves.

    Raises:
        NotFound: The offset has no record.
        ClientError: The leader of the partition does not return the record.
        MemoryBusy: Other pages hold the memory.
    """
    topic = await cluster.topic(name, refresh=True)
    key = TopicPartition(name, topic.partition(index).index)
    bounds = (await read_bounds(cluster, topic, [index]))[index]
    if bounds.value is None:
        raise ClientError(f"{key} was not read: {bounds.error}", "load the page again")
    reader = PartitionReader(cluster, topic, key, bounds.value)
    await memory.reserve(reader.memory_bytes_max(1))
    page = await reader.forward(offset, 1, lambda row: row.offset >= offset)
    if page.rows and page.rows[0].problem:
        raise ProtocolError(f"{key}, at offset {page.rows[0].offset}: {page.rows[0].problem}")
    if not page.rows or page.rows[0].offset != offset:
        raise NotFound(
            f"{key} has no record at offset {offset}",
            "the log start offset has passed it, compaction has removed it, or it is not written yet",
        )
    return page.rows[0]


def parse_key(text: str) -> bytes | None:
    """Return the bytes of a key: text, or hexadecimal digits after 0x. Return None for an empty text.

    Raise InvalidArgument if the digits are malformed.
    """
    if not text:
        return None
    if not text.startswith("0x"):
        return text.encode(errors="replace")
    try:
        return bytes.fromhex(text.removeprefix("0x"))
    except ValueError:
        raise InvalidArgument(f"the key {text} has other characters than hexadecimal digits after 0x") from None


def parse_time(text: str) -> int | None:
    """Return ms since 1970 of a time in ISO 8601, in UTC without an offset, or of a number. Return None if it is empty.

    Raise InvalidArgument if the text is neither.
    """
    given = text.strip()
    if not given:
        return None
    if given.isascii() and given.isdecimal():
        return int(given[:15])
    try:
        found = datetime.fromisoformat(given)
    except ValueError:
        raise InvalidArgument(f"the time {given} is not of the form 2026-01-31 12:00:00") from None
    found = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    return max(0, int(found.timestamp() * 1000))
