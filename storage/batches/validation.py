"""Validate the batches of an append before any byte is written, and patch their headers. This module is pure.

Checks of every batch: magic, sizes, checksum, counts. Checks of a batch from a client:

- the append consists of exactly one batch, with base offset 0, and it is not a control batch;
- a batch with a producer id has a sequence;
- timestamps are within the bounds of the topic.

Records are decoded only if a check or a conversion needs them: keys on a compacted topic, a lower bound of timestamps,
the conversion to the codec of the topic, or `odradek.validate.records=all`
(docs/decisions/0002-record-validation.md).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from struct import Struct
from typing import TYPE_CHECKING

from crc32c import crc32c

from odradek.protocol.batch import (
    ATTRIBUTES_AT,
    BATCH_LENGTH_MIN,
    COMPRESSION_MASK,
    CRC_AT,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME,
    MAGIC,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    NO_TIMESTAMP,
    BatchHeader,
    Compression,
    ControlType,
    build_batch,
    control_type,
    iter_records,
    parse_end_txn_marker,
    plain_end_txn_marker,
    read_header,
    records_of,
    verify_crc,
)
from odradek.protocol.errors import ErrorCode, Malformed, Refusal
from odradek.protocol.primitives import INT64_MAX
from odradek.storage.batches.record_errors import RecordErrors
from odradek.storage.batches.scan import BATCH_BYTES_MAX
from odradek.storage.config import COMPRESSION_AS_PRODUCED, UNCOMPRESSED, LogConfig
from odradek.storage.producers.entry import EndMarker, Origin

if TYPE_CHECKING:
    from odradek.protocol.schema import Buffer

LEGACY_MESSAGE_BYTES_MIN = 14
"""Minimum bytes after the length field of any message format (Kafka's `LegacyRecord.RECORD_OVERHEAD_V0`)."""
RECORD_BYTES_MAX = 128 * 1024 * 1024
"""Maximum bytes of the decompressed records of one batch.

It limits the memory that a small compressed batch can use.
"""

_FRAME = Struct(">qiib")  # base offset, length, leader epoch, magic
_OFFSET = Struct(">q")
_LEADER_EPOCH = Struct(">i")
_ATTRIBUTES = Struct(">h")
_TIMESTAMP = Struct(">q")
_CRC = Struct(">I")


@dataclass(slots=True)
class CheckedBatch:
    """A batch that may be appended: header, a copy of the header bytes to patch, and the bytes of the records.

    The request buffer is never changed: other objects may share it, and a retry may validate it again.
    """

    header: BatchHeader
    header_bytes: bytearray
    records: memoryview
    marker: EndMarker | None = None

    def set_offset(self, base_offset: int, leader_epoch: int) -> None:
        """Set base offset and leader epoch. The checksum does not cover them."""
        self.header.base_offset = base_offset
        self.header.leader_epoch = leader_epoch
        _OFFSET.pack_into(self.header_bytes, 0, base_offset)
        _LEADER_EPOCH.pack_into(self.header_bytes, 12, leader_epoch)

    def set_timestamp(self, attributes: int, max_timestamp: int) -> None:
        """Set attributes and maximum timestamp, and compute the checksum again."""
        self.header.attributes, self.header.max_timestamp = attributes, max_timestamp
        _ATTRIBUTES.pack_into(self.header_bytes, ATTRIBUTES_AT, attributes)
        _TIMESTAMP.pack_into(self.header_bytes, MAX_TIMESTAMP_AT, max_timestamp)
        self.header.crc = crc32c(self.records, crc32c(memoryview(self.header_bytes)[ATTRIBUTES_AT:]))
        _CRC.pack_into(self.header_bytes, CRC_AT, self.header.crc)


def check_leader_append(
    records: Buffer, origin: Origin, config: LogConfig, *, now_ms: int, allow_zstd: bool = True
) -> list[CheckedBatch]:
    """Validate the batches of an append by a leader. Return them; the caller assigns their offsets.

    Raises:
        Refusal: CORRUPT_MESSAGE, INVALID_RECORD, INVALID_TIMESTAMP, MESSAGE_TOO_LARGE, UNSUPPORTED_COMPRESSION_TYPE.
    """
    view = memoryview(records)
    batches = _split_batches(view)
    client = origin is Origin.CLIENT
    if client:
        _check_produced(batches, view, allow_zstd=allow_zstd)
    elif not batches:
        raise _invalid("the append contains no batch")
    checked = []
    for position, header in batches:
        if client and header.base_offset != 0:
            raise _invalid(f"the batch has base offset {header.base_offset}; a producer must send 0")
        _check_size(header, config)
        if not verify_crc(view, position, header):
            raise _corrupt(f"the checksum {header.crc} of the batch does not match its content")
        batch = _to_checked_batch(view, position, header)
        if client:
            _check_header(header)
        if header.is_control:
            batch.marker = read_marker(view[position : position + header.size], header)
        else:
            batch = _check_content(view[position : position + header.size], batch, origin, config, now_ms)
        if config.log_append_time:
            batch.set_timestamp(batch.header.attributes | LOG_APPEND_TIME, now_ms)
            if batch.marker is not None:
                batch.marker = replace(batch.marker, timestamp=now_ms)
        checked.append(batch)
    return checked


def check_replicated(records: Buffer, leader_epoch: int | None = None) -> list[tuple[BatchHeader, EndMarker | None]]:
    """Validate batches fetched from the leader's log. Return (header, transaction marker) of each.

    The batches are contiguous from the first byte on and are appended unchanged. The result ends before the first batch
    whose leader epoch is greater than `leader_epoch` (KAFKA-18723). Raise Refusal(CORRUPT_MESSAGE) if a batch is
    damaged.
    """
    view = memoryview(records)
    checked: list[tuple[BatchHeader, EndMarker | None]] = []
    for position, header in _split_batches(view):
        if leader_epoch is not None and header.leader_epoch > leader_epoch:
            return checked
        if not verify_crc(view, position, header):
            raise _corrupt(f"the checksum {header.crc} of the batch at offset {header.base_offset} does not match")
        marker = read_marker(view[position : position + header.size], header) if header.is_control else None
        checked.append((header, marker))
    return checked


def read_marker(batch: Buffer, header: BatchHeader) -> EndMarker | None:
    """Return the transaction marker in a control batch.

    Return None for a control batch without a producer, for another type of control record, and for a batch whose record
    compaction has removed.

    Raises:
        Refusal: INVALID_RECORD if the content cannot be decoded.
    """
    if not header.has_producer:
        return None
    plain = plain_end_txn_marker(batch, header)
    if plain is not None:
        return EndMarker(not plain[0], plain[1], header.base_timestamp)
    try:
        for record in records_of(batch, header, max_decompressed_bytes=RECORD_BYTES_MAX):
            kind = control_type(record.key)
            if kind not in {ControlType.ABORT, ControlType.COMMIT}:
                return None
            return EndMarker(kind is ControlType.ABORT, parse_end_txn_marker(record.value), record.timestamp)
    except Malformed as error:
        raise _invalid(f"the control batch at offset {header.base_offset} is malformed: {error}") from error
    return None


def _split_batches(view: memoryview) -> list[tuple[int, BatchHeader]]:
    """Return (position, header) of the complete batches. A partial batch at the end is ignored, as in Kafka."""
    batches = []
    position, end = 0, len(view)
    while end - position > MAGIC_AT:
        if end - position >= HEADER_BYTES and view[position + MAGIC_AT] == MAGIC:
            try:
                header = read_header(view, position)
            except Malformed:
                pass  # reported below: those checks are in Kafka's order, so that clients get Kafka's error code
            else:
                if header.size > end - position:
                    break
                batches.append((position, header))
                position += header.size
                continue
        _, length, _, magic = _FRAME.unpack_from(view, position)
        if length < LEGACY_MESSAGE_BYTES_MIN:
            raise _corrupt(f"the batch length {length} is below the minimum of every message format")
        if not 0 <= magic <= MAGIC:
            raise _corrupt(f"unknown magic {magic}")
        if length > end - position - LENGTH_OVERHEAD:
            break
        if magic != MAGIC:
            raise _invalid(f"message format {magic} is not supported; the producer must send format {MAGIC}")
        if length < BATCH_LENGTH_MIN:
            raise _corrupt(f"the batch length {length} is below the size of a batch header")
        try:
            batches.append((position, read_header(view, position)))
        except Malformed as error:
            raise _invalid(str(error)) from error
        position += length + LENGTH_OVERHEAD
    return batches


def _to_checked_batch(view: memoryview, position: int, header: BatchHeader) -> CheckedBatch:
    records_at = position + HEADER_BYTES
    return CheckedBatch(header, bytearray(view[position:records_at]), view[records_at : position + header.size])


def _check_produced(batches: list[tuple[int, BatchHeader]], view: memoryview, *, allow_zstd: bool) -> None:
    if len(batches) != 1:
        raise _invalid(f"a Produce request must contain one batch per partition; this one contains {len(batches)}")
    codec = batches[0][1].attributes & COMPRESSION_MASK
    if codec == Compression.ZSTD and not allow_zstd:
        message = "zstd requires Produce version 7 or later: upgrade the producer, or set another compression.type"
        raise Refusal(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, message)
    if codec > Compression.ZSTD:
        raise _invalid(f"compression codec {codec} is unknown")


def _check_size(header: BatchHeader, config: LogConfig) -> None:
    if header.size > min(config.max_message_bytes, BATCH_BYTES_MAX):
        raise Refusal(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {header.size} bytes; max.message.bytes of the topic is {config.max_message_bytes}",
        )


def _check_header(header: BatchHeader) -> None:
    """Validate the counts, the type and the sequence in the header of a client's batch."""
    if header.record_count <= 0 or header.record_count != header.last_offset_delta + 1:
        raise _invalid(
            f"the batch header has {header.record_count} records and a last offset delta of {header.last_offset_delta}"
        )
    if header.is_control:
        raise _invalid("a client must not write control batches")
    if header.has_producer and header.base_sequence < 0:
        raise _invalid(f"producer {header.producer_id} sent a batch without a sequence")


def _check_content(
    batch_bytes: memoryview, batch: CheckedBatch, origin: Origin, config: LogConfig, now_ms: int
) -> CheckedBatch:
    """Validate timestamps and keys of a data batch. Return the batch to append, which a codec conversion replaces."""
    header = batch.header
    if origin is Origin.CLIENT:
        if header.timestamp_type:
            raise Refusal(ErrorCode.INVALID_TIMESTAMP, "a producer must not set the timestamp type LogAppendTime")
        if not config.log_append_time:
            _check_header_timestamps(batch_bytes, header, config, now_ms)
        bounded_below = config.message_timestamp_before_max_ms != INT64_MAX and not config.log_append_time
        if config.compacted or config.validate_records_all or bounded_below:
            newest = _check_records(batch_bytes, header, config, now_ms)
            if newest != header.max_timestamp:
                batch.set_timestamp(header.attributes, newest)
    codec = _target_codec(config)
    if codec is None or codec == header.attributes & COMPRESSION_MASK or origin is Origin.RAFT_LEADER:
        return batch
    return _convert(batch_bytes, header, codec, config)


def _check_header_timestamps(batch: memoryview, header: BatchHeader, config: LogConfig, now_ms: int) -> None:
    """Validate the timestamps of a header, which bound those of the records.

    Records are decoded only if the header is out of bounds: the refusal then names the records that are.
    """
    for timestamp in (header.base_timestamp, header.max_timestamp):
        error = _timestamp_error(timestamp, config, now_ms)
        if error is not None:
            _check_records(batch, header, config, now_ms)
            raise Refusal(ErrorCode.INVALID_TIMESTAMP, error)  # all records are within bounds, only the header is not


def _timestamp_error(timestamp: int, config: LogConfig, now_ms: int) -> str | None:
    """Return the error message for a timestamp outside of the bounds of the topic, None if it is within them."""
    if timestamp == NO_TIMESTAMP:
        return None
    if -config.message_timestamp_after_max_ms <= now_ms - timestamp <= config.message_timestamp_before_max_ms:
        return None
    return (
        f"timestamp {timestamp} is outside of the range of the topic, from "
        f"{now_ms - config.message_timestamp_before_max_ms} to {now_ms + config.message_timestamp_after_max_ms}"
    )


def _check_records(batch: memoryview, header: BatchHeader, config: LogConfig, now_ms: int) -> int:
    """Validate each record of a client's batch. Return the largest timestamp."""
    newest = NO_TIMESTAMP
    errors = RecordErrors()
    try:
        for index, record in enumerate(iter_records(batch, max_decompressed_bytes=RECORD_BYTES_MAX)):
            if record.offset != header.base_offset + index:
                errors.add(index, f"offset {record.offset} instead of {header.base_offset + index}")
            if record.key is None and config.compacted:
                errors.add(index, "a record of a compacted topic must have a key")
            if not config.log_append_time:
                error = _timestamp_error(record.timestamp, config, now_ms)
                if error is not None:
                    errors.add_timestamp_error(index, error)
            newest = max(newest, record.timestamp)
    except Malformed as malformed:
        raise _invalid(f"the records of the batch cannot be decoded: {malformed}") from malformed
    errors.raise_if_any()
    return newest


def _target_codec(config: LogConfig) -> Compression | None:
    """Return the codec that `compression.type` of the topic requires, None if the producer chooses it."""
    if config.compression_type == COMPRESSION_AS_PRODUCED:
        return None
    if config.compression_type == UNCOMPRESSED:
        return Compression.NONE
    return Compression[config.compression_type.upper()]


def _convert(batch: memoryview, header: BatchHeader, codec: Compression, config: LogConfig) -> CheckedBatch:
    """Return the batch with its records compressed by `codec`."""
    try:
        records = list(iter_records(batch, max_decompressed_bytes=RECORD_BYTES_MAX))
    except Malformed as error:
        raise _invalid(f"the records of the batch cannot be decoded: {error}") from error
    if not records:
        raise _invalid("a batch without records cannot be converted")
    converted = memoryview(
        build_batch(
            records,
            base_offset=header.base_offset,
            compression=codec,
            level=config.compression_level,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            transactional=header.is_transactional,
        )
    )
    new_header = read_header(converted)
    _check_size(new_header, config)
    return _to_checked_batch(converted, 0, new_header)


def _invalid(message: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_RECORD, message)


def _corrupt(message: str) -> Refusal:
    return Refusal(ErrorCode.CORRUPT_MESSAGE, message)
