"""Compaction of batches with timestamps that are far apart: each written number fits its 64 bits."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.protocol.batch import (
    HEADER_BYTES,
    NO_TIMESTAMP,
    Compression,
    build_batch,
    iter_records,
    read_header,
    verify_crc,
)
from odradek.protocol.compression import decompress
from odradek.protocol.errors import Malformed
from odradek.protocol.primitives import INT64_MAX, INT64_MIN
from odradek.protocol.record import read_raw_records, record_bytes
from odradek.storage.compaction.batch_filter import BatchFilter, CleaningSlice
from odradek.storage.compaction.cleaned_transactions import CleanedTransactions
from odradek.storage.compaction.offset_map import OffsetMap, key_digest
from odradek.storage.config import LogConfig
from odradek.storage.disk.os_disk import OsDisk
from tests.support.cleaning import clean, fetched, latest
from tests.support.crafted import TOO_LONG_DELTA, crafted
from tests.support.logs import NOW_MS, append, headers, open_log

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from odradek.protocol.schema import Buffer

COMPACTED = LogConfig(cleanup_policy=("compact",), delete_retention_ms=1_000)
FAR_PAST_MS = NOW_MS - INT64_MAX + 10
"""A timestamp that is valid for a topic without bounds, and more than 2**63 before each delete horizon."""
BODY_BYTES_MAX = 1 << 20
Row = tuple[bytes, bytes | None, int]
"""Key, value and timestamp delta of a record."""
EDGES = st.sampled_from([0, 1, -1, NOW_MS, FAR_PAST_MS, INT64_MIN, INT64_MIN + 1, INT64_MAX, -INT64_MAX])
ROWS = st.lists(
    st.tuples(
        st.sampled_from([b"a", b"b", b"c"]), st.none() | st.just(b"v"), EDGES | st.integers(INT64_MIN, INT64_MAX)
    ),
    min_size=1,
    max_size=5,
)


@pytest.fixture
def disk() -> Iterator[OsDisk]:
    os_disk = OsDisk()
    yield os_disk
    os_disk.close()


def crafted_batch(rows: list[Row], base_timestamp: int, codec: Compression = Compression.NONE) -> bytes:
    """A batch with any timestamp deltas, as a client can send it to a topic whose records are not checked."""
    body = b"".join(record_bytes(number, key, value, delta, ()) for number, (key, value, delta) in enumerate(rows))
    return crafted(body, len(rows), codec, base_timestamp=base_timestamp, max_timestamp=base_timestamp)


def stored(batch: Buffer) -> list[tuple[int, bytes, bool, int]]:
    """Offset, key, has a value, and timestamp of each record, as Kafka's consumer reads them: the sum overflows."""
    header = read_header(batch)
    body: Buffer = batch[HEADER_BYTES:]
    if header.compression is not Compression.NONE:
        body = decompress(header.compression, body, max_bytes=BODY_BYTES_MAX)
    return [
        (
            header.base_offset + record.offset_delta,
            bytes(record.key or b""),
            record.has_value,
            (header.base_timestamp + record.timestamp_delta + 2**63) % 2**64 - 2**63,
        )
        for record in read_raw_records(body, header.record_count)
    ]


def filtered(batch: bytes, *, expiry_ms: int, newer: tuple[bytes, ...] = ()) -> Buffer | None:
    """Filter a batch of a log in which later batches have the keys `newer`."""
    offsets = OffsetMap(1 << 16, 0.9)
    for offset, key, _, _ in stored(batch):
        offsets.put(key_digest(key), offset)
    for key in newer:
        offsets.put(key_digest(key), 100)
    offsets.note_offset(100)
    batches = BatchFilter(offsets, CleanedTransactions([]), {}, 101, expiry_ms, expiry_ms + 1_000, CleaningSlice())
    steps = batches.clean(read_header(batch), memoryview(batch))
    result: Any = None
    while True:
        try:
            step = steps.send(result)
        except StopIteration as stop:
            kept: Buffer | None = stop.value
            return kept
        result = step() if callable(step) else None


@given(
    rows=ROWS,
    base_timestamp=EDGES,
    codec=st.sampled_from([Compression.NONE, Compression.GZIP]),
    newer=st.sets(st.sampled_from([b"a", b"b"])),
)
def test_filtered_batch_is_valid_and_has_the_same_timestamps(
    rows: list[Row], base_timestamp: int, codec: Compression, newer: set[bytes]
) -> None:
    batch = crafted_batch(rows, base_timestamp, codec)
    newest = {key: offset for offset, key, _, _ in stored(batch) if key not in newer}
    expected = [record for record in stored(batch) if newest.get(record[1]) == record[0]]
    kept = filtered(batch, expiry_ms=NOW_MS, newer=tuple(sorted(newer)))
    if kept is None:
        assert not expected
        return
    header = read_header(kept)
    assert verify_crc(kept, 0, header)
    assert stored(kept) == expected
    if bytes(kept) != batch:
        assert header.max_timestamp == max([NO_TIMESTAMP, *(timestamp for *_, timestamp in expected)])
    again = filtered(bytes(kept), expiry_ms=NOW_MS + 1_000)
    expired = [record for record in expected if record[2] or not header.has_delete_horizon]
    assert ([] if again is None else stored(again)) == expired


async def test_tombstone_in_the_far_past_stays_readable_and_removes_its_key(disk: OsDisk, tmp_path: Path) -> None:
    log = open_log(disk, str(tmp_path), COMPACTED)
    append(log, build_batch([(b"k", b"old", NOW_MS, ())]))
    append(log, build_batch([(b"k", None, FAR_PAST_MS, ()), (b"other", b"v", FAR_PAST_MS + 5, ())]))
    log.roll(NOW_MS)
    append(log, build_batch([(b"z", b"v", NOW_MS, ())]))
    for now_ms in (NOW_MS, NOW_MS + 10_000):
        log.cleaned_to = None
        await clean(log, now_ms=now_ms)
        records = fetched(log, committed=False)
        assert [(record.key, record.value, record.timestamp) for record in records] == [
            (b"k", None, FAR_PAST_MS),
            (b"other", b"v", FAR_PAST_MS + 5),
            (b"z", b"v", NOW_MS),
        ]
        assert not any(header.has_delete_horizon for header in headers(log)), "no horizon fits the batch"


async def test_superseded_first_record_moves_no_delta_beyond_64_bits(disk: OsDisk, tmp_path: Path) -> None:
    """The distance of the second timestamp from the third exceeds 64 bits; that of each from the first does not."""
    low, high = INT64_MIN + 10, INT64_MAX - 10
    log = open_log(disk, str(tmp_path), replace(COMPACTED, message_timestamp_after_max_ms=INT64_MAX))
    append(log, crafted_batch([(b"a", b"v", 0), (b"b", b"v", low), (b"c", b"v", high)], 0), now_ms=0)
    append(log, build_batch([(b"a", b"new", NOW_MS, ())]))
    log.roll(NOW_MS)
    append(log, build_batch([(b"z", b"v", NOW_MS, ())]))
    await clean(log)
    records = fetched(log, committed=False)
    assert [(record.key, record.timestamp) for record in records][:2] == [(b"b", low), (b"c", high)]
    assert latest(records)[b"a"] == b"new"


@pytest.mark.parametrize("codec", list(Compression))
def test_sum_beyond_64_bits_overflows_as_in_kafka(codec: Compression) -> None:
    batch = crafted_batch([(b"a", b"v", 0), (b"b", b"v", INT64_MAX)], NOW_MS, codec)
    kept = filtered(batch, expiry_ms=NOW_MS, newer=(b"a",))
    assert kept is not None
    (record,) = iter_records(kept, max_decompressed_bytes=BODY_BYTES_MAX)
    assert (record.key, record.timestamp) == (b"b", NOW_MS + INT64_MAX - 2**64)
    assert read_header(kept).max_timestamp == NO_TIMESTAMP


async def test_error_of_an_unreadable_batch_has_its_file_and_offset(disk: OsDisk, tmp_path: Path) -> None:
    """Earlier versions wrote such a batch."""
    log = open_log(disk, str(tmp_path))
    append(log, build_batch([(b"k", b"v", NOW_MS, ())] * 2))
    append(log, crafted(TOO_LONG_DELTA, 1))
    log.roll(NOW_MS)
    log.update_config(COMPACTED)
    append(log, build_batch([(b"z", b"v", NOW_MS, ())]))
    path = re.escape(log.segments.first.path(".log"))
    with pytest.raises(
        Malformed, match=rf"^{path}: batch at byte \d+, at or after offset 2: .* does not fit its type$"
    ):
        await clean(log)
