"""What compaction leaves of one batch (kafka-facts 6.10).

Written as generators that stop between records, so that whoever runs them can let others have a turn: they yield None there,
and a function where something takes long and touches nothing but its arguments, whose result they are sent.

A batch keeps its first and last offset, its sequence and its producer, whatever goes out of it. A batch from which nothing
goes is copied as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from odradek.protocol.batch import (
    BATCH_LENGTH_MIN,
    CONTROL,
    DELETE_HORIZON,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    Compression,
    ControlType,
    control_type,
    iter_records,
    seal_batch,
)
from odradek.protocol.compression import compress, decompress
from odradek.protocol.record import RawRecord, at_base_timestamp, read_raw_records
from odradek.storage.batches.validation import RECORD_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from odradek.protocol.schema import Buffer
    from odradek.storage.compaction.cleaned_transactions import CleanedTransactions
    from odradek.storage.compaction.offset_map import OffsetMap
    from odradek.storage.disk.port import File

T = TypeVar("T")
Step = tuple["File", int, int] | Callable[[], Any] | None
Steps = Generator[Step, Any, T]
"""Asks for a piece of a file (file, position, size), for the result of a function, or for nothing but a pause."""

PAUSE_UNITS = 128
"""Work between two pauses, in records: about half a millisecond."""
BATCH_UNITS = 4
"""What a batch costs beside its records and bytes."""
SLICE_BYTES = 512 << 10
"""Bytes of batches that make up as much work: they are read, checked, and maybe written again."""
HEAVY_BYTES = 4096
"""Larger ones are compressed and decompressed elsewhere: no codec makes more than some megabytes out of so few bytes."""


class WorkSlice:
    """Count the work since the last pause of the compaction."""

    def __init__(self) -> None:
        self._left = PAUSE_UNITS

    def spend_on_batch(self, size: int) -> bool:
        """Add a batch of `size` bytes to the work. Return True if a pause is due."""
        return self.spend(BATCH_UNITS + size * PAUSE_UNITS // SLICE_BYTES)

    def spend(self, units: int = 1) -> bool:
        """Add `units` to the work. Return True if a pause is due."""
        self._left -= units
        if self._left > 0:
            return False
        self._left = PAUSE_UNITS
        return True


@dataclass(frozen=True, slots=True)
class LastRecord:
    """The last data offset of an active producer (-1: it has only markers) and its epoch, as Kafka's `LastRecord`."""

    offset: int
    epoch: int


@dataclass(slots=True)
class BatchFilter:
    """`bound` is where this cleaning ends: the last batch before it stays, so that no log ends in a gap."""

    offsets: OffsetMap
    transactions: CleanedTransactions
    last_of_producers: Mapping[int, LastRecord]
    bound: int
    now_ms: int
    delete_retention_ms: int
    slice: WorkSlice

    def clean(self, header: BatchHeader, batch: memoryview) -> Steps[Buffer | None]:
        """What is to be written in place of `batch`: itself, a smaller one, or None. Raises Malformed."""
        keeps_empty = header.last_offset + 1 == self.bound or self._is_last_of_producer(header)
        horizon = header.base_timestamp if header.has_delete_horizon else None
        if header.is_control:
            kind = marker_kind(header, batch)
            useless = self.transactions.control(header, kind)
            gone = kind is None or (useless and horizon is not None and horizon <= self.now_ms)
        else:
            useless = gone = self.transactions.data(header)
        if gone or header.record_count == 0:
            return empty_batch(header) if keeps_empty else None
        if header.is_control and (not useless or horizon is not None):
            return batch
        body = yield from decompressed(header, batch)
        kept: list[RawRecord] = []
        tombstones = False
        for record in read_raw_records(body, header.record_count):
            if self.slice.spend():
                yield None
            if header.is_control or self._needed(header, record, horizon):
                kept.append(record)
                tombstones = tombstones or not record.has_value
        if not kept:
            return empty_batch(header) if keeps_empty else None
        begins_horizon = horizon is None and (tombstones or useless)
        if len(kept) == header.record_count and not begins_horizon:
            return batch
        if begins_horizon:
            horizon = self.now_ms + self.delete_retention_ms
        return (yield from self._rebuild(header, body, kept, horizon))

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        """The producer's next batch is judged by it, when its state is derived from the log (KAFKA-8335: by offset)."""
        last = self.last_of_producers.get(header.producer_id)
        if last is None or not header.has_producer:
            return False
        if last.offset >= 0:
            return header.last_offset == last.offset
        return header.is_control and header.producer_epoch == last.epoch

    def _needed(self, header: BatchHeader, record: RawRecord, horizon: int | None) -> bool:
        offset = header.base_offset + record.offset_delta
        if offset > self.offsets.latest_offset:
            return True
        if record.key is None or offset < self.offsets.get(record.key):
            return False
        return record.has_value or horizon is None or self.now_ms < horizon

    def _rebuild(
        self, header: BatchHeader, body: Buffer, kept: list[RawRecord], horizon: int | None
    ) -> Steps[Buffer | None]:
        """The batch with the records that are kept. The delete horizon is kept in place of the base timestamp."""
        append_time = header.max_timestamp if header.timestamp_type else None
        first = header.base_timestamp + kept[0].timestamp_delta if append_time is None else append_time
        base = first if horizon is None else horizon
        newest = NO_TIMESTAMP
        pieces: list[Buffer] = []
        for record in kept:
            if self.slice.spend():
                yield None
            timestamp = header.base_timestamp + record.timestamp_delta if append_time is None else append_time
            newest = max(newest, timestamp)
            if timestamp - base == record.timestamp_delta:
                pieces.append(body[record.start : record.end])
            else:
                pieces.append(at_base_timestamp(body, record, timestamp - base))
        made = replace(
            header,
            attributes=header.attributes & ~DELETE_HORIZON | (0 if horizon is None else DELETE_HORIZON),
            base_timestamp=base,
            max_timestamp=newest,
            record_count=len(kept),
        )
        if header.compression is Compression.NONE:
            return seal_batch(made, b"".join(pieces))
        return (yield from heavy(partial(_compressed, made, pieces), len(body)))


def _compressed(header: BatchHeader, pieces: list[Buffer]) -> bytes:
    return seal_batch(header, compress(header.compression, b"".join(pieces)))


def heavy(work: Callable[[], T], size: int) -> Steps[T]:
    """The result of `work` on `size` bytes, which is done elsewhere if that takes long."""
    if size <= HEAVY_BYTES:
        return work()
    result: T = yield work
    return result


def decompressed(header: BatchHeader, batch: memoryview) -> Steps[Buffer]:
    """The records of a batch. Raises Malformed."""
    body = batch[HEADER_BYTES:]
    codec = header.compression
    if codec is Compression.NONE:
        return body
    return (yield from heavy(partial(decompress, codec, body, max_bytes=RECORD_BYTES_MAX), len(body)))


def marker_kind(header: BatchHeader, batch: memoryview) -> ControlType | None:
    """What a control batch says; None when its record has been removed. Raises Malformed."""
    if header.record_count == 0:
        return None
    return control_type(next(iter_records(batch, max_decompressed_bytes=RECORD_BYTES_MAX)).key)


def empty_batch(header: BatchHeader) -> bytes:
    """What is left of a batch whose records are gone, and which has to stay: its offsets, its sequence, its producer."""
    attributes = header.attributes & (LOG_APPEND_TIME | TRANSACTIONAL | CONTROL)
    made = replace(
        header, batch_length=BATCH_LENGTH_MIN, attributes=attributes, base_timestamp=NO_TIMESTAMP, record_count=0
    )
    return seal_batch(made, b"")
