"""Encode and decode the records of a batch. Their offsets and timestamps are relative to the header of the batch."""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from odradek.protocol.errors import Malformed
from odradek.protocol.primitives import INT64_MAX, INT64_MIN, read_varint, read_varlong, varint

if TYPE_CHECKING:
    from odradek.protocol.schema import Buffer

RECORD_BYTES_MIN: Final = 7
"""Minimum bytes of a record: length, attributes, both deltas, key length, value length and header count."""
RECORD_HEADER_BYTES_MIN: Final = 2
NAME_PIECE_BYTES: Final = 16_384  # a longer header name is decoded in pieces; one piece takes about 10 microseconds
COPIED_BYTES_MAX: Final = 65_536  # bytes of a key above which compaction does not copy it

Headers = Sequence[tuple[str, bytes | None]]
_NULL: Final = (b"\x01", b"")
NewRecord = tuple[bytes | None, bytes | None, int, Headers]


@dataclass(slots=True)
class Record:
    """Record with its absolute offset and timestamp."""

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
    *,
    headers_max: int | None = None,
) -> Iterator[Record]:
    """Iterate over the records of a decompressed body.

    Raise Malformed if the body is not exactly `count` valid records, possibly after some records. With `headers_max`,
    skip the headers of each record after that many: the work on a record then does not depend on their number.
    """
    position, end = 0, len(body)
    if count * RECORD_BYTES_MIN > end:
        raise Malformed(f"{count} records cannot fit into {end} bytes")
    for _ in range(count):
        length, position = read_varint(body, position)
        following = position + length
        if length < RECORD_BYTES_MIN - 1 or following > end:
            raise Malformed(f"invalid record length {length} at byte {position}")
        if body[position + 1] == 0 == body[position + 2]:  # fast path for the first record: both deltas are 0
            timestamp_delta = offset_delta = 0
            position += 3
        else:
            timestamp_delta, position = read_varlong(
                body, position + 1
            )  # position + 1 skips the attributes, which Kafka does not use
            offset_delta, position = read_varint(body, position)
        key, position = _content(body, position, following)
        value, position = _content(body, position, following)
        headers: tuple[tuple[str, bytes | None], ...] = ()
        if headers_max == 0:
            position = following
        else:
            headers, position = read_headers(body, position, following, headers_max)
        if position != following:
            raise Malformed(f"record ends at byte {position}, but its length gives byte {following}")
        timestamp = base_timestamp + timestamp_delta if append_time is None else append_time
        if not INT64_MIN <= timestamp <= INT64_MAX:
            raise Malformed(f"timestamp of the record that ends at byte {position} exceeds 64 bits")
        yield Record(base_offset + offset_delta, timestamp, key, value, headers)
    if position != end:
        raise Malformed(f"{end - position} bytes follow the last record")


def scan_records(body: Buffer, count: int) -> Iterator[tuple[int, int, bool] | None]:
    """Check the form of the records of a decompressed body. Copy nothing, so that memory does not grow with records.

    Yield (timestamp delta, offset delta, has a key) of each record, and None after each header and each large piece of
    a header name. The work between two yields is bounded, whatever the body contains. Raise Malformed as
    `read_records`, possibly after some records.
    """
    position, end = 0, len(body)
    if count * RECORD_BYTES_MIN > end:
        raise Malformed(f"{count} records cannot fit into {end} bytes")
    try:
        for _ in range(count):
            length = body[position]
            if length < 0x80:  # fast paths: most lengths and deltas have one byte or two
                length = (length >> 1) ^ -(length & 1)
                position += 1
            else:
                length, position = read_varint(body, position)
            following = position + length
            if length < RECORD_BYTES_MIN - 1 or following > end:
                raise Malformed(f"invalid record length {length} at byte {position}")
            position += 1  # skips the attributes, which Kafka does not use
            timestamp_delta = body[position]
            if timestamp_delta < 0x80:
                timestamp_delta = (timestamp_delta >> 1) ^ -(timestamp_delta & 1)
                position += 1
            else:
                timestamp_delta, position = read_varlong(body, position)
            offset_delta = body[position]
            if offset_delta < 0x80:
                offset_delta = (offset_delta >> 1) ^ -(offset_delta & 1)
                position += 1
            elif (high := body[position + 1]) < 0x80:
                offset_delta = offset_delta & 0x7F | high << 7
                offset_delta = (offset_delta >> 1) ^ -(offset_delta & 1)
                position += 2
            else:
                offset_delta, position = read_varint(body, position)
            has_key = not body[position] & 1  # a negative length encodes as an odd number; only -1 is valid
            position = _skip(body, _skip(body, position, following), following)
            if body[position]:
                position, remaining = _header_count(body, position, following)
                while remaining:
                    remaining -= 1
                    position = yield from _scan_header(body, position, following)
                    yield None
            else:
                position += 1
            if position != following:
                raise Malformed(f"record ends at byte {position}, but its length gives byte {following}")
            yield timestamp_delta, offset_delta, has_key
    except IndexError as error:
        raise Malformed(f"the record at byte {position} runs past the end") from error
    if position != end:
        raise Malformed(f"{end - position} bytes follow the last record")


def _skip(body: Buffer, position: int, end: int) -> int:
    """Return the position after a key or a value, which begins with its length at `position`."""
    length = body[position]
    if length < 0x80:
        length = (length >> 1) ^ -(length & 1)
        position += 1
    else:
        length, position = read_varint(body, position)
    if length < 0:
        if length != -1:
            raise Malformed(f"negative length {length} at byte {position}")
        return position
    if length > end - position:
        raise Malformed(f"length {length} at byte {position} exceeds the record")
    return position + length


def _header_count(body: Buffer, position: int, end: int) -> tuple[int, int]:
    """Return (next position, number of headers)."""
    count, position = read_varint(body, position)
    if count < 0 or count * RECORD_HEADER_BYTES_MIN > end - position:
        raise Malformed(f"{count} headers at byte {position} exceed the record")
    return position, count


def _scan_header(body: Buffer, position: int, end: int) -> Generator[None, None, int]:
    """Check one header. Return the position after it."""
    length, start = read_varint(body, position)
    if length < 0:
        raise Malformed(f"header without a name at byte {position}")
    position = _skip(body, position, end)
    decoder = getincrementaldecoder("utf-8")() if length > NAME_PIECE_BYTES else None
    try:
        if decoder is None:
            str(body[start:position], "utf-8")
        else:
            for at in range(start, position, NAME_PIECE_BYTES):
                decoder.decode(bytes(body[at : min(at + NAME_PIECE_BYTES, position)]))
                yield None
            decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise Malformed(f"header name before byte {position} is not UTF-8") from error
    return _skip(body, position, end)


def plain_record(body: Buffer) -> tuple[bytes | None, bytes | None] | None:
    """Decode a body with one record that has no deltas and no headers. Return (key, value).

    Return None for any other body. The caller then uses `read_records`. This is a fast path: most batches of
    coordinators have this form.
    """
    end = len(body)
    length, position = read_varint(body, 0)
    if length < RECORD_BYTES_MIN - 1 or position + length != end or body[position + 1] or body[position + 2]:
        return None
    key, position = _content(body, position + 3, end)
    value, position = _content(body, position, end)
    return None if position != end - 1 or body[position] else (key, value)


class RawRecord(NamedTuple):
    """Positions of the parts of a record in its body, and the values that compaction needs."""

    start: int
    timestamp_at: int
    offset_delta_at: int
    """End of the timestamp delta. The bytes from here to `end` do not depend on the base timestamp of the batch."""
    end: int
    timestamp_delta: int
    offset_delta: int
    key: Buffer | None
    has_value: bool


def read_raw_records(body: Buffer, count: int) -> Iterator[RawRecord]:
    """Iterate over the records of a decompressed body, without values and headers.

    Raise Malformed if a record is invalid, possibly after some records.
    """
    position, end = 0, len(body)
    if count * RECORD_BYTES_MIN > end:
        raise Malformed(f"{count} records cannot fit into {end} bytes")
    for _ in range(count):
        start = position
        length, position = read_varint(body, position)
        following = position + length
        if length < RECORD_BYTES_MIN - 1 or following > end:
            raise Malformed(f"invalid record length {length} at byte {position}")
        timestamp_at = position + 1
        timestamp_delta, offset_delta_at = read_varlong(body, timestamp_at)
        offset_delta, position = read_varint(body, offset_delta_at)
        key, position = _large_content(body, position, following)
        value_length, position = read_varint(body, position)
        if value_length > following - position:
            raise Malformed(f"length {value_length} at byte {position} exceeds the record")
        yield RawRecord(
            start, timestamp_at, offset_delta_at, following, timestamp_delta, offset_delta, key, value_length >= 0
        )
        position = following
    if position != end:
        raise Malformed(f"{end - position} bytes follow the last record")


def at_base_timestamp(body: Buffer, record: RawRecord, timestamp_delta: int) -> bytes:
    """Return the encoded record with a different timestamp delta."""
    head = bytes(body[record.timestamp_at - 1 : record.timestamp_at]) + varint(timestamp_delta)
    rest = body[record.offset_delta_at : record.end]
    return b"".join((varint(len(head) + len(rest)), head, rest))


def _content(body: Buffer, position: int, end: int) -> tuple[bytes | None, int]:
    if position < end and body[position] < 0x80:  # fast path: the length has one byte
        length = (body[position] >> 1) ^ -(body[position] & 1)
        position += 1
    else:
        length, position = read_varint(body, position)
    if length < 0:
        if length != -1:
            raise Malformed(f"negative length {length} at byte {position}")
        return None, position
    if length > end - position:
        raise Malformed(f"length {length} at byte {position} exceeds the record")
    return bytes(body[position : position + length]), position + length


def _large_content(body: Buffer, position: int, end: int) -> tuple[Buffer | None, int]:
    """Return (key or value, next position). Do not copy a large one: it can be as large as the body."""
    if position < end and body[position] < 0x80:
        return _content(body, position, end)
    length, start = read_varint(body, position)
    if length <= COPIED_BYTES_MAX or length > end - start:
        return _content(body, position, end)
    return memoryview(body)[start : start + length], start + length


def read_headers(
    body: Buffer, position: int, end: int, headers_max: int | None = None
) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    """Decode the headers of a record, which begin with their number. Return them and the position behind them.

    With `headers_max`, decode at most that many. If there are more, return `end`, where the record ends.
    Raise Malformed if a decoded header does not end before `end`.
    """
    if position < end and body[position] == 0:
        return (), position + 1
    count, position = read_varint(body, position)
    if count < 0 or count * RECORD_HEADER_BYTES_MIN > end - position:
        raise Malformed(f"{count} headers at byte {position} exceed the record")
    decoded = count if headers_max is None else min(count, headers_max)
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(decoded):
        name, position = _content(body, position, end)
        if name is None:
            raise Malformed(f"header without a name at byte {position}")
        value, position = _content(body, position, end)
        try:
            headers.append((name.decode(), value))
        except UnicodeDecodeError as error:
            raise Malformed(f"header name before byte {position} is not UTF-8") from error
    return tuple(headers), position if decoded == count else end


def record_bytes(
    offset_delta: int, key: bytes | None, value: bytes | None, timestamp_delta: int, headers: Headers
) -> bytes:
    """Encode one record, with its length."""
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
