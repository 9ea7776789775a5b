"""Record batches of format v2: building, parsing, checksums, malformed batches, sequences and control records."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.protocol.batch import (
    HEADER_BYTES,
    SEQUENCE_MAX,
    BatchHeader,
    Compression,
    ControlType,
    Record,
    UnsupportedMagic,
    build_batch,
    control_key,
    control_type,
    decrement_sequence,
    end_txn_marker,
    increment_sequence,
    iter_batches,
    iter_records,
    parse_end_txn_marker,
    plain_end_txn_marker,
    read_header,
    records_of,
    seal_batch,
    verify_crc,
)
from odradek.protocol.errors import Malformed
from odradek.protocol.primitives import varint

NOW = 1_700_000_000_000
DECOMPRESSED_MAX = 1_000_000

BYTES = st.none() | st.binary(max_size=40)
HEADERS = st.lists(st.tuples(st.text(max_size=5), BYTES), max_size=3).map(tuple)
NEW_RECORDS = st.lists(st.tuples(BYTES, BYTES, st.integers(0, 2**50), HEADERS), min_size=1, max_size=6)

TWO = build_batch([(b"k", b"v", NOW, ()), (b"k2", None, NOW + 5, (("h", None),))], base_offset=100, leader_epoch=3)


def read_all(batch: bytes, maximum: int = DECOMPRESSED_MAX) -> list[Record]:
    return list(iter_records(batch, max_decompressed_bytes=maximum))


@settings(max_examples=60, deadline=None)
@given(
    NEW_RECORDS,
    st.sampled_from(Compression),
    st.integers(0, 2**62),
    st.booleans(),
    st.integers(-1, SEQUENCE_MAX),
)
def test_built_batch_is_parsed_to_the_same_records(
    rows: list[tuple[bytes | None, bytes | None, int, tuple[tuple[str, bytes | None], ...]]],
    compression: Compression,
    base_offset: int,
    transactional: bool,
    sequence: int,
) -> None:
    batch = build_batch(
        rows,
        base_offset=base_offset,
        compression=compression,
        producer_id=7,
        producer_epoch=1,
        base_sequence=sequence,
        transactional=transactional,
    )
    [(header, view)] = iter_batches(batch)
    assert verify_crc(batch, 0, header)
    assert (header.size, header.compression, header.record_count) == (len(batch), compression, len(rows))
    assert (header.base_offset, header.last_offset) == (base_offset, base_offset + len(rows) - 1)
    assert (header.is_transactional, header.is_control, header.has_producer) == (transactional, False, True)
    assert header.max_timestamp == max(row[2] for row in rows)
    expected = [
        Record(base_offset + index, timestamp, key, value, heads)
        for index, (key, value, timestamp, heads) in enumerate(rows)
    ]
    assert list(iter_records(view, max_decompressed_bytes=DECOMPRESSED_MAX)) == expected


def test_given_offsets_are_kept() -> None:
    records = [Record(10, NOW, b"a", None), Record(14, NOW + 1, b"b", b"c")]
    batch = build_batch(records, base_offset=8)
    header = read_header(batch)
    assert (header.base_offset, header.last_offset, header.record_count) == (8, 14, 2)
    assert read_all(batch) == records
    with pytest.raises(ValueError, match="base offset"):
        build_batch(records, base_offset=11)
    with pytest.raises(ValueError, match="must have a record"):
        build_batch([])


def test_every_record_has_the_log_append_time() -> None:
    batch = build_batch([(None, b"a", NOW, ()), (None, b"b", NOW - 9, ())], timestamp_type=1)
    assert read_header(batch).timestamp_type == 1
    assert [record.timestamp for record in read_all(batch)] == [NOW, NOW]


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
def test_headers_after_the_maximum_are_skipped(compression: Compression) -> None:
    headers = tuple((f"h{number}", b"v") for number in range(5))
    batch = build_batch([(b"k", b"1", 1, headers), (b"k", b"2", 1, headers[:2])], compression=compression)
    for headers_max in (0, 1, 2, 5, 6):
        records = list(
            records_of(batch, read_header(batch), max_decompressed_bytes=DECOMPRESSED_MAX, headers_max=headers_max)
        )
        assert [record.headers for record in records] == [headers[:headers_max], headers[:2][:headers_max]]
        assert [record.value for record in records] == [b"1", b"2"]


def test_checksum_does_not_cover_base_offset_and_leader_epoch() -> None:
    batch = bytearray(TWO)
    struct.pack_into(">q", batch, 0, 999)
    struct.pack_into(">i", batch, 12, 8)
    header = read_header(batch)
    assert verify_crc(batch, 0, header)
    assert [record.offset for record in read_all(bytes(batch))] == [999, 1000]


def test_changed_byte_from_the_attributes_on_fails_the_checksum() -> None:
    for position in range(17, len(TWO)):
        batch = bytearray(TWO)
        batch[position] ^= 0x10
        header = BatchHeader(*struct.unpack_from(">qiibIhiqqqhii", batch))
        assert not verify_crc(batch, 0, header)


def test_a_partial_batch_at_the_end_is_left_out() -> None:
    for size in range(len(TWO)):
        assert [header.base_offset for header, _ in iter_batches(TWO + TWO[:size])] == [100]
    assert len(list(iter_batches(TWO + TWO))) == 2
    assert list(iter_batches(b"")) == []
    assert not verify_crc(TWO[:-1], 0, read_header(TWO))


@pytest.mark.parametrize("magic", [0, 1, 3, 255])
def test_other_magic_is_unsupported(magic: int) -> None:
    batch = bytearray(TWO)
    batch[16] = magic
    with pytest.raises(UnsupportedMagic):
        read_header(batch)
    with pytest.raises(UnsupportedMagic):
        read_header(batch[:20])


@pytest.mark.parametrize(
    ("position", "layout", "value"),
    [(8, ">i", 48), (8, ">i", -1), (8, ">i", -(2**31)), (23, ">i", -1), (57, ">i", -1)],
)
def test_invalid_sizes_are_malformed(position: int, layout: str, value: int) -> None:
    batch = bytearray(TWO)
    struct.pack_into(layout, batch, position, value)
    with pytest.raises(Malformed):
        read_header(batch)
    with pytest.raises(Malformed):
        list(iter_batches(batch))


def test_short_headers_are_malformed() -> None:
    for size in range(HEADER_BYTES):
        with pytest.raises(Malformed):
            read_header(TWO[:size])


def sealed(body: bytes, count: int, **changes: int) -> bytes:
    header = replace(read_header(TWO), record_count=count, last_offset_delta=max(count - 1, 0), **changes)
    return seal_batch(header, body)


def record(content: bytes, length: int | None = None) -> bytes:
    return varint(len(content) if length is None else length) + content


GOOD_RECORD = record(b"\x00\x00\x00\x01\x01\x00")
HOSTILE = {
    "count above the size of the batch": (sealed(GOOD_RECORD, 2**31 - 1), "cannot fit"),
    "count above the number of records": (sealed(GOOD_RECORD, 2), "cannot fit"),
    "bytes behind the last record": (sealed(GOOD_RECORD * 2, 1), "follow the last"),
    "record length negative": (sealed(record(b"\x00" * 9, -5), 1), "invalid record length"),
    "record length past the end": (sealed(record(b"\x00" * 6, 400), 1), "invalid record length"),
    "record length too small": (sealed(record(b"\x00" * 6, 3), 1), "invalid record length"),
    "key length -2": (sealed(record(b"\x00\x00\x00\x03\x01\x00\x00"), 1), "negative length"),
    "key past the record": (sealed(record(b"\x00\x00\x00\x64\x01\x00\x00"), 1), "exceeds the record"),
    "header count negative": (sealed(record(b"\x00\x00\x00\x01\x01\x01\x00"), 1), "headers"),
    "header count above the size of the record": (
        sealed(record(b"\x00\x00\x00\x01\x01" + varint(2**30) + b"\x00"), 1),
        "headers",
    ),
    "header without name": (sealed(record(b"\x00\x00\x00\x01\x01\x02\x01\x01"), 1), "without a name"),
    "header name not UTF-8": (sealed(record(b"\x00\x00\x00\x01\x01\x02\x02\xff\x01"), 1), "UTF-8"),
    "varint of six bytes": (sealed(record(b"\x00\x00" + b"\x80" * 5 + b"\x00\x01\x01\x00"), 1), "longer than"),
    "timestamp beyond 64 bits": (
        sealed(record(b"\x00" + varint(2**63 - 1) + b"\x00\x01\x01\x00"), 1, base_timestamp=2**62),
        "64 bits",
    ),
    "codec that does not exist": (sealed(GOOD_RECORD, 1, attributes=5), "codec 5"),
    "compressed garbage": (sealed(GOOD_RECORD, 1, attributes=4), "zstd"),
    "partial batch": (TWO[:-3], "ends after"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_batches_are_malformed(case: str) -> None:
    batch, message = HOSTILE[case]
    with pytest.raises(Malformed, match=message):
        read_all(batch)


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=60), st.integers(0, 2**31 - 1), st.integers(0, 127))
def test_random_body_is_parsed_or_malformed(body: bytes, count: int, attributes: int) -> None:
    batch = sealed(body, count, attributes=attributes)
    try:
        records = read_all(batch)
    except Malformed:
        return
    assert len(records) == count


def test_an_empty_batch_has_no_records() -> None:
    batch = sealed(b"", 0)
    assert len(batch) == HEADER_BYTES
    assert verify_crc(batch, 0, read_header(batch))
    assert read_header(batch).crc == crc32c(batch[21:])
    assert read_all(batch) == []


def test_sequence_numbers_wrap_to_0() -> None:
    assert increment_sequence(SEQUENCE_MAX, 1) == 0
    assert increment_sequence(SEQUENCE_MAX - 2, 5) == 2
    assert increment_sequence(5, 0) == 5
    assert decrement_sequence(0, 1) == SEQUENCE_MAX
    assert decrement_sequence(2, 5) == SEQUENCE_MAX - 2
    header = replace(read_header(TWO), base_sequence=SEQUENCE_MAX, last_offset_delta=3)
    assert header.last_sequence == 2
    assert replace(header, base_sequence=-1).last_sequence == -1


@given(st.integers(0, SEQUENCE_MAX), st.integers(0, SEQUENCE_MAX))
def test_decrement_is_the_inverse_of_increment(sequence: int, by: int) -> None:
    assert decrement_sequence(increment_sequence(sequence, by), by) == sequence


def test_control_key_is_parsed_and_invalid_keys_are_malformed() -> None:
    for control in ControlType:
        if control is not ControlType.UNKNOWN:
            assert control_type(control_key(control)) is control
    assert control_type(bytes.fromhex("0000002a")) is ControlType.UNKNOWN
    assert control_type(bytes.fromhex("000500010000")) is ControlType.COMMIT  # a later version is parsed as version 0
    for key in (None, b"", b"\x00\x00\x00", bytes.fromhex("ffff0001")):
        with pytest.raises(Malformed):
            control_type(key)


def test_end_txn_marker_value_is_parsed_and_invalid_values_are_malformed() -> None:
    assert parse_end_txn_marker(bytes.fromhex("000000000007")) == 7
    assert parse_end_txn_marker(bytes.fromhex("00030000000700ff")) == 7
    for value in (None, b"", bytes(5), bytes.fromhex("ffff00000007")):
        with pytest.raises(Malformed):
            parse_end_txn_marker(value)


@pytest.mark.parametrize("commit", [False, True])
def test_fast_path_for_markers_agrees_with_the_record(commit: bool) -> None:
    batch = end_txn_marker(producer_id=7, producer_epoch=1, coordinator_epoch=3, commit=commit, timestamp=NOW)
    assert plain_end_txn_marker(batch, read_header(batch)) == (commit, 3)
    plain = 0
    for position in range(HEADER_BYTES, len(batch)):
        for flipped in range(8):
            changed = bytearray(batch)
            changed[position] ^= 1 << flipped
            parsed = plain_end_txn_marker(changed, read_header(changed))
            if parsed is not None:
                plain += 1
                (record,) = read_all(bytes(changed))
                assert record.timestamp == NOW
                assert parsed == (control_type(record.key) is ControlType.COMMIT, parse_end_txn_marker(record.value))
    assert plain == 33  # one flip exchanges COMMIT and ABORT, and 32 are in the coordinator epoch
    for batch_of_another_kind in (build_batch([(b"k", b"v", NOW, ())], producer_id=7), batch + b"\0"):
        assert plain_end_txn_marker(batch_of_another_kind, read_header(batch_of_another_kind)) is None
