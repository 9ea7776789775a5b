"""Encode and decode Kafka's variable-length integers and UUIDs."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final
from uuid import UUID

from odradek.protocol.errors import Malformed

if TYPE_CHECKING:
    from odradek.protocol.schema import Buffer

ZERO_UUID: Final = UUID(int=0)
VARINT_BYTES_MAX: Final = 5
VARLONG_BYTES_MAX: Final = 10
INT32_MAX: Final = 2**31 - 1
UINT32_MAX: Final = 0xFFFF_FFFF
UINT64_MAX: Final = 0xFFFF_FFFF_FFFF_FFFF
INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1
"""Kafka's Long.MAX_VALUE. As the value of a property it means no limit."""
UUID_CACHE_ENTRIES: Final = 4_096
SHORT_VARINTS: Final = 512
"""Values below this are encoded by a table look-up. Nearly all deltas and lengths of records are below it."""
ONE_BYTE: Final = tuple(bytes((value,)) for value in range(256))


def read_unsigned_varint(data: Buffer, position: int) -> tuple[int, int]:
    """Decode an unsigned varint of at most 5 bytes and 32 bits. Return (value, next position). Raise Malformed."""
    return _read(data, position, VARINT_BYTES_MAX, UINT32_MAX)


def read_unsigned_varlong(data: Buffer, position: int) -> tuple[int, int]:
    """Decode an unsigned varlong of at most 10 bytes and 64 bits. Return (value, next position). Raise Malformed."""
    return _read(data, position, VARLONG_BYTES_MAX, UINT64_MAX)


def read_varint(data: Buffer, position: int) -> tuple[int, int]:
    """Decode a zig-zag encoded int32, as records contain it. Return (value, next position). Raise Malformed."""
    value, position = _read(data, position, VARINT_BYTES_MAX, UINT32_MAX)
    return (value >> 1) ^ -(value & 1), position


def read_varlong(data: Buffer, position: int) -> tuple[int, int]:
    """Decode a zig-zag encoded int64, as records contain it. Return (value, next position). Raise Malformed."""
    value, position = _read(data, position, VARLONG_BYTES_MAX, UINT64_MAX)
    return (value >> 1) ^ -(value & 1), position


def _read(data: Buffer, position: int, bytes_max: int, value_max: int) -> tuple[int, int]:
    end = len(data)
    if position < end and (byte := data[position]) < 0x80:  # fast path: nearly all varints have one byte
        return byte, position + 1
    value = shift = 0
    for index in range(position, position + bytes_max):
        if index >= end:
            raise Malformed(f"varint at byte {position} runs past the end")
        byte = data[index]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > value_max:
                raise Malformed(f"varint at byte {position} does not fit its type")
            return value, index + 1
        shift += 7
    raise Malformed(f"varint at byte {position} is longer than {bytes_max} bytes")


def unsigned_varint(value: int) -> bytes:
    """Encode an unsigned varint. Raise ValueError if the value is negative."""
    if value < 0:
        raise ValueError(f"an unsigned varint cannot be negative: {value}")
    if value < 0x80:
        return ONE_BYTE[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint(value: int) -> bytes:
    """Encode an int32 or int64 with zig-zag encoding. Raise ValueError if the value exceeds 64 bits."""
    if 0 <= value < SHORT_VARINTS:
        return _SHORT[value]
    encoded = value << 1 if value >= 0 else (-value << 1) - 1
    if encoded > UINT64_MAX:
        raise ValueError(f"a varint has at most 64 bits: {value}")
    return unsigned_varint(encoded)


_SHORT: Final = tuple(unsigned_varint(value << 1) for value in range(SHORT_VARINTS))


@lru_cache(maxsize=UUID_CACHE_ENTRIES)
def uuid_of(raw: bytes) -> UUID:
    """Decode a UUID from 16 bytes.

    The results are cached: topic ids repeat in nearly every request, and a new UUID object costs more than a
    microsecond.
    """
    return UUID(bytes=raw)
