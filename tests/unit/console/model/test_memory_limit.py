"""Memory of the pages of records: readings wait for it in order, and are refused after a time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from odradek.client.errors import InvalidArgument
from odradek.console.model import memory_limit
from odradek.console.model.memory_limit import MemoryBusy, MemoryLimit
from odradek.console.model.partition_log import BYTES_MAX
from odradek.console.model.record_cursor import PARTITIONS_MAX
from odradek.console.model.records import (
    READS_MAX,
    RECORDS_PER_PAGE,
    SEARCH_BYTES_MIN,
    RecordQuery,
    RecordsPage,
    read_records,
)
from odradek.protocol.compression import Compression
from tests.support.fake_log import NAME, FakeLog

if TYPE_CHECKING:
    from odradek.console.model.memory_limit import PageMemory

SIZE = 100_000
"""Size of a value in bytes."""


async def test_readings_wait_in_the_order_of_their_requests() -> None:
    limit = MemoryLimit(10)
    order: list[str] = []

    async def read(name: str, size: int) -> None:
        with limit.page() as memory:
            await memory.reserve(size)
            order.append(name)

    with limit.page() as first:
        await first.reserve(6)
        waiting = [asyncio.create_task(read(name, size)) for name, size in (("large", 8), ("small", 1))]
        await asyncio.sleep(0)
        assert order == []
        first.release(1)
        assert limit.free_bytes == 5
    await asyncio.gather(*waiting)
    assert order == ["large", "small"]
    assert limit.free_bytes == 10


async def test_reading_that_waits_for_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_limit, "WAIT_S", 0.0)
    limit = MemoryLimit(10)
    with limit.page() as first, limit.page() as second:
        await first.reserve(6)
        with pytest.raises(MemoryBusy):
            await second.reserve(5)
        await second.reserve(4)
    assert limit.free_bytes == 10


async def test_cancelled_reading_releases_its_turn_and_its_memory() -> None:
    limit = MemoryLimit(10)
    with limit.page() as first, limit.page() as second, limit.page() as third:
        await first.reserve(6)
        large, small = (asyncio.create_task(each.reserve(size)) for each, size in ((second, 9), (third, 4)))
        await asyncio.sleep(0)
        large.cancel()
        await small
        late = asyncio.create_task(second.reserve(5))
        await asyncio.sleep(0)
        first.release(6)  # gives the memory in the same turn of the loop
        late.cancel()
        with pytest.raises(asyncio.CancelledError):
            await late
        assert limit.free_bytes == 6
    assert limit.free_bytes == 10


async def test_page_keeps_the_memory_of_its_records_until_its_end() -> None:
    limit, log = MemoryLimit(), FakeLog()
    for _ in range(3):
        log.append([(0, b"x" * SIZE)])
    with limit.page() as memory:
        page = await read_page(log, memory)
        held = limit.bytes_max - limit.free_bytes
        assert len(page.rows) == 3
        assert 3 * SIZE <= held <= 4 * SIZE
    assert limit.free_bytes == limit.bytes_max


async def test_page_is_refused_while_others_hold_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_limit, "WAIT_S", 0.0)
    log, limit = FakeLog(3), MemoryLimit()
    with limit.page() as other:
        await other.reserve(memory_limit.BYTES_MAX)
        with limit.page() as memory, pytest.raises(MemoryBusy):
            await read_page(log, memory)
    assert limit.free_bytes == limit.bytes_max
    with limit.page() as memory:
        assert (await read_page(log, memory)).partitions == 3


async def test_positions_of_other_partitions_reserve_nothing() -> None:
    limit = MemoryLimit()
    with limit.page() as memory, pytest.raises(InvalidArgument):
        await read_page(FakeLog(), memory, RecordQuery(older={7: 1}))
    assert limit.free_bytes == limit.bytes_max


@pytest.mark.parametrize("partitions", [1, 2, 7, PARTITIONS_MAX])
def test_reserved_memory_bounds_what_a_reading_takes(partitions: int) -> None:
    bytes_max = max(SEARCH_BYTES_MIN, BYTES_MAX // partitions)
    reserved = FakeLog().reader(bytes_max).memory_bytes_max(RECORDS_PER_PAGE)
    assert READS_MAX * reserved <= memory_limit.BYTES_MAX, "one page waits for itself"


async def test_compressed_headers_take_bounded_memory_and_time() -> None:
    log = FakeLog()
    log.append([(1, b"v")], compression=Compression.ZSTD, headers=(("", None),) * 1_000_000)
    with MemoryLimit().page() as memory:
        [row] = (await read_page(log, memory)).rows
    assert row.value == b"v"
    assert len(row.headers) == 201
    assert row.memory_bytes < SIZE


async def read_page(log: FakeLog, memory: PageMemory, query: RecordQuery | None = None) -> RecordsPage:
    return await read_records(log, NAME, query or RecordQuery(), memory)  # type: ignore[arg-type]
