"""Encode and decode record batches of magic 2 and control batches (KIP-98).

The header has 61 bytes. The checksum covers all bytes from the attributes on. Base offset and leader epoch come before
the attributes, so a broker can change them without a new checksum.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from struct import Struct as Packer
from typing import TYPE_CHECKING, Final

from crc32c import crc32c

from odradek.protocol.compression import Compression, compress, decompress
from odradek.protocol.errors import Malformed
from odradek.protocol.record import NewRecord, Record, read_records, record_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from odradek.protocol.schema import Buffer

__all__ = [
    "ATTRIBUTES_AT",
    "BASE_OFFSET_AT",
    "BATCH_LENGTH_MIN",
    "COMPRESSION_MASK",
    "CONTROL",
    "CRC_AT",
    "DELETE_HORIZON",
    "HEADER_BYTES",
    "LEADER_EPOCH_AT",
    "LENGTH_AT",
    "LENGTH_OVERHEAD",
    "LOG_APPEND_TIME",
    "MAGIC",
    "MAGIC_AT",
    "MAX_TIMESTAMP_AT",
    "NO_PRODUCER_EPOCH",
    "NO_PRODUCER_ID",
    "NO_SEQUENCE",
    "NO_TIMESTAMP",
    "SEQUENCE_MAX",
    "TRANSACTIONAL",
    "BatchHeader",
    "Compression",
    "ControlType",
    "NewRecord",
    "Record",
    "UnsupportedMagic",
    "build_batch",
    "control_key",
    "control_type",
    "decrement_sequence",
    "end_txn_marker",
    "increment_sequence",
    "iter_batches",
    "iter_records",
    "parse_end_txn_marker",
    "plain_end_txn_marker",
    "read_header",
    "records_of",
    "seal_batch",
    "verify_crc",
]

HEADER_BYTES: Final = 61
LENGTH_OVERHEAD: Final = 12  # bytes that the length field does not count: base offset and length
BATCH_LENGTH_MIN: Final = HEADER_BYTES - LENGTH_OVERHEAD
MAGIC: Final = 2
BASE_OFFSET_AT: Final = 0
LENGTH_AT: Final = 8
LEADER_EPOCH_AT: Final = 12
MAGIC_AT: Final = 16
CRC_AT: Final = 17
ATTRIBUTES_AT: Final = 21  # the checksum covers all bytes from this position on
MAX_TIMESTAMP_AT: Final = 35

COMPRESSION_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_TIMESTAMP: Final = -1
SEQUENCE_MAX: Final = 2_147_483_647
CONTROL_KEY_BYTES: Final = 4
END_TXN_VALUE_BYTES: Final = 6

_HEADER: Final = Packer(">qiibIhiqqqhii")
_FRONT: Final = Packer(">qiibI")
_CHECKED: Final = Packer(">hiqqqhii")
_CONTROL_KEY: Final = Packer(">hh")
_END_TXN_VALUE: Final = Packer(">hi")
_PLAIN_MARKER: Final = Packer(">8sB3siB")
_PLAIN_MARKER_FRAME: Final = (b"\x20\x00\x00\x00\x08\x00\x00\x00", b"\x0c\x00\x00", 0)
"""The bytes of a marker record around its type and coordinator epoch.

They are: record length 16, attributes and deltas 0, key of 4 bytes, value of 6 bytes, both with version 0, no headers.
"""
_PLAIN_MARKER_BYTES: Final = HEADER_BYTES + 17


class ControlType(IntEnum):
    """Type of a control record, from its key. UNKNOWN represents all other types; readers skip such records."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


_COMPRESSIONS: Final = {int(member): member for member in Compression}
_CONTROL_TYPES: Final = {int(member): member for member in ControlType}


class UnsupportedMagic(Malformed):
    """The bytes are not a batch of magic 2. They may be a message of an older format."""


@dataclass(slots=True)
class BatchHeader:
    """Header of a record batch, with its fields in wire order.

    Timestamps are milliseconds. -1 means that there is no value.
    """

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Size of the whole batch in bytes."""
        return self.batch_length + LENGTH_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return increment_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def has_delete_horizon(self) -> bool:
        return bool(self.attributes & DELETE_HORIZON)

    @property
    def compression(self) -> Compression:
        """Compression codec of the records. Raise Malformed if the codec is unknown."""
        found = _COMPRESSIONS.get(self.attributes & COMPRESSION_MASK)
        if found is None:
            raise Malformed(f"unknown compression codec {self.attributes & COMPRESSION_MASK}")
        return found

    @property
    def timestamp_type(self) -> int:
        """Timestamp type: 0 is CreateTime, 1 is LogAppendTime."""
        return 1 if self.attributes & LOG_APPEND_TIME else 0

    @property
    def has_producer(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Decode the batch header at `position`. The rest of the batch may be missing.

    Raise UnsupportedMagic if the magic is not 2. Raise Malformed if the header is incomplete or its sizes are invalid.
    """
    available = len(buffer) - position
    if available > MAGIC_AT and buffer[position + MAGIC_AT] != MAGIC:
        raise UnsupportedMagic(
            f"magic {buffer[position + MAGIC_AT]} at byte {position + MAGIC_AT}: only 2 is supported"
        )
    if available < HEADER_BYTES:
        raise Malformed(f"batch header at byte {position}: only {available} of {HEADER_BYTES} bytes")
    header = BatchHeader(*_HEADER.unpack_from(buffer, position))
    if header.batch_length < BATCH_LENGTH_MIN:
        raise Malformed(f"batch at byte {position}: length {header.batch_length} is below {BATCH_LENGTH_MIN}")
    if header.record_count < 0 or header.last_offset_delta < 0:
        raise Malformed(
            f"batch at byte {position}: record count {header.record_count} or last offset delta"
            f" {header.last_offset_delta} is negative"
        )
    return header


def verify_crc(buffer: Buffer, position: int, header: BatchHeader) -> bool:
    """Return True if the whole batch is in the buffer and its CRC-32C is correct."""
    end = position + header.size
    if end > len(buffer):
        return False
    return crc32c(memoryview(buffer)[position + ATTRIBUTES_AT : end]) == header.crc


def iter_batches(buffer: Buffer) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Iterate over the complete batches in `buffer`. Skip an incomplete batch at the end, as Fetch responses have one.

    Raise Malformed if a header is invalid. Checksums are not verified.
    """
    view = memoryview(buffer)
    position, end = 0, len(view)
    while end - position >= HEADER_BYTES:
        header = read_header(view, position)
        following = position + header.size
        if following > end:
            return
        yield header, view[position:following]
        position = following


def iter_records(batch: Buffer, *, max_decompressed_bytes: int) -> Iterator[Record]:
    """Iterate over the records of the first batch in `batch`. Ignore the bytes after it.

    With LogAppendTime, every record has the batch's maximum timestamp. Raise Malformed if the batch is invalid,
    possibly after some records.
    """
    return records_of(batch, read_header(batch), max_decompressed_bytes=max_decompressed_bytes)


def records_of(
    batch: Buffer, header: BatchHeader, *, max_decompressed_bytes: int, headers_max: int | None = None
) -> Iterator[Record]:
    """Iterate over the records of a batch whose header has been decoded. Otherwise the same as `iter_records`.

    Skip the headers of each record after the first `headers_max` (`read_records`).
    """
    view = memoryview(batch)
    if header.size > len(view):
        raise Malformed(f"batch of {header.size} bytes ends after {len(view)} bytes")
    compression = header.compression
    body: Buffer = view[HEADER_BYTES : header.size]
    if compression is not Compression.NONE:
        body = decompress(compression, body, max_bytes=max_decompressed_bytes)
    append_time = header.max_timestamp if header.timestamp_type else None
    return read_records(
        body,
        header.record_count,
        header.base_offset,
        header.base_timestamp,
        append_time,
        headers_max=headers_max,
    )


def build_batch(
    records: Iterable[NewRecord | Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    compression: Compression = Compression.NONE,
    level: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    timestamp_type: int = 0,
) -> bytes:
    """Encode one batch with at least one record.

    A record is either (key, value, timestamp in ms, headers) or a Record. Tuples get consecutive offsets from
    `base_offset` on. A Record keeps its offset. Raise ValueError if there is no record, or if the first offset is less
    than `base_offset`.
    """
    rows = [
        (row.offset - base_offset, row.key, row.value, row.timestamp, row.headers)
        if isinstance(row, Record)
        else (index, *row)
        for index, row in enumerate(records)
    ]
    if not rows or rows[0][0] < 0:
        raise ValueError("a batch must have a record, and its first offset must not be less than the base offset")
    base_timestamp = rows[0][3]
    body = b"".join(
        [record_bytes(delta, key, value, at - base_timestamp, headers) for delta, key, value, at, headers in rows]
    )
    if compression is not Compression.NONE:
        body = compress(compression, body, level)
    attributes = compression | (LOG_APPEND_TIME if timestamp_type else 0)
    attributes |= (TRANSACTIONAL if transactional else 0) | (CONTROL if control else 0)
    newest = base_timestamp if len(rows) == 1 else max(row[3] for row in rows)
    # fmt: off
    return _sealed(
        body, base_offset, leader_epoch, MAGIC, attributes, rows[-1][0], base_timestamp, newest, producer_id,
        producer_epoch, base_sequence, len(rows),
    )
    # fmt: on


def seal_batch(header: BatchHeader, body: Buffer) -> bytes:
    """Encode a batch from header and body. Compute its length and checksum. The batch may have no records."""
    # fmt: off
    return _sealed(
        body, header.base_offset, header.leader_epoch, header.magic, header.attributes, header.last_offset_delta,
        header.base_timestamp, header.max_timestamp, header.producer_id, header.producer_epoch, header.base_sequence,
        header.record_count,
    )
    # fmt: on


def _sealed(body: Buffer, base_offset: int, leader_epoch: int, magic: int, *checked: int) -> bytes:
    """Encode a batch. `checked` are the header fields after the checksum; the checksum covers them and the body."""
    content = b"".join((_CHECKED.pack(*checked), body))
    length = BATCH_LENGTH_MIN + len(body)
    return _FRONT.pack(base_offset, length, leader_epoch, magic, crc32c(content)) + content


def control_key(control: ControlType) -> bytes:
    return _CONTROL_KEY.pack(0, control)


def control_type(key: Buffer | None) -> ControlType:
    """Decode the type from the key of a control record. Decode later versions of the key like version 0.

    Raise Malformed if the key is too short or has a negative version.
    """
    if key is None or len(key) < CONTROL_KEY_BYTES:
        raise Malformed("control record key has fewer than four bytes")
    version, number = _CONTROL_KEY.unpack_from(key)
    if version < 0:
        raise Malformed(f"control record key has the negative version {version}")
    return _CONTROL_TYPES.get(number, ControlType.UNKNOWN)


def end_txn_marker(
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    commit: bool,
    timestamp: int,
) -> bytes:
    """Encode a batch with one COMMIT or ABORT marker: 78 bytes, base offset 0, leader epoch -1."""
    key = control_key(ControlType.COMMIT if commit else ControlType.ABORT)
    return build_batch(
        [(key, _END_TXN_VALUE.pack(0, coordinator_epoch), timestamp, ())],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def plain_end_txn_marker(batch: Buffer, header: BatchHeader) -> tuple[bool, int] | None:
    """Decode a marker batch that has exactly the form of `end_txn_marker`. Return (is commit, coordinator epoch).

    Return None for any other batch. The caller then decodes its records. This is a fast path: nearly all markers have
    this form, and every replica decodes each marker.
    """
    if header.size != _PLAIN_MARKER_BYTES or header.size != len(batch) or header.attributes != TRANSACTIONAL | CONTROL:
        return None
    before, kind, between, coordinator_epoch, behind = _PLAIN_MARKER.unpack_from(batch, HEADER_BYTES)
    if header.record_count != 1 or kind > ControlType.COMMIT or (before, between, behind) != _PLAIN_MARKER_FRAME:
        return None
    return kind == ControlType.COMMIT, coordinator_epoch


def parse_end_txn_marker(value: Buffer | None) -> int:
    """Decode the coordinator epoch from the value of a marker. Decode later versions of the value like version 0.

    Raise Malformed if the value is too short or has a negative version.
    """
    if value is None or len(value) < END_TXN_VALUE_BYTES:
        raise Malformed("transaction marker value has fewer than six bytes")
    version, coordinator_epoch = _END_TXN_VALUE.unpack_from(value)
    if version < 0:
        raise Malformed(f"transaction marker value has the negative version {version}")
    return int(coordinator_epoch)


def increment_sequence(sequence: int, by: int) -> int:
    """Add `by` to a sequence. The sequence after 2147483647 is 0."""
    if sequence > SEQUENCE_MAX - by:
        return by - (SEQUENCE_MAX - sequence) - 1
    return sequence + by


def decrement_sequence(sequence: int, by: int) -> int:
    """Subtract `by` from a sequence. The sequence before 0 is 2147483647."""
    if sequence < by:
        return SEQUENCE_MAX - (by - sequence) + 1
    return sequence - by
