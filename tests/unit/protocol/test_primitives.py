"""Variable-length integers, UUIDs and version ranges of the protocol."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.protocol.errors import Malformed
from odradek.protocol.primitives import (
    read_unsigned_varint,
    read_unsigned_varlong,
    read_varint,
    read_varlong,
    unsigned_varint,
    uuid_of,
    varint,
)
from odradek.protocol.schema import parse_range


@given(st.integers(0, 2**32 - 1), st.binary(max_size=3))
def test_unsigned_varint_round_trip(value: int, suffix: bytes) -> None:
    data = unsigned_varint(value)
    assert read_unsigned_varint(b"x" + data + suffix, 1) == (value, 1 + len(data))
    assert read_unsigned_varlong(data, 0) == (value, len(data))


@given(st.integers(-(2**31), 2**31 - 1))
def test_varint_round_trip(value: int) -> None:
    data = varint(value)
    assert len(data) <= 5
    assert read_varint(data, 0) == (value, len(data))


@given(st.integers(-(2**63), 2**63 - 1))
def test_varlong_round_trip(value: int) -> None:
    data = varint(value)
    assert len(data) <= 10
    assert read_varlong(data, 0) == (value, len(data))


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 2**70])
def test_varint_beyond_64_bits_is_refused(value: int) -> None:
    with pytest.raises(ValueError, match="at most 64 bits"):
        varint(value)


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
    ],
)
def test_varint_has_zig_zag_encoding(value: int, data: str) -> None:
    assert varint(value).hex() == data


@pytest.mark.parametrize("data", ["", "80", "8080808080", "ffffffff1f", "808080808000"])
def test_invalid_varint_is_malformed(data: str) -> None:
    with pytest.raises(Malformed):
        read_unsigned_varint(bytes.fromhex(data), 0)


@pytest.mark.parametrize("data", ["ff" * 10, "80" * 10 + "01", "ff" * 9 + "02"])
def test_invalid_varlong_is_malformed(data: str) -> None:
    with pytest.raises(Malformed):
        read_unsigned_varlong(bytes.fromhex(data), 0)


def test_a_negative_number_has_no_unsigned_varint() -> None:
    with pytest.raises(ValueError, match="cannot be negative: -1"):
        unsigned_varint(-1)


def test_equal_uuids_are_one_object() -> None:
    raw = bytes(range(16))
    assert uuid_of(raw) == UUID(bytes=raw)
    assert uuid_of(raw) is uuid_of(bytes(bytearray(raw)))


@pytest.mark.parametrize(("text", "expected"), [("3+", (3, 32_767)), ("1-4", (1, 4)), ("2", (2, 2)), ("none", (0, -1))])
def test_version_range_is_parsed(text: str, expected: tuple[int, int]) -> None:
    assert parse_range(text) == expected
