"""One record of a batch: variable-length, relative to the batch's base offset and base timestamp."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from odradek.protocol.errors import Malformed
from odradek.protocol.primitives import read_varint, read_varlong, varint

if TYPE_CHECKING:
    from odradek.protocol.schema import Buffer

RECORD_BYTES_MIN: Final = 7  # length, attributes, both deltas, key length, value length, header count
RECORD_HEADER_BYTES_MIN: Final = 2
INT64_MIN: Final = -(1 << 63)
INT64_MAX: Final = (1 << 63) - 1

Headers = Sequence[tuple[str, bytes | None]]
_NULL: Final = (b"\x01", b"")
NewRecord = tuple[bytes | None, bytes | None, int, Headers]


@dataclass(slots=True)
class Record:
    """One record with its absolute offset and timestamp."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def read_records(
    body: Buffer,
    count: int,
    base_offset: int,
    base_timestamp: int,
    append_time: int | None,
) -> Iterator[Record]:
    """The records of a decompressed body, which must hold exactly `count`. Raises Malformed, possibly after some of them."""
    position, end = 0, len(body)
    if count * RECORD_BYTES_MIN > end:
        raise Malformed(f"{count} records cannot fit into {end} bytes")
    for _ in range(count):
        length, position = read_varint(body, position)
        following = position + length
        if length < RECORD_BYTES_MIN - 1 or following > end:
            raise Malformed(f"record of {length} bytes at byte {position} does not fit")
        if body[position + 1] == 0 == body[position + 2]:  # the deltas of a first record, without two calls
            timestamp_delta = offset_delta = 0
            position += 3
        else:
            timestamp_delta, position = read_varlong(body, position + 1)  # a record's attributes are not used
            offset_delta, position = read_varint(body, position)
        key, position = _content(body, position, following)
        value, position = _content(body, position, following)
        headers, position = _headers(body, position, following)
        if position != following:
            raise Malformed(f"record ends at byte {position}, its length says {following}")
        timestamp = base_timestamp + timestamp_delta if append_time is None else append_time
        if not INT64_MIN <= timestamp <= INT64_MAX:
            raise Malformed(f"timestamp of the record that ends at byte {position} does not fit 64 bits")
        yield Record(base_offset + offset_delta, timestamp, key, value, headers)
    if position != end:
        raise Malformed(f"{end - position} bytes follow the last record")


def plain_record(body: Buffer) -> tuple[bytes | None, bytes | None] | None:
    """(key, value) of the one record of a decompressed body, where it has neither deltas nor headers.

    None for every other: `read_records` reads them, or says what is wrong. Coordinators write most of their batches so.
    """
    end = len(body)
    length, position = read_varint(body, 0)
    if length < RECORD_BYTES_MIN - 1 or position + length != end or body[position + 1] or body[position + 2]:
        return None
    key, position = _content(body, position + 3, end)
    value, position = _content(body, position, end)
    return None if position != end - 1 or body[position] else (key, value)


class RawRecord(NamedTuple):
    """Where the parts of a record lie in its body, and what tells whether it is needed."""

    start: int
    timestamp_at: int
    offset_delta_at: int
    """Behind the timestamp's delta; from here to `end` nothing depends on the batch's base timestamp."""
    end: int
    timestamp_delta: int
    offset_delta: int
    key: Buffer | None
    has_value: bool


def read_raw_records(body: Buffer, count: int) -> Iterator[RawRecord]:
    """The records of a decompressed body without their values and headers. Raises Malformed, possibly after some of them."""
    position, end = 0, len(body)
    if count * RECORD_BYTES_MIN > end:
        raise Malformed(f"{count} records cannot fit into {end} bytes")
    for _ in range(count):
        start = position
        length, position = read_varint(body, position)
        following = position + length
        if length < RECORD_BYTES_MIN - 1 or following > end:
            raise Malformed(f"record of {length} bytes at byte {position} does not fit")
        timestamp_at = position + 1
        timestamp_delta, offset_delta_at = read_varlong(body, timestamp_at)
        offset_delta, position = read_varint(body, offset_delta_at)
        key, position = _content(body, position, following)
        value_length, position = read_varint(body, position)
        if value_length > following - position:
            raise Malformed(f"length {value_length} at byte {position} runs past the record")
        yield RawRecord(
            start, timestamp_at, offset_delta_at, following, timestamp_delta, offset_delta, key, value_length >= 0
        )
        position = following
    if position != end:
        raise Malformed(f"{end - position} bytes follow the last record")


def at_base_timestamp(body: Buffer, record: RawRecord, timestamp_delta: int) -> bytes:
    """The record's bytes with another difference to the base timestamp of its batch."""
    head = bytes(body[record.timestamp_at - 1 : record.timestamp_at]) + varint(timestamp_delta)
    rest = body[record.offset_delta_at : record.end]
    return b"".join((varint(len(head) + len(rest)), head, rest))


def _content(body: Buffer, position: int, end: int) -> tuple[bytes | None, int]:
    if position < end and body[position] < 0x80:  # one byte: the usual case, without a call
        length = (body[position] >> 1) ^ -(body[position] & 1)
        position += 1
    else:
        length, position = read_varint(body, position)
    if length < 0:
        if length != -1:
            raise Malformed(f"negative length {length} at byte {position}")
        return None, position
    if length > end - position:
        raise Malformed(f"length {length} at byte {position} runs past the record")
    return bytes(body[position : position + length]), position + length


def _headers(body: Buffer, position: int, end: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    if position < end and body[position] == 0:
        return (), position + 1
    count, position = read_varint(body, position)
    if count < 0 or count * RECORD_HEADER_BYTES_MIN > end - position:
        raise Malformed(f"{count} headers at byte {position} cannot fit")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, position = _content(body, position, end)
        if name is None:
            raise Malformed(f"header without a name at byte {position}")
        value, position = _content(body, position, end)
        try:
            headers.append((name.decode(), value))
        except UnicodeDecodeError as error:
            raise Malformed(f"name of a header before byte {position} is not UTF-8") from error
    return tuple(headers), position


def record_bytes(
    offset_delta: int, key: bytes | None, value: bytes | None, timestamp_delta: int, headers: Headers
) -> bytes:
    pieces: list[bytes] = [b"\x00", varint(timestamp_delta), varint(offset_delta)]
    for content in (key, value):
        pieces += _NULL if content is None else (varint(len(content)), content)
    if headers:
        pieces.append(varint(len(headers)))
        for name, content in headers:
            pieces += _sized(name.encode())
            pieces += _sized(content)
    else:
        pieces.append(b"\x00")
    body = b"".join(pieces)
    return varint(len(body)) + body


def _sized(content: bytes | None) -> tuple[bytes, bytes]:
    return _NULL if content is None else (varint(len(content)), content)
