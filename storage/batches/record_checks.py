"""Check and convert the records of one produced batch, in slices and within bounds. This module is pure.

A few kilobytes can hold millions of compressed records. So the number of records and their decompressed size are
bounded before memory is allocated, and the work is a generator that requests a pause after each slice.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from odradek.protocol.batch import HEADER_BYTES, NO_TIMESTAMP, TRANSACTIONAL, BatchHeader, Compression, seal_batch
from odradek.protocol.compression import ExpansionExceeded, compress, decompress
from odradek.protocol.errors import ErrorCode, Malformed, Refusal
from odradek.protocol.primitives import INT64_MAX, INT64_MIN
from odradek.protocol.record import scan_records
from odradek.storage.batches.limits import codec_bytes_max, decompressed_bytes_max, records_max
from odradek.storage.batches.record_errors import RecordErrors
from odradek.storage.batches.scan import BATCH_BYTES_MAX
from odradek.storage.config import COMPRESSION_AS_PRODUCED, UNCOMPRESSED, LogConfig

if TYPE_CHECKING:
    from odradek.protocol.schema import Buffer
    from odradek.storage.batches.work import Pause, SlicedWork, WorkSlice

T = TypeVar("T")
SLICE_UNITS = 400
"""Work between two pauses, in units. A unit is the work on one record or one record header; 400 take about 0.8 ms."""
BYTES_PER_UNIT = 512
"""Decompressed or compressed bytes that count as one unit: a codec needs about 2 microseconds for them."""
INLINE_BYTES_MAX = 16 * 1024
"""Maximum size of a batch that is decompressed on the event loop, in bytes: the default batch.size of producers."""
INLINE_EXPANDED_BYTES_MAX = 128 * 1024
"""Maximum decompressed size on the event loop, in bytes. A batch that exceeds it is decompressed in a thread."""


class RecordCheckPending(Exception):
    """The check of a batch needs more than one slice. Nothing was written and nothing has changed.

    The caller runs `work` to its end, and appends its result. `first` is the request that `work` has yielded.
    """

    def __init__(self, work: SlicedWork[object], first: Pause, header: BatchHeader, memory_bytes: int) -> None:
        super().__init__(f"{header.record_count} records")
        self.work = work
        self.first = first
        self.record_count = header.record_count
        self.memory_bytes = memory_bytes
        """Maximum memory of the check, in bytes."""


def begin(work: SlicedWork[T], header: BatchHeader, config: LogConfig) -> T:
    """Run the first slice of a check. Return its result, or raise RecordCheckPending if it needs more."""
    try:
        request = next(work)
    except StopIteration as stop:
        result: T = stop.value
        return result
    is_compressed = header.compression is not Compression.NONE
    body_bytes = decompressed_bytes_max(header.size, config.max_message_bytes) if is_compressed else header.size
    raise RecordCheckPending(work, request, header, codec_bytes_max(body_bytes))


def timestamp_error(timestamp: int, config: LogConfig, now_ms: int) -> str | None:
    """Return the error message for a timestamp outside of the bounds of the topic, None if it is within them."""
    if timestamp == NO_TIMESTAMP:
        return None
    if -config.message_timestamp_after_max_ms <= now_ms - timestamp <= config.message_timestamp_before_max_ms:
        return None
    return (
        f"timestamp {timestamp} is outside of the range of the topic, from "
        f"{now_ms - config.message_timestamp_before_max_ms} to {now_ms + config.message_timestamp_after_max_ms}"
    )


def target_codec(config: LogConfig) -> Compression | None:
    """Return the codec that `compression.type` of the topic requires, None if the producer chooses it."""
    if config.compression_type == COMPRESSION_AS_PRODUCED:
        return None
    if config.compression_type == UNCOMPRESSED:
        return Compression.NONE
    return Compression[config.compression_type.upper()]


def record_body(batch: memoryview, header: BatchHeader, max_message_bytes: int, work: WorkSlice) -> SlicedWork[Buffer]:
    """Return the decompressed records of a batch. Request a thread for a large batch.

    Raises:
        Malformed: The records cannot be decompressed.
        ExpansionExceeded: They exceed the bounds (`odradek.storage.batches.limits`).
    """
    body = body_at_once(batch, header, max_message_bytes)
    if body is None:
        packed, bytes_max = batch[HEADER_BYTES : header.size], decompressed_bytes_max(header.size, max_message_bytes)
        body = yield partial(decompress, header.compression, packed, max_bytes=bytes_max)
    elif header.compression is not Compression.NONE and work.spend(len(body) // BYTES_PER_UNIT):
        yield None
    return body


def body_at_once(batch: memoryview, header: BatchHeader, max_message_bytes: int) -> Buffer | None:
    """Return the decompressed records of a batch; None if a thread has to decompress them. Raise as `record_body`."""
    if header.record_count > records_max(max_message_bytes):
        raise ExpansionExceeded(
            f"the batch has {header.record_count} records, more than the {records_max(max_message_bytes)} that fit "
            f"into {max_message_bytes} bytes"
        )
    packed = batch[HEADER_BYTES : header.size]
    if header.compression is Compression.NONE:
        return packed
    if len(packed) > INLINE_BYTES_MAX:
        return None
    bytes_max = decompressed_bytes_max(header.size, max_message_bytes)
    try:
        return decompress(header.compression, packed, max_bytes=min(bytes_max, INLINE_EXPANDED_BYTES_MAX))
    except ExpansionExceeded:
        if bytes_max <= INLINE_EXPANDED_BYTES_MAX:
            raise
        return None


def check_records(
    batch: memoryview, header: BatchHeader, config: LogConfig, now_ms: int, work: WorkSlice
) -> SlicedWork[tuple[int, Buffer]]:
    """Check each record of a client's batch. Return (largest timestamp, decompressed records).

    The check stops after RECORD_ERRORS_MAX invalid records.

    Raises:
        Refusal: MESSAGE_TOO_LARGE, INVALID_RECORD or INVALID_TIMESTAMP.
    """
    newest = NO_TIMESTAMP
    errors = RecordErrors()
    keys_required, check_timestamps = config.compacted, not config.log_append_time
    base_timestamp, index = header.base_timestamp, -1
    oldest_allowed, newest_allowed = _allowed(config, now_ms)
    try:
        body = yield from record_body(batch, header, config.max_message_bytes, work)
        for record in scan_records(body, header.record_count):
            if work.spend():
                yield None
            if record is None:
                continue
            index += 1
            timestamp_delta, offset_delta, has_key = record
            timestamp = base_timestamp + timestamp_delta
            if offset_delta != index:
                errors.add(index, f"offset {header.base_offset + offset_delta} instead of {header.base_offset + index}")
            if keys_required and not has_key:
                errors.add(index, "a record of a compacted topic must have a key")
            if not oldest_allowed <= timestamp <= newest_allowed:
                _check_range(timestamp)
                error = timestamp_error(timestamp, config, now_ms) if check_timestamps else None
                if error is not None:
                    errors.add_timestamp_error(index, error)
            newest = max(newest, timestamp)
            if errors.full:
                break
    except ExpansionExceeded as exceeded:
        raise _too_large(exceeded) from exceeded
    except Malformed as malformed:
        raise _undecodable(malformed) from malformed
    errors.raise_if_any()
    return newest, body


def _allowed(config: LogConfig, now_ms: int) -> tuple[int, int]:
    """Return the bounds within which a timestamp is valid without a further check."""
    oldest = max(INT64_MIN, now_ms - config.message_timestamp_before_max_ms)
    return oldest, min(INT64_MAX, now_ms + config.message_timestamp_after_max_ms)


def _check_range(timestamp: int) -> None:
    if not INT64_MIN <= timestamp <= INT64_MAX:
        raise Malformed(f"timestamp {timestamp} of a record exceeds 64 bits")


def newest_timestamp(
    batch: memoryview, header: BatchHeader, config: LogConfig, work: WorkSlice
) -> SlicedWork[tuple[int, Buffer]]:
    """Return (largest timestamp, decompressed records) of a batch that no client sent. Raise as `check_records`."""
    newest = NO_TIMESTAMP
    append_time = header.max_timestamp if header.timestamp_type else None
    try:
        body = yield from record_body(batch, header, config.max_message_bytes, work)
        for record in scan_records(body, header.record_count):
            if work.spend():
                yield None
            if record is not None:
                timestamp = header.base_timestamp + record[0] if append_time is None else append_time
                _check_range(timestamp)
                newest = max(newest, timestamp)
    except ExpansionExceeded as exceeded:
        raise _too_large(exceeded) from exceeded
    except Malformed as malformed:
        raise _undecodable(malformed) from malformed
    return newest, body


def recompressed(
    header: BatchHeader, body: Buffer, newest: int, codec: Compression, config: LogConfig, work: WorkSlice
) -> SlicedWork[bytes]:
    """Return the batch with its records compressed by `codec`. Their encoding does not change.

    Raise Refusal(MESSAGE_TOO_LARGE) if the batch is then larger than max.message.bytes.
    """
    attributes = codec | header.attributes & TRANSACTIONAL
    converted = replace(header, attributes=attributes, max_timestamp=newest)
    make = partial(_recompress, converted, body, codec, config)
    if codec is not Compression.NONE and len(body) > INLINE_BYTES_MAX:
        result: bytes = yield make
        return result
    if work.spend(len(body) // BYTES_PER_UNIT):
        yield None
    return make()


def _recompress(header: BatchHeader, body: Buffer, codec: Compression, config: LogConfig) -> bytes:
    packed = compress(codec, body, config.compression_level)
    check_size(HEADER_BYTES + len(packed), config)  # before the batch is copied
    return seal_batch(header, packed)


def check_size(size: int, config: LogConfig) -> None:
    """Raise Refusal(MESSAGE_TOO_LARGE) if a batch of `size` bytes is larger than max.message.bytes."""
    if size > min(config.max_message_bytes, BATCH_BYTES_MAX):
        raise Refusal(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {size} bytes; max.message.bytes of the topic is {config.max_message_bytes}",
        )


def _too_large(error: ExpansionExceeded) -> Refusal:
    # Kafka's Java producer splits a batch and sends the parts when it receives this error.
    return Refusal(ErrorCode.MESSAGE_TOO_LARGE, f"the records of the batch exceed the bounds of the topic: {error}")


def _undecodable(error: Malformed) -> Refusal:
    return Refusal(ErrorCode.INVALID_RECORD, f"the records of the batch cannot be decoded: {error}")
