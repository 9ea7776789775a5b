"""Find the fields of many records together, as arrays of positions and numbers. Keys and values are not copied."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from odradek.protocol.batch import HEADER_BYTES, Compression
from odradek.protocol.compression import decompress
from odradek.protocol.errors import Malformed
from odradek.protocol.primitives import read_varint
from odradek.protocol.record import RECORD_BYTES_MIN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from odradek.protocol.batch import BatchHeader
    from odradek.protocol.schema import Buffer

    Int64s = NDArray[np.int64]
    Bytes = NDArray[np.uint8]

DECOMPRESSED_BYTES_MAX: Final = 256 * 2**20
"""Maximum size of one batch after decompression, in bytes. It bounds the memory of a task."""
CONTENT_BYTES_MAX: Final = 2**31 - 1
"""Maximum bytes of the records that become one Arrow batch: positions in an Arrow column have 32 bits."""
VARINT_BYTES_MAX: Final = 5
VARLONG_BYTES_MAX: Final = 10
PADDING: Final = bytes(2 * VARLONG_BYTES_MAX)
"""Bytes behind the last record, so that the decoder of varints need not check the end of the buffer."""


class Body(NamedTuple):
    """Header and decompressed records of a batch."""

    header: BatchHeader
    records: Buffer


def body_of(header: BatchHeader, batch: Buffer) -> Body:
    """Decompress the records of a batch. Raise Malformed if they are damaged or too large."""
    records: Buffer = memoryview(batch)[HEADER_BYTES : header.size]
    if header.compression is not Compression.NONE:
        records = decompress(header.compression, records, max_bytes=DECOMPRESSED_BYTES_MAX)
    if header.record_count * RECORD_BYTES_MIN > len(records):
        raise Malformed(f"batch at offset {header.base_offset}: too few bytes for {header.record_count} records")
    return Body(header, records)


@dataclass(frozen=True, slots=True)
class Records:
    """Records of several batches, in the order of their offsets. All arrays have one element per record.

    Attributes:
        content: The decompressed records, one behind the other.
        batch: Index of the batch.
        offset_delta: Offset, relative to the batch.
        offset: Offset.
        timestamp_ms: Timestamp in milliseconds.
        key_begin: Position of the key in `content`. Without a key, it is equal to `key_end`.
        key_end: Position behind the key.
        key_null: Whether the record has no key.
        value_begin: Position of the value.
        value_end: Position behind the value, where the number of headers begins.
        value_null: Whether the record has no value.
        header_count: Number of headers.
        end: Position behind the record.
    """

    content: bytes
    batch: Int64s
    offset_delta: Int64s
    offset: Int64s
    timestamp_ms: Int64s
    key_begin: Int64s
    key_end: Int64s
    key_null: NDArray[np.bool_]
    value_begin: Int64s
    value_end: Int64s
    value_null: NDArray[np.bool_]
    header_count: Int64s
    end: Int64s

    def within(self, start: int, end: int) -> Records:
        """Return the records with offsets from `start` until before `end`."""
        wanted = (self.offset >= start) & (self.offset < end)
        if wanted.all():
            return self
        fields = {name: getattr(self, name)[wanted] for name in self.__slots__ if name != "content"}
        return Records(content=self.content, **fields)


def find_records(bodies: Sequence[Body]) -> Records:
    """Find the records of batches. Raise Malformed if one is damaged, or if they exceed CONTENT_BYTES_MAX."""
    size = sum(len(body.records) for body in bodies) + len(PADDING)
    if size > CONTENT_BYTES_MAX:
        first = bodies[0].header.base_offset
        raise Malformed(f"batch at offset {first}: the records have {size} bytes, more than {CONTENT_BYTES_MAX}")
    content = b"".join([*(body.records for body in bodies), PADDING])
    begins: list[int] = []
    ends: list[int] = []
    position = 0
    for header, records in bodies:
        following = position + len(records)
        if _walk(content, position, header.record_count, begins, ends) != following:
            raise Malformed(f"batch at offset {header.base_offset}: the records have another size than the batch")
        position = following
    try:
        return _records(bodies, content, np.array(begins, np.int64), np.array(ends, np.int64))
    except IndexError as error:
        raise Malformed(f"a record after offset {bodies[0].header.base_offset} exceeds its batch") from error


def _walk(content: bytes, position: int, count: int, begins: list[int], ends: list[int]) -> int:
    """Add begin and end of each record, without its length. Return the position behind the last one."""
    add_begin, add_end = begins.append, ends.append
    last = len(content) - len(PADDING)
    for _ in range(count):
        length = content[position]
        if length < 0x80:  # fast paths: most lengths have one byte or two
            position += 1
            length = length >> 1 ^ -(length & 1)
        elif (high := content[position + 1]) < 0x80:
            position += 2
            length = (length & 0x7F | high << 7) >> 1 ^ -(length & 1)
        else:
            length, position = read_varint(content, position)
        add_begin(position)
        position += length
        add_end(position)
        if length < RECORD_BYTES_MIN - 1 or position > last:
            raise Malformed(f"invalid record length {length} at byte {position}")
    return position


def _records(bodies: Sequence[Body], content: bytes, begin: Int64s, end: Int64s) -> Records:
    data = np.frombuffer(content, np.uint8)
    timestamp_delta, at = _varints(data, begin + 1, VARLONG_BYTES_MAX)  # one byte of attributes, which Kafka ignores
    offset_delta, at = _varints(data, at, VARINT_BYTES_MAX)
    key_length, key_begin = _varints(data, at, VARINT_BYTES_MAX)
    key_end = key_begin + np.maximum(key_length, 0)
    value_length, value_begin = _varints(data, key_end, VARINT_BYTES_MAX)
    value_end = value_begin + np.maximum(value_length, 0)
    header_count, headers_begin = _varints(data, value_end, VARINT_BYTES_MAX)
    valid = (key_length >= -1) & (value_length >= -1) & (header_count >= 0)
    valid &= np.where(header_count == 0, headers_begin == end, headers_begin < end)
    counts = [body.header.record_count for body in bodies]
    batch = np.repeat(np.arange(len(bodies)), counts)
    if not valid.all():
        damaged = bodies[int(batch[int(np.flatnonzero(~valid)[0])])].header
        raise Malformed(f"batch at offset {damaged.base_offset}: a field exceeds its record")
    base_offset = np.array([body.header.base_offset for body in bodies], np.int64)
    return Records(
        content=content,
        batch=batch,
        offset_delta=offset_delta,
        offset=base_offset[batch] + offset_delta,
        timestamp_ms=_timestamps(bodies, batch, timestamp_delta),
        key_begin=key_begin,
        key_end=key_end,
        key_null=key_length < 0,
        value_begin=value_begin,
        value_end=value_end,
        value_null=value_length < 0,
        header_count=header_count,
        end=end,
    )


def _timestamps(bodies: Sequence[Body], batch: Int64s, delta: Int64s) -> Int64s:
    """Return the timestamps. With LogAppendTime, each record has the maximum timestamp of its batch."""
    append_time = np.array([bool(body.header.timestamp_type) for body in bodies])
    base = [each.max_timestamp if each.timestamp_type else each.base_timestamp for each, _ in bodies]
    return np.array(base, np.int64)[batch] + np.where(append_time[batch], 0, delta)


def _varints(data: Bytes, at: Int64s, bytes_max: int) -> tuple[Int64s, Int64s]:
    """Decode a signed varint at each position. Return the numbers and the positions behind them."""
    first = data[at]
    value = (first & 0x7F).astype(np.uint64)
    following = at + 1
    more = np.flatnonzero(first & 0x80)
    for index in range(1, bytes_max):
        if not more.size:
            break
        byte = data[following[more]]
        value[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(7 * index)
        following[more] += 1
        more = more[(byte & 0x80) != 0]
    if more.size:
        raise Malformed(f"a varint has more than {bytes_max} bytes")
    return (value >> np.uint64(1)).astype(np.int64) ^ -(value & np.uint64(1)).astype(np.int64), following
