"""Decoding of untrusted bytes: the result is a message or Malformed, and memory is bounded by the received bytes."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek.protocol.codec import decode, encode
from odradek.protocol.connection import ServerConnection
from odradek.protocol.errors import Malformed
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.end_txn import EndTxnRequest
from odradek.protocol.messages.fetch import FetchRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.produce import ProduceRequest
from odradek.protocol.primitives import unsigned_varint
from odradek.protocol.schema import FIXED_SIZES, FieldRow, Message, Struct, field_rows
from tests.support.effort import effort
from tests.support.messages import ALL_CASES, ALL_MESSAGES, struct_values, versions

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

MEMORY_PER_BYTE_MAX = 64
MEMORY_SLACK_BYTES = 1_024  # the message object itself
PEAKS = 3
HOSTILE_BYTES = 2_048
EXAMPLES = 2
MUTATIONS = 8

REQUEST_BYTES_MAX = 104_857_600  # socket.request.max.bytes
VALID_CLASSIC = encode(EndTxnRequest("my-txn", 1000, 5, committed=True), 0)
VALID_FLEXIBLE = encode(EndTxnRequest("my-txn", 1000, 5, committed=True), 3)


def fields(text: str) -> bytes:
    return bytes.fromhex(text.replace(" ", ""))


# name: class, version, bytes (hex), expected part of the error message
TABLE: dict[str, tuple[type[Message], int, bytes, str]] = {
    "no bytes at all": (EndTxnRequest, 0, b"", "transactional_id"),
    "array longer than the bytes that remain": (MetadataRequest, 0, fields("033a4c80 00000000"), "topics"),
    "array of 2**31 - 1": (MetadataRequest, 0, fields("7fffffff"), "topics"),
    "compact array longer than the bytes": (MetadataRequest, 9, fields("ffffff7f 00"), "topics"),
    "array null where it must not be": (
        FetchRequest,
        4,
        fields("ffffffff 00000000 00000000 00000000 00 ffffffff"),
        "topics",
    ),
    "array of length -2": (MetadataRequest, 1, fields("fffffffe"), "topics"),
    "array of length -2**31": (MetadataRequest, 1, fields("80000000"), "topics"),
    "string longer than the bytes": (EndTxnRequest, 0, fields("0006 6d79"), "transactional_id"),
    "string null where it must not be": (EndTxnRequest, 0, fields("ffff 00000000000003e8 0005 01"), "transactional_id"),
    "string of length -2": (ProduceRequest, 3, fields("fffe ffff 00000000 00000000"), "transactional_id"),
    "compact string null where it must not be": (
        EndTxnRequest,
        3,
        fields("00 00000000000003e8 0005 01 00"),
        "transactional_id",
    ),
    "compact string over 32767": (EndTxnRequest, 3, fields("818002") + bytes(32_900), "transactional_id"),
    "string that is not UTF-8": (EndTxnRequest, 0, fields("0002 c328 00000000000003e8 0005 01"), "transactional_id"),
    "surrogate in UTF-8": (EndTxnRequest, 0, fields("0003 eda080 00000000000003e8 0005 01"), "transactional_id"),
    "bytes longer than the bytes that remain": (
        ProduceRequest,
        3,
        fields("ffff ffff 00000000 00000001 0001 74 00000001 00000000 7fffffff 00"),
        "records",
    ),
    "varint of six bytes": (EndTxnRequest, 3, fields("808080808000 00"), "transactional_id"),
    "varint over 32 bits": (EndTxnRequest, 3, fields("ffffffff7f 00"), "transactional_id"),
    "incomplete varint": (EndTxnRequest, 3, fields("ff"), "transactional_id"),
    "tags in descending order": (EndTxnRequest, 3, VALID_FLEXIBLE[:-1] + fields("02 0500 0400"), "ascending"),
    "the same tag twice": (EndTxnRequest, 3, VALID_FLEXIBLE[:-1] + fields("02 0500 0500"), "ascending"),
    "more tags than bytes": (EndTxnRequest, 3, VALID_FLEXIBLE[:-1] + fields("ffffffff0f 00"), "length"),
    "tag longer than the bytes": (EndTxnRequest, 3, VALID_FLEXIBLE[:-1] + fields("01 05 20 00"), "length"),
    "known tag with a wrong size": (
        FetchRequest,
        12,
        fields("ffffffff 00000000 00000000 7fffffff 00 00000000 ffffffff 01 01 01 01 00 05 02 610000 00"),
        "cluster_id",
    ),
    "bytes behind the message, classic": (EndTxnRequest, 0, VALID_CLASSIC + b"\x00", "follow"),
    "bytes behind the message, flexible": (EndTxnRequest, 3, VALID_FLEXIBLE + b"\x00", "follow"),
    "version above the last": (EndTxnRequest, 6, VALID_FLEXIBLE, "no version 6"),
    "version below the first": (ProduceRequest, 2, b"", "no version 2"),
    "version below zero": (EndTxnRequest, -1, VALID_CLASSIC, "no version -1"),
}


@pytest.mark.parametrize("case", TABLE)
def test_error_names_the_malformed_field(case: str) -> None:
    cls, version, data, message = TABLE[case]
    with pytest.raises(Malformed, match=message):
        decode(cls, version, data)


@pytest.mark.parametrize(("version", "valid"), [(0, VALID_CLASSIC), (3, VALID_FLEXIBLE)])
def test_truncated_message_is_malformed(version: int, valid: bytes) -> None:
    assert decode(EndTxnRequest, version, valid).transactional_id == "my-txn"
    for size in range(len(valid)):
        with pytest.raises(Malformed):
            decode(EndTxnRequest, version, valid[:size])


def test_error_contains_field_path_and_position() -> None:
    with pytest.raises(
        Malformed, match=r"ProduceRequest v9: topic_data\.partition_data\.records at byte 22: length 100 "
    ):
        decode(ProduceRequest, 9, fields("00 ffff 00000000 02 08 666c6967687473 02 00000000 64 00"))


# ---- memory ---------------------------------------------------------------------------------------------------------


def minimal(cls: type[Struct], version: int, flexible: bool, path: tuple[FieldRow, ...], count: int) -> bytes:
    """Return the shortest encoding with one element in each array on `path`, and `count` in the last array."""
    out = b""
    for row in field_rows(cls):
        if not row.in_version(version) or row.tagged_in(version):
            continue
        compact = row.flexible_in(version, flexible)
        if path and row is path[0]:
            number = count if len(path) == 1 else 1
            out += unsigned_varint(number + 1) if compact else number.to_bytes(4, "big")
            out += element(row, version, compact, path[1:], count) * number
        elif row.is_array:
            out += b"\x01" if compact else b"\x00" * 4
        elif row.struct is not None and row.nullable_in(version):
            out += b"\xff"
        else:
            out += element(row, version, compact, (), count)
    return out + b"\x00" if flexible else out


def element(row: FieldRow, version: int, compact: bool, path: tuple[FieldRow, ...], count: int) -> bytes:
    if row.struct is not None:
        return minimal(row.struct, version, compact, path, count)
    if row.kind in FIXED_SIZES:
        return b"\x7f" * FIXED_SIZES[row.kind]  # larger than the small integers that CPython caches
    return b"\x01" if compact else bytes(2 if row.kind == "string" else 4)


def array_paths(cls: type[Struct], version: int) -> Iterator[tuple[FieldRow, ...]]:
    for row in field_rows(cls):
        if row.is_array and row.in_version(version) and not row.tagged_in(version):
            yield (row,)
            if row.struct is not None:
                for path in array_paths(row.struct, version):
                    yield (row, *path)


def peak_is_bounded(cls: type[Message], version: int, data: bytes) -> bool:
    """Return True if the peak of one of several decodings is below the bound of memory for `data`.

    A single peak includes allocations of other threads.
    """
    bytes_max = MEMORY_PER_BYTE_MAX * len(data) + MEMORY_SLACK_BYTES
    return any(_peak_once(cls, version, data) < bytes_max for _ in range(PEAKS))


def _peak_once(cls: type[Message], version: int, data: bytes) -> int:
    tracemalloc.start()
    try:
        decode(cls, version, data)
    except Malformed:
        pass
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return peak


EDGE_CASES = sorted(
    {
        (name, version)
        for name, cls in ALL_MESSAGES.items()
        for version in {cls.MIN_VERSION, cls.MAX_VERSION}
        if versions(cls)
    }
)


@pytest.mark.parametrize(("name", "version"), EDGE_CASES)
def test_memory_for_arrays_of_minimal_elements_is_bounded(name: str, version: int) -> None:
    cls = ALL_MESSAGES[name]
    flexible = cls.FLEXIBLE_MIN is not None and version >= cls.FLEXIBLE_MIN
    decode(cls, version, minimal(cls, version, flexible, (), 0))  # compiles outside the measurement
    for path in array_paths(cls, version):
        element_size = len(minimal(cls, version, flexible, path, 2)) - len(minimal(cls, version, flexible, path, 1))
        data = minimal(cls, version, flexible, path, HOSTILE_BYTES // element_size)
        assert peak_is_bounded(cls, version, data), [row.name for row in path]


@pytest.mark.parametrize("tag_bytes", [1, 2, 3])
def test_memory_for_unknown_tags_is_bounded(tag_bytes: int) -> None:
    first = {1: 0, 2: 128, 3: 16_384}[tag_bytes]
    count = 100 if tag_bytes == 1 else 1_500
    tags = b"".join(unsigned_varint(first + index) + b"\x00" for index in range(count))
    data = b"\x01\x01" + unsigned_varint(count) + tags
    assert len(decode(ApiVersionsRequest, 3, data).unknown_tagged_fields) == count
    assert peak_is_bounded(ApiVersionsRequest, 3, data)


def test_memory_for_one_unknown_tag_in_each_of_many_structs_is_bounded() -> None:
    topic = b"\x01" + b"\x01" + b"\x01\x80\x01\x00"  # name "", no partitions, one tag without content
    count = HOSTILE_BYTES // len(topic)
    data = fields("00 ffff 00000000") + unsigned_varint(count + 1) + topic * count + b"\x00"
    assert len(decode(ProduceRequest, 9, data).topic_data) == count
    assert peak_is_bounded(ProduceRequest, 9, data)


@pytest.mark.parametrize("size", [-1, -(2**31), 0, 7, REQUEST_BYTES_MAX + 1, 2**31 - 1])
def test_frame_with_an_invalid_size_is_malformed(size: int) -> None:
    connection = ServerConnection(request_bytes_max=REQUEST_BYTES_MAX)
    connection.receive_data(size.to_bytes(4, "big", signed=True) + b"rest")
    with pytest.raises(Malformed, match="frame has"):
        connection.next_request()


def test_frame_size_allocates_no_memory_before_its_bytes_arrive() -> None:
    connection = ServerConnection(request_bytes_max=REQUEST_BYTES_MAX)
    received = 0
    tracemalloc.start()
    try:
        connection.receive_data(REQUEST_BYTES_MAX.to_bytes(4, "big"))
        for _ in range(64):
            connection.receive_data(bytes(4_096))
            received += 4_096
            assert connection.next_request() is None
            assert connection.frame_started
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * received  # a growing buffer has up to four times its content, and coexists with the old one


# ---- mutated messages -----------------------------------------------------------------------------------------------


def mutated(data: bytes, rng: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        kind = rng.randrange(4)
        position = rng.randrange(len(out) + 1)
        if kind == 0:
            out[position:position] = bytes(rng.choice((0, 1, 0x7F, 0x80, 0xFF)) for _ in range(rng.randint(1, 5)))
        elif kind == 1:
            del out[position : position + rng.randint(1, 4)]
        elif position < len(out):
            out[position] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    return bytes(out)


@pytest.mark.parametrize("name", sorted({name for name, _ in ALL_CASES}))
def test_mutated_message_is_malformed_or_unchanged_after_a_round_trip(name: str) -> None:

    cls = ALL_MESSAGES[name]

    @settings(max_examples=effort(EXAMPLES), deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.data(), st.randoms(use_true_random=False))
    def check(data: st.DataObject, rng: random.Random) -> None:
        for version in versions(cls):
            seed = encode(data.draw(struct_values(cls, version)), version)
            for _ in range(MUTATIONS):
                try:
                    message = decode(cls, version, mutated(seed, rng))
                except Malformed:
                    continue
                written = encode(message, version)
                assert encode(decode(cls, version, written), version) == written

    check()
