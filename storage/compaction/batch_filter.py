"""Filter the records of one batch during compaction (Kafka's `Cleaner.cleanInto` and `MemoryRecords.filterTo`).

A filtered batch keeps its first and last offset, its sequences and its producer. A batch that keeps all records is
copied unchanged. Tombstones, and markers of transactions without data, first get a delete horizon (KIP-534). A later
compaction removes them after that time.

The functions are generators (`Step`), so that their caller can serve other tasks between records.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from odradek.frozen import frozen_dataclass
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
from odradek.protocol.primitives import INT64_MAX, INT64_MIN, UINT64_MAX
from odradek.protocol.record import RawRecord, at_base_timestamp, read_raw_records
from odradek.storage.batches.limits import RECORD_BYTES_MAX
from odradek.storage.batches.validation import CONTROL_BYTES_MAX
from odradek.storage.batches.work import PAUSE_UNITS, WorkSlice
from odradek.storage.compaction.offset_map import LARGE_KEY_BYTES, key_digest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from odradek.protocol.schema import Buffer
    from odradek.storage.compaction.cleaned_transactions import CleanedTransactions
    from odradek.storage.compaction.offset_map import OffsetMap
    from odradek.storage.disk.port import File

T = TypeVar("T")
Step = tuple["File", int, int] | Callable[[], Any] | None
"""Request of a generator to its caller.

A tuple (file, position, size) requests bytes, a function requests its call in a thread, None requests a pause.
"""
Steps = Generator[Step, Any, T]
"""Generator that yields steps, receives their results, and returns T."""

BATCH_UNITS = 4
"""Work per batch, in units, in addition to its records and bytes."""
SLICE_BYTES = 512 << 10
"""Bytes of batches that count as PAUSE_UNITS: they are read, verified, and in some cases written."""
KEY_BYTES_PER_UNIT = 4096
"""Bytes of a key that count as one more unit: the hash of the offset map needs about 5 microseconds for them."""
IN_THREAD_BYTES_MIN = 4096
"""Compressed or decompressed bytes above which a codec runs in a thread.

Fewer compressed bytes decompress to a few MiB at most.
"""


class CleaningSlice(WorkSlice):
    """Counter of the work of a compaction since its last pause."""

    def spend_on_batch(self, size: int) -> bool:
        """Count the work on a batch of `size` bytes. Return True if a pause is due."""
        return self.spend(BATCH_UNITS + size * PAUSE_UNITS // SLICE_BYTES)

    def spend_on_record(self, record: RawRecord) -> bool:
        """Count the work on a record: its key is copied and hashed. Return True if a pause is due."""
        return self.spend(1 if record.key is None else 1 + len(record.key) // KEY_BYTES_PER_UNIT)


@frozen_dataclass(frozen=True, slots=True)
class LastRecord:
    """Last data offset of an active producer (-1 if it has only markers) and its epoch (Kafka's `LastRecord`)."""

    offset: int
    epoch: int


@dataclass(slots=True)
class BatchFilter:
    """Filter for the batches of one compaction.

    `bound` is the end offset of the compaction. The batch before it stays, so that no log ends in an offset gap.
    `expiry_ms` is the expiry time, which delete horizons are compared with. `new_horizon_ms` is the delete horizon of
    batches that do not have one yet.
    """

    offsets: OffsetMap
    transactions: CleanedTransactions
    last_of_producers: Mapping[int, LastRecord]
    bound: int
    expiry_ms: int
    new_horizon_ms: int
    slice: CleaningSlice

    def clean(self, header: BatchHeader, batch: memoryview) -> Steps[Buffer | None]:
        """Return the bytes to write in place of `batch`: the same batch, a smaller one, or None.

        Raises:
            Malformed: The batch cannot be decoded.
        """
        keep_if_empty = header.last_offset + 1 == self.bound or self._is_last_of_producer(header)
        horizon = header.base_timestamp if header.has_delete_horizon else None
        if header.is_control:
            kind = marker_kind(header, batch)
            discardable = self.transactions.on_control_batch(header, kind)
            discard_all = kind is None or (discardable and horizon is not None and horizon <= self.expiry_ms)
        else:
            discardable = discard_all = self.transactions.on_data_batch(header)
        if discard_all or header.record_count == 0:
            return empty_batch(header) if keep_if_empty else None
        if header.is_control and (not discardable or horizon is not None):
            return batch
        body = yield from decompressed(header, batch)
        kept = bytearray()  # one byte per record: a batch can have millions of records
        tombstones = False
        for record in read_raw_records(body, header.record_count):
            if self.slice.spend_on_record(record):
                yield None
            retained = True
            if not header.is_control and header.base_offset + record.offset_delta <= self.offsets.latest_offset:
                key = record.key
                if key is None:
                    retained = False
                else:
                    digest = key_digest(key) if len(key) <= LARGE_KEY_BYTES else (yield partial(key_digest, key))
                    retained = self._retains(header, record, digest, horizon)
            kept.append(retained)
            tombstones = tombstones or (retained and not record.has_value)
        count = kept.count(1)
        if not count:
            return empty_batch(header) if keep_if_empty else None
        set_horizon = horizon is None and (tombstones or discardable)
        if count == header.record_count and not set_horizon:
            return batch
        if set_horizon:
            horizon = self.new_horizon_ms
        rebuilt = yield from self._rebuild(header, body, kept, horizon)
        if rebuilt is not None:
            return rebuilt
        if count == header.record_count:
            return batch
        return (yield from self._rebuild(header, body, kept, None, keep_deltas=True))

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        """Return True if this is the last batch of an active producer.

        A broker that derives the producer state from the log needs the batch to check the next one of the producer.
        Batches are compared by offset (KAFKA-8335).
        """
        last = self.last_of_producers.get(header.producer_id)
        if last is None or not header.has_producer:
            return False
        if last.offset >= 0:
            return header.last_offset == last.offset
        return header.is_control and header.producer_epoch == last.epoch

    def _retains(self, header: BatchHeader, record: RawRecord, digest: bytes, horizon: int | None) -> bool:
        """Return True if a checked record is the newest of its key, and not a tombstone to remove."""
        if header.base_offset + record.offset_delta < self.offsets.get(digest):
            return False
        return record.has_value or horizon is None or self.expiry_ms < horizon

    def _rebuild(
        self, header: BatchHeader, body: Buffer, kept: bytearray, horizon: int | None, *, keep_deltas: bool = False
    ) -> Steps[Buffer | None]:
        """Return a batch with the records whose byte in `kept` is 1.

        A delete horizon is stored in place of the base timestamp (KIP-534). Timestamps are 64-bit numbers that
        overflow, as in Kafka's `DefaultRecord.readFrom`.

        Return None if the distance of a timestamp from the new base timestamp exceeds 64 bits. Clients can append such
        timestamps, for example one near -2**63. With `keep_deltas`, the base timestamp, its delete horizon and all
        deltas stay unchanged, which always fits. A tombstone of a batch without a delete horizon is then never removed.
        Superseded records are removed in any case:

        1. A batch that compaction cannot rebuild keeps an old value of a key.
        2. A later compaction removes the tombstone of the key.
        3. Consumers read the deleted value again.
        """
        append_time = header.max_timestamp if header.timestamp_type else None
        base = header.base_timestamp if keep_deltas else horizon
        newest = NO_TIMESTAMP
        content = bytearray()
        for record, retained in zip(read_raw_records(body, header.record_count), kept, strict=True):
            if self.slice.spend_on_record(record):
                yield None
            if not retained:
                continue
            timestamp = header.base_timestamp + record.timestamp_delta if append_time is None else append_time
            if not INT64_MIN <= timestamp <= INT64_MAX:
                timestamp = (timestamp - INT64_MIN & UINT64_MAX) + INT64_MIN
            base = timestamp if base is None else base
            newest = max(newest, timestamp)
            delta = timestamp - base
            if keep_deltas or delta == record.timestamp_delta:
                content += body[record.start : record.end]
            elif INT64_MIN <= delta <= INT64_MAX:
                content += at_base_timestamp(body, record, delta)
            else:
                return None
        assert base is not None
        attributes = header.attributes
        if not keep_deltas:
            attributes = attributes & ~DELETE_HORIZON | (0 if horizon is None else DELETE_HORIZON)
        rebuilt = replace(
            header, attributes=attributes, base_timestamp=base, max_timestamp=newest, record_count=kept.count(1)
        )
        if header.compression is Compression.NONE:
            return seal_batch(rebuilt, content)
        return (yield from in_thread_if_large(partial(_compressed, rebuilt, content), len(body)))


def _compressed(header: BatchHeader, content: bytearray) -> bytes:
    return seal_batch(header, compress(header.compression, content))


def in_thread_if_large(work: Callable[[], T], size: int) -> Steps[T]:
    """Return the result of `work` on `size` bytes. Request a thread for more than IN_THREAD_BYTES_MIN bytes."""
    if size <= IN_THREAD_BYTES_MIN:
        return work()
    result: T = yield work
    return result


def decompressed(header: BatchHeader, batch: memoryview) -> Steps[Buffer]:
    """Return the decompressed records of a batch. Raise Malformed if the codec fails."""
    body = batch[HEADER_BYTES:]
    codec = header.compression
    if codec is Compression.NONE:
        return body
    return (yield from in_thread_if_large(partial(decompress, codec, body, max_bytes=RECORD_BYTES_MAX), len(body)))


def marker_kind(header: BatchHeader, batch: memoryview) -> ControlType | None:
    """Return the type of a control batch; None if compaction has removed its record.

    Raise Malformed if it is damaged.
    """
    if header.record_count == 0:
        return None
    return control_type(next(iter_records(batch, max_decompressed_bytes=CONTROL_BYTES_MAX)).key)


def empty_batch(header: BatchHeader) -> bytes:
    """Return the batch without records. Its offsets, sequences and producer stay."""
    attributes = header.attributes & (LOG_APPEND_TIME | TRANSACTIONAL | CONTROL)
    emptied = replace(
        header, batch_length=BATCH_LENGTH_MIN, attributes=attributes, base_timestamp=NO_TIMESTAMP, record_count=0
    )
    return seal_batch(emptied, b"")
