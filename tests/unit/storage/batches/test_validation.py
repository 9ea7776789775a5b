"""Validation of produced batches: each rule with its error code."""

from __future__ import annotations

import contextlib
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.protocol.batch import Compression, build_batch, iter_records, read_header, seal_batch, verify_crc
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.storage.batches.validation import CheckedBatch, check_leader_append, check_replicated
from odradek.storage.config import LogConfig
from odradek.storage.producers.entry import EndMarker, Origin
from tests.support.logs import NOW_MS, batch, marker, produced

HOUR_MS = 3_600_000


def check(data: bytes, origin: Origin = Origin.CLIENT, *, allow_zstd: bool = True, **config: Any) -> list[CheckedBatch]:
    return check_leader_append(data, origin, LogConfig(**config), now_ms=NOW_MS, allow_zstd=allow_zstd)


def resealed(data: bytes, **fields: int) -> bytes:
    """Return the batch with changed header fields and a valid checksum."""
    header = read_header(data)
    for name, value in fields.items():
        setattr(header, name, value)
    return seal_batch(header, data[61:])


def with_magic(data: bytes, magic: int) -> bytes:
    return data[:16] + bytes([magic]) + data[17:]


PLAIN = batch(3)
KEYLESS = build_batch([(None, b"v", NOW_MS, ())])
SHIFTED = build_batch([(b"k", b"v", NOW_MS, ()), (b"k", b"v", NOW_MS - HOUR_MS, ())])
ZSTD = batch(2, compression=Compression.ZSTD)

INVALID, CORRUPT = ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE
REFUSED: list[tuple[str, bytes, dict[str, Any], ErrorCode]] = [
    ("nothing", b"", {}, INVALID),
    ("two batches", PLAIN + PLAIN, {}, INVALID),
    ("truncated", PLAIN[:-1], {}, INVALID),
    ("message format 1", with_magic(PLAIN, 1), {}, INVALID),
    ("message format 3", with_magic(PLAIN, 3), {}, CORRUPT),
    ("length below any format", PLAIN[:8] + struct.pack(">i", 13) + PLAIN[12:], {}, CORRUPT),
    ("negative length", PLAIN[:8] + struct.pack(">i", -1) + PLAIN[12:], {}, CORRUPT),
    ("length below the header", PLAIN[:8] + struct.pack(">i", 48) + PLAIN[12:], {}, CORRUPT),
    ("flipped bit", PLAIN[:-1] + bytes([PLAIN[-1] ^ 1]), {}, CORRUPT),
    ("base offset", resealed(PLAIN, base_offset=1), {}, INVALID),
    ("count below the delta", resealed(PLAIN, record_count=2), {}, INVALID),
    ("no records", resealed(PLAIN, record_count=0, last_offset_delta=0), {}, INVALID),
    ("negative count", resealed(PLAIN, record_count=-1), {}, INVALID),
    ("control batch", marker(7, commit=True), {}, INVALID),
    ("producer without sequence", resealed(produced(7, 0), base_sequence=-1), {}, INVALID),
    ("codec 5", resealed(PLAIN, attributes=5), {}, INVALID),
    ("zstd too early", ZSTD, {"allow_zstd": False}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    ("too large", PLAIN, {"max_message_bytes": len(PLAIN) - 1}, ErrorCode.MESSAGE_TOO_LARGE),
    ("timestamp type", resealed(PLAIN, attributes=8), {}, ErrorCode.INVALID_TIMESTAMP),
    ("from the future", batch(1, timestamp=NOW_MS + HOUR_MS + 1), {}, ErrorCode.INVALID_TIMESTAMP),
    (
        "from the past",
        batch(1, timestamp=NOW_MS - 11),
        {"message_timestamp_before_max_ms": 10},
        ErrorCode.INVALID_TIMESTAMP,
    ),
    ("one record from the past", SHIFTED, {"message_timestamp_before_max_ms": 10}, ErrorCode.INVALID_TIMESTAMP),
    ("no key", KEYLESS, {"cleanup_policy": ("compact",)}, INVALID),
    ("no key, both policies", KEYLESS, {"cleanup_policy": ("compact", "delete")}, INVALID),
    ("damaged inside", resealed(PLAIN[:61] + b"\xff" * (len(PLAIN) - 61)), {"validate_records_all": True}, INVALID),
    ("damaged zstd", resealed(ZSTD[:61] + b"\xff" * (len(ZSTD) - 61)), {"validate_records_all": True}, INVALID),
    (
        "offsets with a gap",
        resealed(PLAIN[:61] + PLAIN[61:].replace(b"\x02\x02", b"\x02\x04", 1)),
        {"validate_records_all": True},
        INVALID,
    ),
]


@pytest.mark.parametrize(("rule", "data", "options", "expected"), REFUSED, ids=[row[0] for row in REFUSED])
def test_invalid_batch_is_refused(rule: str, data: bytes, options: dict[str, Any], expected: ErrorCode) -> None:
    with pytest.raises(Refusal) as caught:
        check(data, **options)
    assert caught.value.error is expected


ACCEPTED: list[tuple[str, bytes, dict[str, Any]]] = [
    ("plain", PLAIN, {}),
    ("a partial batch behind it is left out", PLAIN + PLAIN[:40], {}),
    ("at the limit of size", PLAIN, {"max_message_bytes": len(PLAIN)}),
    ("an hour ahead", batch(1, timestamp=NOW_MS + HOUR_MS), {}),
    ("without timestamps", batch(1, timestamp=-1), {"message_timestamp_before_max_ms": 10}),
    (
        "from the future, append time",
        batch(1, timestamp=NOW_MS + HOUR_MS + 1),
        {"message_timestamp_type": "LogAppendTime"},
    ),
    ("damaged inside, not decoded", resealed(PLAIN[:61] + b"\xff" * (len(PLAIN) - 61)), {}),
    ("zstd", ZSTD, {"validate_records_all": True}),
]


@pytest.mark.parametrize(("rule", "data", "options"), ACCEPTED, ids=[row[0] for row in ACCEPTED])
def test_valid_batch_is_accepted(rule: str, data: bytes, options: dict[str, Any]) -> None:
    (checked,) = check(data, **options)
    assert checked.header.record_count == read_header(data).record_count


def test_missing_max_timestamp_is_set() -> None:
    lying = resealed(PLAIN, max_timestamp=NOW_MS + 99)
    assert check(lying)[0].header.max_timestamp == NOW_MS + 99
    (checked,) = check(lying, validate_records_all=True)
    assert checked.header.max_timestamp == NOW_MS + 2
    whole = bytes(checked.header_bytes) + bytes(checked.records)
    assert verify_crc(whole, 0, read_header(whole))


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("codec_of_topic", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_batch_is_converted_to_the_codec_of_the_topic(codec: Compression, codec_of_topic: str) -> None:
    data = produced(7, 5, 4, compression=codec, transactional=True)
    (checked,) = check(data, compression_type=codec_of_topic)
    whole = bytes(checked.header_bytes) + bytes(checked.records)
    header, before = read_header(whole), read_header(data)
    assert header.compression.name.lower() == codec_of_topic.replace("uncompressed", "none")
    assert verify_crc(whole, 0, header)
    for name in ("producer_id", "producer_epoch", "base_sequence", "record_count", "max_timestamp", "is_transactional"):
        assert getattr(header, name) == getattr(before, name)
    assert list(iter_records(whole, max_decompressed_bytes=1000)) == list(
        iter_records(data, max_decompressed_bytes=1000)
    )


LEVELS = [
    ("gzip", {"compression_gzip_level": 1}, {"compression_gzip_level": 9}),
    ("lz4", {}, {"compression_lz4_level": 12}),
    ("zstd", {"compression_zstd_level": -100}, {"compression_zstd_level": 19}),
]


@pytest.mark.parametrize(("codec", "low", "high"), LEVELS)
def test_converted_batch_has_the_compression_level_of_the_topic(
    codec: str, low: dict[str, Any], high: dict[str, Any]
) -> None:
    data = build_batch([(None, b"%d" % (number * number % 997), NOW_MS, ()) for number in range(2_000)])
    sizes = [check(data, compression_type=codec, **level)[0].header.size for level in (low, high)]
    assert sizes[0] > sizes[1]
    as_produced = check(data, **high)[0].header
    assert as_produced.size == read_header(data).size, "the broker does not compress with compression.type=producer"


def test_markers_are_read_and_not_converted() -> None:
    (checked,) = check(marker(7, commit=False, coordinator_epoch=4), Origin.COORDINATOR, compression_type="gzip")
    assert checked.marker == EndMarker(abort=True, coordinator_epoch=4, timestamp=NOW_MS)
    assert checked.header.compression is Compression.NONE


def test_control_batch_without_a_transaction_marker_has_no_marker() -> None:
    leader_change = build_batch([(b"\x00\x00\x00\x02", b"\x00\x00", NOW_MS, ())], control=True)
    (checked,) = check(leader_change, Origin.RAFT_LEADER)
    assert checked.marker is None
    broken = build_batch(
        [(b"\x00", b"", NOW_MS, ())], control=True, transactional=True, producer_id=1, producer_epoch=0
    )
    with pytest.raises(Refusal):
        check(broken, Origin.COORDINATOR)


FOREIGN = [origin for origin in Origin if origin is not Origin.COORDINATOR]
"""Origins of batches that other processes have built."""


@given(st.binary(max_size=200), st.integers(0, 120), st.sampled_from(FOREIGN))
def test_arbitrary_bytes_are_refused_or_taken(garbage: bytes, at: int, origin: Origin) -> None:
    for data in (garbage, PLAIN[:at] + garbage, PLAIN[:at] + garbage + PLAIN[at + len(garbage) :]):
        with contextlib.suppress(Refusal):
            check(data, origin, validate_records_all=True)
        with contextlib.suppress(Refusal):
            check_replicated(data)


def test_marker_is_appended_whatever_size_the_topic_permits() -> None:
    """A client can set max.message.bytes to 0 while a transaction is open, and the coordinator must complete it."""
    checked = check(marker(7, commit=False), Origin.COORDINATOR, max_message_bytes=0)
    assert [each.header.is_control for each in checked] == [True]
    with pytest.raises(Refusal) as refused:
        check(PLAIN, Origin.COORDINATOR, max_message_bytes=0)
    assert refused.value.error is ErrorCode.MESSAGE_TOO_LARGE


def test_records_and_markers_of_a_coordinator_get_the_time_of_their_append() -> None:
    later = NOW_MS + HOUR_MS
    config = LogConfig(message_timestamp_type="LogAppendTime")
    for data in (PLAIN, marker(7, commit=True)):
        (checked,) = check_leader_append(data, Origin.COORDINATOR, config, now_ms=later)
        stamped = bytes(checked.header_bytes) + bytes(checked.records)
        assert verify_crc(stamped, 0, read_header(stamped))
        assert {record.timestamp for record in iter_records(stamped, max_decompressed_bytes=1000)} == {later}
    assert checked.marker == EndMarker(abort=False, coordinator_epoch=0, timestamp=later)
