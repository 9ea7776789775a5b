"""Values that the audit reads from logs: what each producer wrote to a partition, and the ranges of offsets read.

All of this module is pure.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from odradek.client.consumer.decode import DECOMPRESSED_BYTES_MAX
from odradek.client.consumer.transitions import transitions_of
from odradek.protocol.batch import (
    ControlType,
    control_type,
    iter_records,
    parse_end_txn_marker,
    plain_end_txn_marker,
    verify_crc,
)
from odradek.protocol.errors import Malformed
from odradek.protocol.internal_topics import TRANSACTION_STATE

if TYPE_CHECKING:
    from odradek.client.consumer.transitions import Transition
    from odradek.protocol.batch import BatchHeader

NO_OFFSET: Final = -1
"""Offset that stands for: there is none."""
NO_GAP: Final = -1
NO_TIME: Final = -1


class EventKind(IntEnum):
    """Kind of an event of a producer in a partition. The numbers of the markers are those of control records."""

    DATA = -1
    ABORT = 0
    COMMIT = 1


class Event(NamedTuple):
    """A marker, or the transactional batches of one producer and epoch between two markers of that producer.

    The batches of other producers may lie between them. Times are the maximum timestamps of batches, in ms since 1970.
    """

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    kind: EventKind
    first_offset: int
    last_offset: int
    first_ms: int
    last_ms: int
    batches: int
    coordinator_epoch: int = -1


class LogRange(NamedTuple):
    """Offsets of a partition that the audit has read, and what may be missing between them.

    Attributes:
        topic: Topic.
        partition: Partition index.
        start: First offset that the log can contain.
        end: Offset after the last batch.
        first_gap: First offset below `compacted_below` that no batch covers, or NO_GAP.
        last_gap: Last such offset, or NO_GAP.
        missing: Number of offsets from `compacted_below` on that no batch covers.
        compacted_below: Offset below which compaction may have removed batches; 0 if it never ran.
        judged_below: Offset from which on the batches may be newer than the transitions that were read.
        batches: Number of batches.
        latest_ms: Highest timestamp that a broker has set, or -1. Timestamps of clients are not counted.
        first_marker_ms: Timestamp of the first marker, which its leader has set; -1 if there is no marker.
        defect: Description of a damaged batch at `end`, where the audit stopped, or an empty string.
    """

    topic: str
    partition: int
    start: int
    end: int
    first_gap: int
    last_gap: int
    missing: int
    compacted_below: int
    judged_below: int
    batches: int
    latest_ms: int
    first_marker_ms: int
    defect: str

    @property
    def is_whole(self) -> bool:
        """True if neither retention nor compaction has removed a batch, and no batch is damaged."""
        return self.start == 0 and self.first_gap == NO_GAP and not self.defect

    def may_lack_before(self, offset: int) -> bool:
        """Return True if retention or compaction may have removed batches before `offset`."""
        return self.start > 0 or NO_GAP < self.first_gap < offset

    def may_lack_after(self, offset: int) -> bool:
        """Return True if compaction may have removed batches after `offset`, or if they cannot be read."""
        return self.last_gap > offset or bool(self.defect)


class PartitionScan:
    """Summary of the batches of one partition, which are added in the order of their offsets.

    Args:
        topic: Topic.
        partition: Partition index.
        start: First offset that the log can contain.
        compacted_below: Offset below which compaction may have removed batches.
    """

    def __init__(self, topic: str, partition: int, start: int, compacted_below: int) -> None:
        self.topic = topic
        self.partition = partition
        self._start = self._end = start
        self._compacted_below = compacted_below
        self._first_gap = self._last_gap = NO_GAP
        self._missing = 0
        self._batches = 0
        self._latest_ms = self._first_marker_ms = NO_TIME
        self._defect = ""
        self._open: dict[int, Event] = {}
        self.transitions: list[Transition] = []
        self.events: list[Event] = []

    def add(self, header: BatchHeader, batch: memoryview) -> None:
        """Add the next batch. Raise Malformed if it is damaged."""
        if not verify_crc(batch, 0, header):
            raise Malformed(f"the checksum of the batch at offset {header.base_offset} does not match")
        if header.base_offset < self._end:
            raise Malformed(f"the batch at offset {header.base_offset} follows offset {self._end - 1}")
        if self._end < header.base_offset and self._end < self._compacted_below:
            self._first_gap = self._end if self._first_gap == NO_GAP else self._first_gap
            self._last_gap = header.base_offset - 1
        else:
            self._missing += header.base_offset - self._end
        if header.is_control:
            self._add_control(header, batch)
        elif self.topic == TRANSACTION_STATE:
            self.transitions += transitions_of(self.partition, header, batch)
        elif header.is_transactional and header.record_count:
            self._add_data(header)
        self._end = header.last_offset + 1
        self._batches += 1
        if header.is_control or header.timestamp_type or self.topic == TRANSACTION_STATE:
            self._latest_ms = max(self._latest_ms, header.max_timestamp)

    def skip(self, header: BatchHeader) -> None:
        """Continue after a batch that begins below the first offset: DeleteRecords can move it into a batch."""
        self._end = max(self._end, header.last_offset + 1)

    def damaged(self, defect: str) -> None:
        """Record that the log is damaged after the last batch, so that the rest of it cannot be read."""
        self._defect = defect

    def finish(self, judged_below: int | None = None) -> LogRange:
        """Complete `events`, and return the offsets that were read. `judged_below` is the end by default."""
        self.events += self._open.values()
        self._open.clear()
        return LogRange(
            self.topic,
            self.partition,
            self._start,
            self._end,
            self._first_gap,
            self._last_gap,
            self._missing,
            self._compacted_below,
            self._end if judged_below is None else judged_below,
            self._batches,
            self._latest_ms,
            self._first_marker_ms,
            self._defect,
        )

    def _add_control(self, header: BatchHeader, batch: memoryview) -> None:
        marker = plain_end_txn_marker(batch, header)
        if marker is not None:
            self._add_marker(header, header.base_offset, *marker)
            return
        for record in iter_records(batch, max_decompressed_bytes=DECOMPRESSED_BYTES_MAX):
            kind = control_type(record.key)
            if kind in {ControlType.COMMIT, ControlType.ABORT}:
                commit = kind is ControlType.COMMIT
                self._add_marker(header, record.offset, commit, parse_end_txn_marker(record.value))

    def _add_marker(self, header: BatchHeader, offset: int, commit: bool, coordinator_epoch: int) -> None:
        if self._first_marker_ms == NO_TIME:
            self._first_marker_ms = header.max_timestamp
        before = self._open.pop(header.producer_id, None)
        if before is not None:
            self.events.append(before)
        self.events.append(
            Event(
                self.topic,
                self.partition,
                header.producer_id,
                header.producer_epoch,
                EventKind.COMMIT if commit else EventKind.ABORT,
                offset,
                offset,
                header.max_timestamp,
                header.max_timestamp,
                1,
                coordinator_epoch,
            )
        )

    def _add_data(self, header: BatchHeader) -> None:
        before = self._open.get(header.producer_id)
        if before is not None and before.producer_epoch == header.producer_epoch:
            self._open[header.producer_id] = before._replace(
                last_offset=header.last_offset, last_ms=header.max_timestamp, batches=before.batches + 1
            )
            return
        if before is not None:
            self.events.append(before)
        self._open[header.producer_id] = Event(
            self.topic,
            self.partition,
            header.producer_id,
            header.producer_epoch,
            EventKind.DATA,
            header.base_offset,
            header.last_offset,
            header.max_timestamp,
            header.max_timestamp,
            1,
        )
