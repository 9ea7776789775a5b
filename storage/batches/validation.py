"""What an append must fulfil before a byte of it is written, and how its batches are patched. Pure.

Every batch: magic, sizes, CRC, counts. Batches of clients also: exactly one, base offset 0, no control batch, a sequence
with every producer id, timestamps within the topic's bounds. The records inside are only decoded where something depends
on them (compacted topics need keys, a lower bound on timestamps needs each timestamp, conversion to the topic's codec) or
with `odradek.validate.records=all` (docs/decisions/0002-record-validation.md).
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
from odradek.storage.batches.record_errors import RecordErrors
from odradek.storage.batches.scan import BATCH_BYTES_MAX
from odradek.storage.config import COMPRESSION_AS_PRODUCED, LONG_MAX, UNCOMPRESSED, LogConfig
from odradek.storage.producers.entry import EndMarker, Origin

if TYPE_CHECKING:
    from odradek.protocol.schema import Buffer

LEGACY_MESSAGE_BYTES_MIN = 14  # the shortest message of magic 0: what the length of any format must reach
RECORD_BYTES_MAX = 128 * 1024 * 1024  # what one batch may expand to when it has to be decoded

_FRAME = Struct(">qiib")  # base offset, length, leader epoch, magic
_OFFSET = Struct(">q")
_LEADER_EPOCH = Struct(">i")
_ATTRIBUTES = Struct(">h")
_TIMESTAMP = Struct(">q")
_CRC = Struct(">I")


@dataclass(slots=True)
class CheckedBatch:
    """A batch that may be appended: its header, a copy of the header's bytes to patch, and the bytes behind it.

    The buffer that came in is never written to: it may be shared, and a request may be answered twice.
    """

    header: BatchHeader
    head: bytearray
    body: memoryview
    marker: EndMarker | None = None

    def place(self, first_offset: int, leader_epoch: int) -> None:
        """Give the batch its offsets and leader epoch; both lie outside of the checksum."""
        self.header.base_offset = first_offset
        self.header.leader_epoch = leader_epoch
        _OFFSET.pack_into(self.head, 0, first_offset)
        _LEADER_EPOCH.pack_into(self.head, 12, leader_epoch)

    def set_timestamp(self, attributes: int, max_timestamp: int) -> None:
        """Change timestamp type and maximum timestamp, and the checksum with them."""
        self.header.attributes, self.header.max_timestamp = attributes, max_timestamp
        _ATTRIBUTES.pack_into(self.head, ATTRIBUTES_AT, attributes)
        _TIMESTAMP.pack_into(self.head, MAX_TIMESTAMP_AT, max_timestamp)
        self.header.crc = crc32c(self.body, crc32c(memoryview(self.head)[ATTRIBUTES_AT:]))
        _CRC.pack_into(self.head, CRC_AT, self.header.crc)


def check_leader_append(
    records: Buffer, origin: Origin, config: LogConfig, *, now_ms: int, allow_zstd: bool = True
) -> list[CheckedBatch]:
    """The batches of an append, ready to be placed.

    Raises:
        Refusal: CORRUPT_MESSAGE, INVALID_RECORD, INVALID_TIMESTAMP, MESSAGE_TOO_LARGE, UNSUPPORTED_COMPRESSION_TYPE.
    """
    view = memoryview(records)
    batches = _split(view)
    client = origin is Origin.CLIENT
    if client:
        _check_produced(batches, view, allow_zstd=allow_zstd)
    elif not batches:
        raise _invalid("there is no batch to append")
    checked = []
    for position, header in batches:
        if client and header.base_offset != 0:
            raise _invalid(f"the batch has base offset {header.base_offset} instead of 0")
        _check_size(header, config)
        if not verify_crc(view, position, header):
            raise _corrupt(f"the checksum {header.crc} of the batch does not match its content")
        batch = _checked(view, position, header)
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
    """The whole batches of a fetched piece of the leader's log, up to the first of a later epoch than `leader_epoch`.

    They lie one behind the other from the first byte on, and are written as they are. Raises Refusal(CORRUPT_MESSAGE).
    """
    view = memoryview(records)
    checked: list[tuple[BatchHeader, EndMarker | None]] = []
    for position, header in _split(view):
        if leader_epoch is not None and header.leader_epoch > leader_epoch:
            return checked
        if not verify_crc(view, position, header):
            raise _corrupt(f"the checksum {header.crc} of the batch at offset {header.base_offset} does not match")
        marker = read_marker(view[position : position + header.size], header) if header.is_control else None
        checked.append((header, marker))
    return checked


def read_marker(batch: Buffer, header: BatchHeader) -> EndMarker | None:
    """The transaction marker in a control batch; None for the other control records, which belong to no producer.

    Raises:
        Refusal: INVALID_RECORD for content that cannot be one.
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
    return None  # compaction has removed the marker and kept the batch for its producer


def _split(view: memoryview) -> list[tuple[int, BatchHeader]]:
    """Whole batches with their positions; a partial one at the end is left out, as Kafka does."""
    batches = []
    position, end = 0, len(view)
    while end - position > MAGIC_AT:
        if end - position >= HEADER_BYTES and view[position + MAGIC_AT] == MAGIC:
            try:
                header = read_header(view, position)
            except Malformed:
                pass  # told below, in Kafka's order
            else:
                if header.size > end - position:
                    break
                batches.append((position, header))
                position += header.size
                continue
        _, length, _, magic = _FRAME.unpack_from(view, position)
        if length < LEGACY_MESSAGE_BYTES_MIN:
            raise _corrupt(f"a batch of {length} bytes is too short for any format")
        if not 0 <= magic <= MAGIC:
            raise _corrupt(f"magic {magic} does not exist")
        if length > end - position - LENGTH_OVERHEAD:
            break
        if magic != MAGIC:
            raise _invalid(f"message format {magic} is not supported, only {MAGIC} is")
        if length < BATCH_LENGTH_MIN:
            raise _corrupt(f"a batch of {length} bytes is shorter than its header")
        try:
            batches.append((position, read_header(view, position)))
        except Malformed as error:
            raise _invalid(str(error)) from error
        position += length + LENGTH_OVERHEAD
    return batches


def _checked(view: memoryview, position: int, header: BatchHeader) -> CheckedBatch:
    body_at = position + HEADER_BYTES
    return CheckedBatch(header, bytearray(view[position:body_at]), view[body_at : position + header.size])


def _check_produced(batches: list[tuple[int, BatchHeader]], view: memoryview, *, allow_zstd: bool) -> None:
    if len(batches) != 1:
        raise _invalid(f"a produce request must have exactly one batch for a partition; this one has {len(batches)}")
    codec = batches[0][1].attributes & COMPRESSION_MASK
    if codec == Compression.ZSTD and not allow_zstd:
        raise Refusal(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs version 7 of the produce request")
    if codec > Compression.ZSTD:
        raise _invalid(f"compression {codec} does not exist")


def _check_size(header: BatchHeader, config: LogConfig) -> None:
    if header.size > min(config.max_message_bytes, BATCH_BYTES_MAX):
        raise Refusal(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {header.size} bytes, max.message.bytes of the topic is {config.max_message_bytes}",
        )


def _check_header(header: BatchHeader) -> None:
    """What a client's batch must say of itself."""
    if header.record_count <= 0 or header.record_count != header.last_offset_delta + 1:
        raise _invalid(
            f"the batch announces {header.record_count} records and a last offset delta of {header.last_offset_delta}"
        )
    if header.is_control:
        raise _invalid("clients must not write control batches")
    if header.has_producer and header.base_sequence < 0:
        raise _invalid(f"producer {header.producer_id} sent a batch without a sequence number")


def _check_content(
    batch_bytes: memoryview, batch: CheckedBatch, origin: Origin, config: LogConfig, now_ms: int
) -> CheckedBatch:
    """Timestamps, keys and codec of a data batch; the batch to append, which is another one after a conversion."""
    header = batch.header
    if origin is Origin.CLIENT:
        if header.timestamp_type:
            raise Refusal(ErrorCode.INVALID_TIMESTAMP, "a producer must not set the timestamp type LogAppendTime")
        if not config.log_append_time:
            _check_header_timestamps(batch_bytes, header, config, now_ms)
        bounded_below = config.message_timestamp_before_max_ms != LONG_MAX and not config.log_append_time
        if config.compacted or config.validate_records_all or bounded_below:
            newest = _check_records(batch_bytes, header, config, now_ms)
            if newest != header.max_timestamp:
                batch.set_timestamp(header.attributes, newest)
    codec = _target_codec(config)
    if codec is None or codec == header.attributes & COMPRESSION_MASK or origin is Origin.RAFT_LEADER:
        return batch
    return _convert(batch_bytes, header, codec, config)


def _check_header_timestamps(batch: memoryview, header: BatchHeader, config: LogConfig, now_ms: int) -> None:
    """The header bounds the records; only when it is out of range are they looked at, to name the ones to blame."""
    for timestamp in (header.base_timestamp, header.max_timestamp):
        wrong = _wrong_timestamp(timestamp, config, now_ms)
        if wrong is not None:
            _check_records(batch, header, config, now_ms)
            raise Refusal(ErrorCode.INVALID_TIMESTAMP, wrong)  # the header alone is wrong


def _wrong_timestamp(timestamp: int, config: LogConfig, now_ms: int) -> str | None:
    """What is wrong with it, None when nothing is."""
    if timestamp == NO_TIMESTAMP:
        return None
    if -config.message_timestamp_after_max_ms <= now_ms - timestamp <= config.message_timestamp_before_max_ms:
        return None
    return (
        f"timestamp {timestamp} is out of the range of the topic, which is from "
        f"{now_ms - config.message_timestamp_before_max_ms} to {now_ms + config.message_timestamp_after_max_ms}"
    )


def _check_records(batch: memoryview, header: BatchHeader, config: LogConfig, now_ms: int) -> int:
    """Look at each record of a client's batch; the newest timestamp among them."""
    newest = NO_TIMESTAMP
    errors = RecordErrors()
    try:
        for index, record in enumerate(iter_records(batch, max_decompressed_bytes=RECORD_BYTES_MAX)):
            if record.offset != header.base_offset + index:
                errors.bad_record(index, f"offset {record.offset} instead of {header.base_offset + index}")
            if record.key is None and config.compacted:
                errors.bad_record(index, "a compacted topic takes no record without a key")
            if not config.log_append_time:
                wrong = _wrong_timestamp(record.timestamp, config, now_ms)
                if wrong is not None:
                    errors.bad_timestamp(index, wrong)
            newest = max(newest, record.timestamp)
    except Malformed as error:
        raise _invalid(f"the records of the batch cannot be decoded: {error}") from error
    errors.raise_if_any()
    return newest


def _target_codec(config: LogConfig) -> Compression | None:
    """The codec that the topic asks for, None when producers choose."""
    if config.compression_type == COMPRESSION_AS_PRODUCED:
        return None
    if config.compression_type == UNCOMPRESSED:
        return Compression.NONE
    return Compression[config.compression_type.upper()]


def _convert(batch: memoryview, header: BatchHeader, codec: Compression, config: LogConfig) -> CheckedBatch:
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
    return _checked(converted, 0, new_header)


def _invalid(message: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_RECORD, message)


def _corrupt(message: str) -> Refusal:
    return Refusal(ErrorCode.CORRUPT_MESSAGE, message)
