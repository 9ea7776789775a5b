"""Positions of all partitions in addresses, and pages of all partitions in the order of time."""

from __future__ import annotations

import random

import pytest

from odradek.client.errors import InvalidArgument
from odradek.console.model import records
from odradek.console.model.memory_limit import MemoryLimit, PageMemory
from odradek.console.model.record_cursor import PARTITIONS_MAX, format_cursor, parse_cursor
from odradek.console.model.records import RECORDS_PER_PAGE, RecordQuery, RecordsPage, read_records
from tests.support.fake_log import NAME, FakeLog


@pytest.fixture
def log() -> FakeLog:
    """A topic with three partitions."""
    return FakeLog(3)


async def read(log: FakeLog, query: RecordQuery) -> RecordsPage:
    return await read_records(log, NAME, query, PageMemory(MemoryLimit()))  # type: ignore[arg-type]


def times(page: RecordsPage) -> list[int]:
    return [row.timestamp_ms for row in reversed(page.rows)]


@pytest.mark.parametrize("cursor", [{0: 0}, {0: 120, 7: 2**63 - 1}, dict.fromkeys(range(PARTITIONS_MAX), 2**63 - 1)])
def test_position_is_read_again(cursor: dict[int, int]) -> None:
    assert parse_cursor(format_cursor(cursor)) == cursor


@pytest.mark.parametrize(
    "text",
    [
        "0",
        "0-",
        "0-1.",
        "0-1.0-2",
        "0--1",
        "a-1",
        "0-1,1-1",
        "0-\u0661",
        "0-9223372036854775808",
        "0-" + "9" * 1_000_000,
        ".".join(f"{index}-1" for index in range(PARTITIONS_MAX + 1)),
        "." * 10_000,
    ],
)
def test_malformed_or_long_position_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="is malformed"):
        parse_cursor(text)


def test_empty_position_is_none() -> None:
    assert parse_cursor("") is None


async def test_pages_of_all_partitions_are_in_the_order_of_time_without_gap_or_overlap(log: FakeLog) -> None:
    generator = random.Random(7)
    for time_ms in range(1, 261):
        log.append([(time_ms, b"x")], partition=generator.choice((0, 0, 0, 1)))
    backward: list[int] = []
    forward: list[int] = []
    page = await read(log, RecordQuery())
    assert page.newer == ""
    while True:
        backward = times(page) + backward
        if not page.older:
            break
        assert len(page.rows) == RECORDS_PER_PAGE
        page = await read(log, RecordQuery(older=parse_cursor(page.older)))
    while True:
        forward += times(page)
        if not page.newer:
            break
        page = await read(log, RecordQuery(newer=parse_cursor(page.newer)))
    assert backward == forward == list(range(1, 261))


async def test_records_with_times_out_of_order_are_on_one_page_each(log: FakeLog) -> None:
    generator = random.Random(7)
    for _ in range(300):
        log.append([(generator.randrange(50), b"x")], partition=generator.randrange(3))
    found = []
    page = await read(log, RecordQuery())
    while True:
        found += [(row.partition, row.offset) for row in page.rows]
        if not page.older:
            break
        page = await read(log, RecordQuery(older=parse_cursor(page.older)))
    assert len(found) == len(set(found)) == 300


async def test_page_ends_where_the_limit_of_bytes_hides_records_of_the_same_time(
    log: FakeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "SEARCH_BYTES_MIN", 10_000)
    monkeypatch.setattr(records, "BYTES_MAX", 10_000)
    for time_ms in range(1, 41):
        log.append([(time_ms, b"x" * (6_000 if time_ms % 2 else 1))], partition=time_ms % 2)
    found: list[int] = []
    page = await read(log, RecordQuery())
    assert not page.complete
    while True:
        found = times(page) + found
        if not page.older:
            break
        page = await read(log, RecordQuery(older=parse_cursor(page.older)))
    assert found == list(range(1, 41))


async def test_position_of_other_partitions_is_refused(log: FakeLog) -> None:
    with pytest.raises(InvalidArgument, match="other partitions"):
        await read(log, RecordQuery(older={3: 1}))
    assert log.fetches == []


async def test_offsets_of_all_partitions_are_read_together_and_one_without_leader_hides_no_other(log: FakeLog) -> None:
    log.leaderless = 1
    for partition in (0, 2):
        log.append([(partition, b"x")], partition=partition)
    page = await read(log, RecordQuery())
    assert times(page) == [0, 2]
    assert [part.error for part in page.pages.values()] == ["", "the partition has no leader", ""]
    assert log.offset_requests == 3


async def test_partition_whose_leader_does_not_return_the_offset_of_a_time_is_shown_as_not_read(log: FakeLog) -> None:
    for partition in range(3):
        log.append([(100, b"x")], partition)
    log.undated = [1]
    page = await read(log, RecordQuery(time_ms=50))
    assert [row.partition for row in page.rows] == [2, 0]
    assert page.pages[1].value is None
    assert page.pages[1].error == "broker 1 did not return its offset at this time"
    assert page.newer == page.older == ""
