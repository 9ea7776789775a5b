"""Timestamps of the records of large batches, for look-ups by timestamp. Each batch is decoded once, in slices.

A look-up decodes the first batch whose header has a large enough timestamp. By default the broker trusts the header of
a produced batch, so a client can store batches whose decoding is expensive, and whose headers promise timestamps that
no record has. Without a limit, each look-up would decode them again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from odradek.protocol.errors import Malformed
from odradek.protocol.primitives import INT64_MAX, INT64_MIN
from odradek.protocol.record import scan_records
from odradek.storage.batches.record_checks import INLINE_BYTES_MAX

if TYPE_CHECKING:
    from odradek.protocol.batch import BatchHeader
    from odradek.protocol.schema import Buffer
    from odradek.storage.batches.work import SlicedWork, WorkSlice

POINTS_MAX = 8_192
"""Maximum points of a table: 16 bytes each in lists of integers that need up to 64, so about 1 MiB per table.

A batch has one point per new largest timestamp. Producers write a batch within `linger.ms`, which has fewer
milliseconds than that. Beyond the limit, pairs of points are merged.
"""
TABLES_MAX = 16
"""Maximum tables per broker. With POINTS_MAX, they hold at most 16 MiB."""
TABLE_RECORDS_MIN = 400
"""Records from which on a batch gets a table. Smaller batches are decoded by each look-up (less than 1 ms)."""


class BatchId(NamedTuple):
    """Identity of a stored batch. The checksum distinguishes batches that replace each other at a position."""

    directory: str
    base_offset: int
    checksum: int
    start_offset: int
    """First offset of the batch that counts: the log start offset can lie within the batch."""


class TimestampTable:
    """The records of one batch that have a larger timestamp than all records before them: timestamps and offsets.

    The first record with a timestamp of at least t is always one of them.
    """

    def __init__(self) -> None:
        self._timestamps: list[int] = []
        self._offsets: list[int] = []

    def __len__(self) -> int:
        return len(self._timestamps)

    def add(self, timestamp: int, offset: int) -> None:
        """Add the next record of the batch."""
        timestamps, offsets = self._timestamps, self._offsets
        if timestamps and timestamp <= timestamps[-1]:
            return
        if len(timestamps) == POINTS_MAX:
            # A merged point has the offset of its first record and the timestamp of its last one. A look-up then finds
            # an earlier record than the exact one, so a consumer that starts there misses no record.
            del timestamps[0::2]
            del offsets[1::2]
        timestamps.append(timestamp)
        offsets.append(offset)

    def find(self, timestamp: int) -> tuple[int, int] | None:
        """Return (timestamp, offset) of the first record with at least `timestamp`, or None if there is none."""
        index = bisect_left(self._timestamps, timestamp)
        return (self._timestamps[index], self._offsets[index]) if index < len(self._timestamps) else None


class TimestampTables:
    """The most recently used tables of one broker."""

    def __init__(self) -> None:
        self._tables: OrderedDict[BatchId, TimestampTable] = OrderedDict()

    def __len__(self) -> int:
        return len(self._tables)

    def get(self, batch: BatchId) -> TimestampTable | None:
        """Return the table of a batch, or None if it has to be made."""
        table = self._tables.get(batch)
        if table is not None:
            self._tables.move_to_end(batch)
        return table

    def put(self, batch: BatchId, table: TimestampTable) -> None:
        """Keep the table of a batch, in place of the table that was not used for the longest time."""
        self._tables[batch] = table
        if len(self._tables) > TABLES_MAX:
            self._tables.popitem(last=False)


def is_large(header: BatchHeader) -> bool:
    """Return True if the batch is too expensive for each look-up to decode it."""
    return header.record_count > TABLE_RECORDS_MIN or header.size > INLINE_BYTES_MAX


def make_table(body: Buffer, header: BatchHeader, start_offset: int, work: WorkSlice) -> SlicedWork[TimestampTable]:
    """Return the table of the decompressed records from `start_offset` on. Raise Malformed if they are damaged."""
    table = TimestampTable()
    append_time = header.max_timestamp if header.timestamp_type else None
    for record in scan_records(body, header.record_count):
        if work.spend():
            yield None
        if record is None:
            continue
        timestamp = header.base_timestamp + record[0] if append_time is None else append_time
        if not INT64_MIN <= timestamp <= INT64_MAX:
            raise Malformed(f"timestamp {timestamp} of a record exceeds 64 bits")
        offset = header.base_offset + record[1]
        if offset >= start_offset:
            table.add(timestamp, offset)
    return table
