"""Checks and conversions of records: their bounds, and the work between two pauses."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from odradek.protocol.batch import (
    CONTROL,
    TRANSACTIONAL,
    Compression,
    build_batch,
    iter_records,
    read_header,
    seal_batch,
)
from odradek.protocol.compression import decompress
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.record import scan_records
from odradek.storage.batches import record_checks
from odradek.storage.batches.limits import EXPANSION_MAX, decompressed_bytes_max, records_max
from odradek.storage.batches.record_checks import SLICE_UNITS, RecordCheckPending
from odradek.storage.batches.record_errors import RECORD_ERRORS_MAX, RecordsRefused
from odradek.storage.batches.validation import CheckedBatch, check_leader_append, check_replicated
from odradek.storage.batches.work import WorkSlice
from odradek.storage.config import LogConfig
from odradek.storage.producers.entry import Origin
from tests.support.crafted import KEYLESS, crafted, tiny_record, tiny_records, traced_peak
from tests.support.logs import NOW_MS

if TYPE_CHECKING:
    from collections.abc import Iterator

KIB, MIB = 1024, 1024 * 1024
COMPRESSED = [codec for codec in Compression if codec is not Compression.NONE]
COMPACTED = LogConfig(cleanup_policy=("compact",))


class Slices:
    """Runs a check slice by slice, and counts what it scans and decompresses in each slice."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.scanned: list[int] = [0]
        self.inline_bytes: list[int] = [0]
        self.threads = 0
        self._in_thread = False
        self._decompress = decompress
        monkeypatch.setattr(record_checks, "scan_records", self._scan)
        monkeypatch.setattr(record_checks, "decompress", self._decompressed)

    def _scan(self, body: Any, count: int) -> Iterator[tuple[int, int, bool] | None]:
        for record in scan_records(body, count):
            self.scanned[-1] += 1
            yield record

    def _decompressed(self, codec: Compression, data: Any, *, max_bytes: int) -> bytes:
        body = self._decompress(codec, data, max_bytes=max_bytes)
        if not self._in_thread:
            self.inline_bytes[-1] += len(body)
        return body

    def run(self, data: bytes, config: LogConfig) -> CheckedBatch:
        """Run the whole check. Each pause and each thread begins a new slice."""
        try:
            (checked,) = check_leader_append(data, Origin.CLIENT, config, now_ms=NOW_MS, work=WorkSlice(SLICE_UNITS))
        except RecordCheckPending as pending:
            request = pending.first
            try:
                while True:
                    result = None
                    if request is not None:
                        self.threads += 1
                        self._in_thread = True
                        result = request()
                        self._in_thread = False
                    self.scanned.append(0)
                    self.inline_bytes.append(0)
                    request = pending.work.send(result)
            except StopIteration as stop:
                result_batch: CheckedBatch = stop.value
                return result_batch
        return checked


def refused(data: bytes, config: LogConfig) -> Refusal:
    with pytest.raises(Refusal) as caught:
        check_leader_append(data, Origin.CLIENT, config, now_ms=NOW_MS)
    return caught.value


@pytest.mark.parametrize("codec", list(Compression))
def test_check_of_many_records_pauses_after_a_bounded_number(
    codec: Compression, monkeypatch: pytest.MonkeyPatch
) -> None:
    slices = Slices(monkeypatch)
    checked = slices.run(tiny_records(20_000, codec), COMPACTED)
    assert checked.header.record_count == 20_000
    assert sum(slices.scanned) == 20_000
    assert max(slices.scanned) <= SLICE_UNITS
    assert max(slices.inline_bytes) <= record_checks.INLINE_EXPANDED_BYTES_MAX


def test_check_of_one_record_with_many_headers_pauses_after_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    slices = Slices(monkeypatch)
    slices.run(crafted(tiny_record(0, headers=30_000), 1, Compression.ZSTD), COMPACTED)
    assert sum(slices.scanned) == 30_001
    assert max(slices.scanned) <= SLICE_UNITS


def test_small_batch_is_checked_in_one_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    slices = Slices(monkeypatch)
    slices.run(tiny_records(SLICE_UNITS - 20, Compression.GZIP), COMPACTED)
    assert (len(slices.scanned), slices.threads) == (1, 0)


def test_work_of_one_slice_is_shared_by_all_batches_of_a_request() -> None:
    work = WorkSlice(SLICE_UNITS)
    data = tiny_records(SLICE_UNITS // 2 - 10)
    for _ in range(2):
        check_leader_append(data, Origin.CLIENT, COMPACTED, now_ms=NOW_MS, work=work)
    with pytest.raises(RecordCheckPending):
        check_leader_append(data, Origin.CLIENT, COMPACTED, now_ms=NOW_MS, work=work)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_more_records_than_an_uncompressed_batch_can_have_are_refused_unread(codec: Compression) -> None:
    data = crafted(KEYLESS * 400_000, 400_000, codec)
    with traced_peak() as peak:
        refusal = refused(data, COMPACTED)
    assert refusal.error is ErrorCode.MESSAGE_TOO_LARGE
    assert peak.bytes < 64 * KIB


@pytest.mark.parametrize("codec", COMPRESSED)
def test_memory_of_a_check_is_bounded_by_max_message_bytes(codec: Compression) -> None:
    data = build_batch([(b"k", bytes(16 * MIB), NOW_MS, ())], compression=codec)
    config = LogConfig(validate_records_all=True, max_message_bytes=max(256 * KIB, len(data)))
    bound = decompressed_bytes_max(len(data), config.max_message_bytes)
    error = None
    with traced_peak() as peak:
        try:
            check_leader_append(data, Origin.CLIENT, config, now_ms=NOW_MS)
        except Refusal as refusal:
            error = refusal.error
    # snappy cannot expand to 32 times its input; the other codecs exceed the bound
    assert error is (None if codec is Compression.SNAPPY else ErrorCode.MESSAGE_TOO_LARGE)
    assert peak.bytes <= 2 * bound + MIB


@pytest.mark.parametrize("target", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_memory_of_a_conversion_is_at_most_what_is_reserved(target: str) -> None:
    """The records repeat at a distance that only zstd finds, so that other codecs do not compress them."""
    value = Random(1).randbytes(96 * KIB) * 80
    data = build_batch([(b"k", value, NOW_MS, ())], compression=Compression.ZSTD)
    config = LogConfig(compression_type=target, validate_records_all=True, max_message_bytes=256 * KIB)
    with pytest.raises(RecordCheckPending) as caught:
        check_leader_append(data, Origin.CLIENT, config, now_ms=NOW_MS, work=WorkSlice(SLICE_UNITS))
    pending = caught.value
    request, error = pending.first, None
    with traced_peak() as peak:
        try:
            while True:
                request = pending.work.send(None if request is None else request())
        except Refusal as refusal:
            error = refusal.error
        except StopIteration:
            pass
    assert error is (None if target == "zstd" else ErrorCode.MESSAGE_TOO_LARGE)
    assert peak.bytes <= pending.memory_bytes


@pytest.mark.parametrize("codec", COMPRESSED)
def test_batch_of_repeated_records_passes_at_any_ratio(codec: Compression) -> None:
    """1 MiB of equal records: gzip compresses it by 200 or more, zstd by 500 or more."""
    rows = [(b"k", bytes(1_000), NOW_MS, ())] * 1_020
    data = build_batch(rows, compression=codec)
    (checked,) = check_leader_append(data, Origin.CLIENT, COMPACTED, now_ms=NOW_MS)
    assert checked.header.record_count == len(rows)
    assert codec is Compression.SNAPPY or codec is Compression.LZ4 or len(data) < 1_020_000 / 100


def test_check_stops_after_the_first_thousand_invalid_records(monkeypatch: pytest.MonkeyPatch) -> None:
    slices = Slices(monkeypatch)
    with pytest.raises(RecordsRefused) as caught:
        slices.run(crafted(KEYLESS * 100_000, 100_000, Compression.GZIP), COMPACTED)
    assert caught.value.error is ErrorCode.INVALID_RECORD
    assert len(caught.value.record_errors) == RECORD_ERRORS_MAX
    assert sum(slices.scanned) <= RECORD_ERRORS_MAX


def test_bounds_follow_max_message_bytes() -> None:
    assert decompressed_bytes_max(100, MIB) == MIB, "what fits without compression is permitted at any ratio"
    assert decompressed_bytes_max(2_000, MIB) == 2_000_000, "then the ratio counts"
    assert decompressed_bytes_max(MIB, MIB) == EXPANSION_MAX * MIB
    assert decompressed_bytes_max(16 * MIB, 16 * MIB) == 128 * MIB
    assert decompressed_bytes_max(10, 10) == 64 * KIB
    assert records_max(MIB) == MIB // 7


@pytest.mark.parametrize("source", list(Compression))
@pytest.mark.parametrize("target", ["gzip", "zstd", "uncompressed"])
def test_conversion_in_slices_keeps_each_record(
    source: Compression, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [(b"k%d" % n, b"v" * 30, NOW_MS + n % 7, [("h", b"x")]) for n in range(2_000)]
    slices = Slices(monkeypatch)
    data = build_batch(rows, compression=source)
    checked = slices.run(data, LogConfig(compression_type=target))
    converted = bytes(checked.header_bytes) + bytes(checked.records)
    expected = list(iter_records(data, max_decompressed_bytes=MIB))
    assert list(iter_records(converted, max_decompressed_bytes=MIB)) == expected
    assert read_header(converted).max_timestamp == NOW_MS + 6
    assert max(slices.scanned) <= SLICE_UNITS


@pytest.mark.parametrize("codec", COMPRESSED)
def test_control_batch_that_expands_is_refused_by_a_follower(codec: Compression) -> None:
    data = crafted(bytes(8 * MIB), 1, codec, attributes=TRANSACTIONAL | CONTROL)
    header = replace(read_header(data), producer_id=7, producer_epoch=0)
    sealed = seal_batch(header, data[61:])
    with traced_peak() as peak, pytest.raises(Refusal) as caught:
        check_replicated(sealed)
    assert caught.value.error is ErrorCode.INVALID_RECORD
    assert peak.bytes < MIB
