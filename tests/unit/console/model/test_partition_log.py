"""Backward reads of batches that are larger than the fetch size or the limit of a page, and of compressed ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from odradek.console.model import partition_log
from odradek.protocol.compression import Compression
from tests.support.fake_log import FakeLog

if TYPE_CHECKING:
    from odradek.console.model.log_record import LogRecord

SIZE = 3_000
"""Size of a value in bytes."""


def anything(_: LogRecord) -> bool:
    return True


async def pages(log: FakeLog, bytes_max: int, count: int = 50) -> list[list[int]]:
    """Read all pages backward, and return the offsets of each."""
    before, found = log.bounds().high, []
    while before > 0:
        page = await log.reader(bytes_max).backward(before, count, anything)
        assert page.first < before, "the next page repeats this one"
        found.append([row.offset for row in page.rows])
        before = page.first
    return found


@pytest.mark.parametrize("bytes_max", [1, SIZE, 25_000, 70_000, 1_000_000])
@pytest.mark.parametrize("records", [1, 10])
async def test_pages_backward_have_each_record_once(
    records: int, bytes_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_log, "FETCH_BYTES", 10_000)
    log = FakeLog()
    for _ in range(60 // records):
        log.append((0, b"x" * SIZE) for _ in range(records))
    found = await pages(log, bytes_max)
    assert [offset for page in reversed(found) for offset in page] == list(range(60))


async def test_page_has_the_whole_last_batch_if_it_exceeds_the_limit() -> None:
    log = FakeLog()
    for _ in range(2):
        log.append((0, b"x" * SIZE) for _ in range(10))
    assert await pages(log, bytes_max=SIZE) == [list(range(10, 20)), list(range(10))]


async def test_batch_that_is_too_large_after_decompression_hides_no_other_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(partition_log, "BATCH_BYTES_MAX", 100_000)
    log = FakeLog()
    log.append([(1, b"first")])
    log.append([(2, b"\0" * 1_000_000)], compression=Compression.ZSTD)
    log.append([(3, b"last")])
    backward = await log.reader(1_000_000).backward(3, 50, anything)
    forward = await log.reader(1_000_000).forward(0, 50, anything)
    assert [row.value for row in backward.rows] == [row.value for row in forward.rows] == [b"first", None, b"last"]
    assert [bool(row.problem) for row in backward.rows] == [False, True, False]
    assert "exceeds the limit" in backward.rows[1].problem


async def test_decompressed_bytes_count_for_the_limit_of_a_page() -> None:
    log = FakeLog()
    for _ in range(50):
        log.append([(0, b"\0" * 100_000)], compression=Compression.ZSTD)
    backward = await log.reader(1_000_000).backward(50, 50, anything)
    forward = await log.reader(1_000_000).forward(0, 50, anything)
    for page in (backward, forward):
        assert 0 < len(page.rows) <= 12
        assert not page.complete


async def test_records_without_content_count_for_the_limit_of_a_search() -> None:
    log = FakeLog()
    for _ in range(10):
        log.append(((0, b"") for _ in range(20_000)), compression=Compression.ZSTD)
    for page in (
        await log.reader(200_000).forward(0, 50, lambda _: False),
        await log.reader(200_000).backward(200_000, 50, lambda _: False),
    ):
        assert page.end - page.first <= 40_000
        assert not page.complete


async def test_fetch_that_a_quota_throttles_is_sent_again() -> None:
    log = FakeLog()
    for _ in range(3):
        log.append([(0, b"x" * SIZE)])
    log.throttled = 2
    backward = await log.reader(100_000).backward(3, 50, anything)
    assert log.throttled == 0
    log.throttled = 2
    forward = await log.reader(100_000).forward(0, 50, anything)
    for page in (backward, forward):
        assert [row.offset for row in page.rows] == [0, 1, 2]
        assert page.complete
