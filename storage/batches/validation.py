"""Validate the batches of an append before any byte is written, and patch their headers. This module is pure.

Checks of every batch: magic, sizes, checksum, counts. Checks of a batch from a client:

- the append consists of exactly one batch, with base offset 0, and it is not a control batch;
- a batch with a producer id has a sequence;
- timestamps are within the bounds of the topic.

Records are decoded (`odradek.storage.batches.record_checks`) only if a check or a conversion needs them: keys on a
compacted topic, a lower bound of timestamps, the conversion to the codec of the topic, or
`odradek.validate.records=all` (docs/decisions/0002-record-validation.md).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
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
    BatchHeader,
    Compression,
    ControlType,
    control_type,
    parse_end_txn_marker,
    plain_end_txn_marker,
    read_header,
    records_of,
    verify_crc,
)
from odradek.protocol.errors import ErrorCode, Malformed, Refusal
from odradek.storage.batches.record_checks import (
    SLICE_UNITS,
    begin,
    check_records,
    check_size,
    newest_timestamp,
    recompressed,
    target_codec,
    timestamp_error,
)
from odradek.storage.batches.work import WorkSlice, run_unsliced
from odradek.storage.producers.entry import EndMarker, Origin

if TYPE_CHECKING:
    from odradek.protocol.schema import Buffer
    from odradek.storage.batches.work import SlicedWork
    from odradek.storage.config import LogConfig

LEGACY_MESSAGE_BYTES_MIN = 14
"""Minimum bytes after the length field of any message format (Kafka's `LegacyRecord.RECORD_OVERHEAD_V0`)."""
CONTROL_BYTES_MAX = 64 * 1024
"""Maximum bytes of the decompressed records of a control batch.

Kafka's control batches have one record of fewer than 100 bytes, and are not compressed.
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
    records: Buffer,
    origin: Origin,
    config: LogConfig,
    *,
    now_ms: int,
    allow_zstd: bool = True,
    work: WorkSlice | None = None,
) -> list[CheckedBatch]:
    """Validate the batches of an append by a leader. Return them; the caller assigns their offsets.

    `work` counts the work on records of a client's batch. Without it, the check has no pause. The batch of a
    coordinator has just been built by this broker, so its structure and checksum are not checked.

    Raises:
        RecordCheckPending: The check of a client's records needs more than one slice of `work`.
        Refusal: CORRUPT_MESSAGE, INVALID_RECORD, INVALID_TIMESTAMP, MESSAGE_TOO_LARGE, UNSUPPORTED_COMPRESSION_TYPE.
    """
    view = memoryview(records)
    if origin is Origin.COORDINATOR:
        return [_checked_built(view, config, now_ms)]
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
        if client or not header.is_control:  # without its marker, a transaction would stay open
            check_size(header.size, config)
        if not verify_crc(view, position, header):
            raise _corrupt(f"the checksum {header.crc} of the batch does not match its content")
        batch = _to_checked_batch(view, position, header)
        if client:
            _check_header(header)
        content = view[position : position + header.size]
        if header.is_control:
            batch.marker = read_marker(content, header)
        elif client:
            error = _header_error(header, config, now_ms)
            if error is not None or config.checks_records or (config.converts and _needs_codec(header, config)):
                examined = partial(_examined, content, batch, config, now_ms, error)
                if work is None:
                    return [run_unsliced(examined(WorkSlice(SLICE_UNITS)))]
                return [begin(examined(work), header, config)]
        checked.append(_stamped(batch, config, now_ms))
    return checked


def _checked_built(content: memoryview, config: LogConfig, now_ms: int) -> CheckedBatch:
    """Return the batch of records or the marker that a coordinator of this broker has built."""
    header = read_header(content)
    batch = _to_checked_batch(content, 0, header)
    if header.is_control:
        batch.marker = read_marker(content, header)
    else:  # a marker has no maximum size: without it, a transaction would stay open
        check_size(header.size, config)
        if config.converts and _needs_codec(header, config):
            batch = run_unsliced(_converted(content, batch, config, WorkSlice(SLICE_UNITS)))
    return _stamped(batch, config, now_ms)


def _stamped(batch: CheckedBatch, config: LogConfig, now_ms: int) -> CheckedBatch:
    """Set the timestamp of the append, if the topic has LogAppendTime. Return the batch."""
    if config.log_append_time:
        batch.set_timestamp(batch.header.attributes | LOG_APPEND_TIME, now_ms)
        if batch.marker is not None:
            batch.marker = replace(batch.marker, timestamp=now_ms)
    return batch


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
        for record in records_of(batch, header, max_decompressed_bytes=CONTROL_BYTES_MAX):
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


def _header_error(header: BatchHeader, config: LogConfig, now_ms: int) -> str | None:
    """Return the error of the timestamps of a client's header, which bound those of the records; None if there is none.

    Raise Refusal(INVALID_TIMESTAMP) if the header has a timestamp type that only a broker may set.
    """
    if header.timestamp_type:
        raise Refusal(ErrorCode.INVALID_TIMESTAMP, "a producer must not set the timestamp type LogAppendTime")
    if config.log_append_time:
        return None
    return timestamp_error(header.base_timestamp, config, now_ms) or timestamp_error(
        header.max_timestamp, config, now_ms
    )


def _needs_codec(header: BatchHeader, config: LogConfig) -> bool:
    """Return True if the topic requires another codec than that of the batch."""
    codec = target_codec(config)
    return codec is not None and codec != header.attributes & COMPRESSION_MASK


def _examined(
    content: memoryview, batch: CheckedBatch, config: LogConfig, now_ms: int, error: str | None, work: WorkSlice
) -> SlicedWork[CheckedBatch]:
    """Check the records of a client's batch. Return the batch to append, which a codec conversion replaces.

    `error` is the error of the header's timestamps. Records are then decoded to name those that are out of bounds.
    """
    header = batch.header
    newest, body = yield from check_records(content, header, config, now_ms, work)
    if error is not None:
        raise Refusal(ErrorCode.INVALID_TIMESTAMP, error)  # all records are within bounds, only the header is not
    codec = target_codec(config)
    if codec is not None and _needs_codec(header, config):
        batch = _to_converted((yield from recompressed(header, body, newest, codec, config, work)))
    elif newest != header.max_timestamp:
        batch.set_timestamp(header.attributes, newest)
    return _stamped(batch, config, now_ms)


def _converted(
    content: memoryview, batch: CheckedBatch, config: LogConfig, work: WorkSlice
) -> SlicedWork[CheckedBatch]:
    """Return a batch that no client sent in the codec of the topic."""
    header, codec = batch.header, target_codec(config)
    assert codec is not None
    if not header.record_count:
        raise _invalid("a batch without records cannot be converted")
    newest, body = yield from newest_timestamp(content, header, config, work)
    return _to_converted((yield from recompressed(header, body, newest, codec, config, work)))


def _to_converted(converted: bytes) -> CheckedBatch:
    return _to_checked_batch(memoryview(converted), 0, read_header(converted))


def _invalid(message: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_RECORD, message)


def _corrupt(message: str) -> Refusal:
    return Refusal(ErrorCode.CORRUPT_MESSAGE, message)
