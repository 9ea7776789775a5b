"""Values that the audit reads from logs: transitions of transactional ids, and what each producer wrote to a partition.

All of this module is pure.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from odradek.client import TopicPartition
from odradek.protocol.batch import (
    ControlType,
    control_type,
    iter_records,
    parse_end_txn_marker,
    plain_end_txn_marker,
    verify_crc,
)
from odradek.protocol.codec import decode
from odradek.protocol.errors import Malformed
from odradek.protocol.internal_topics import TRANSACTION_STATE
from odradek.protocol.records.transaction_log import TransactionLogKey, TransactionLogValue

if TYPE_CHECKING:
    from collections.abc import Iterable

    from odradek.protocol.batch import BatchHeader

DECOMPRESSED_BYTES_MAX: Final = 256 * 2**20
"""Maximum size of one batch of `__transaction_state` after decompression, in bytes. It bounds the memory of a task."""
VERSION_BYTES: Final = 2
KEY_VERSION: Final = 0
NO_OFFSET: Final = -1
"""Offset that stands for: there is none."""
NO_GAP: Final = -1
NO_TIME: Final = -1


class State(IntEnum):
    """State of a transactional id: the numbers of TransactionLogValue, and TOMBSTONE for a record without a value."""

    TOMBSTONE = -1
    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def kafka_name(self) -> str:
        """Name of the state in Kafka's tools."""
        return "".join(word.title() for word in self.name.split("_"))


PREPARED: Final = (State.PREPARE_COMMIT, State.PREPARE_ABORT)
COMPLETE: Final = (State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
COMMITS: Final = (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)


class Transition(NamedTuple):
    """A record of `__transaction_state`. `log_partition` and `offset` are its place; times are in ms since 1970."""

    transactional_id: str
    log_partition: int
    offset: int
    timestamp_ms: int
    state: State
    producer_id: int = -1
    producer_epoch: int = -1
    next_producer_id: int = -1
    next_producer_epoch: int = -1
    client_version: int = 0
    timeout_ms: int = 0
    start_ms: int = -1
    update_ms: int = -1
    partitions: tuple[TopicPartition, ...] = ()


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
        compacted_below: Offset below which compaction may have removed batches; 0 if it never ran.
        judged_below: Offset from which on the batches may be newer than the transitions that were read.
        batches: Number of batches.
        latest_ms: Highest timestamp of a batch, or -1.
        first_marker_ms: Timestamp of the first marker, which its leader has set; -1 if there is no marker.
        defect: Description of a damaged batch at `end`, where the audit stopped, or an empty string.
    """

    topic: str
    partition: int
    start: int
    end: int
    first_gap: int
    last_gap: int
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
        if header.is_control:
            self._add_control(header, batch)
        elif self.topic == TRANSACTION_STATE:
            self.transitions += transitions_of(self.partition, header, batch)
        elif header.is_transactional and header.record_count:
            self._add_data(header)
        self._end = header.last_offset + 1
        self._batches += 1
        self._latest_ms = max(self._latest_ms, header.max_timestamp)

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


def transitions_of(partition: int, header: BatchHeader, batch: memoryview) -> Iterable[Transition]:
    """Decode a batch of `__transaction_state`. Records with an unknown key version are left out.

    Raise Malformed if a record cannot be decoded.
    """
    for record in iter_records(batch, max_decompressed_bytes=DECOMPRESSED_BYTES_MAX):
        key = record.key
        if key is None or len(key) < VERSION_BYTES:
            raise Malformed(f"the record at offset {record.offset} of {TRANSACTION_STATE}-{partition} has no key")
        if int.from_bytes(key[:VERSION_BYTES], "big", signed=True) != KEY_VERSION:
            continue
        transactional_id = decode(TransactionLogKey, KEY_VERSION, key[VERSION_BYTES:]).transactional_id
        if record.value is None:
            yield Transition(transactional_id, partition, record.offset, record.timestamp, State.TOMBSTONE)
            continue
        value = _value(record.value)
        yield Transition(
            transactional_id,
            partition,
            record.offset,
            record.timestamp,
            _state(value.transaction_status),
            value.producer_id,
            value.producer_epoch,
            value.next_producer_id,
            value.next_producer_epoch,
            value.client_transaction_version,
            value.transaction_timeout_ms,
            value.transaction_start_timestamp_ms,
            value.transaction_last_update_timestamp_ms,
            tuple(
                TopicPartition(entry.topic, index)
                for entry in value.transaction_partitions or ()
                for index in entry.partition_ids
            ),
        )


def _value(data: bytes) -> TransactionLogValue:
    version = int.from_bytes(data[:VERSION_BYTES], "big", signed=True)
    if not TransactionLogValue.MIN_VERSION <= version <= TransactionLogValue.MAX_VERSION:
        raise Malformed(f"TransactionLogValue has the unknown version {version}")
    return decode(TransactionLogValue, version, data[VERSION_BYTES:])


def _state(number: int) -> State:
    try:
        return State(number)
    except ValueError as unknown:
        raise Malformed(f"TransactionLogValue has the unknown transaction_status {number}") from unknown
