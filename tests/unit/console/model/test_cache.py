"""Values that requests share, and parts of pages."""

from __future__ import annotations

import asyncio

import pytest

from odradek.client import ClientError
from odradek.console.model import cache as cache_module
from odradek.console.model.cache import ENTRIES_MAX, Cache
from odradek.console.model.parts import Part, read_part


class Source:
    """A source of values that counts its reads."""

    def __init__(self) -> None:
        self.reads = 0
        self.ready = asyncio.Event()
        self.ready.set()

    async def read(self) -> int:
        self.reads += 1
        await self.ready.wait()
        if self.reads == 1:
            return 1
        raise ClientError("no response")


async def test_requests_at_the_same_time_share_one_reading() -> None:
    source, cache = Source(), Cache(ttl_s=60)
    source.ready.clear()
    waiting = [asyncio.create_task(cache.get("a", source.read)) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.sleep(0)
    source.ready.set()
    assert [await each for each in waiting[1:]] == [1, 1]
    assert await cache.get("a", source.read) == 1
    assert source.reads == 1


async def test_value_is_read_again_after_its_time_and_a_failure_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "TTL_PER_SECOND", 0.0)
    source, cache = Source(), Cache(ttl_s=0)
    assert await cache.get("a", source.read) == 1
    for reads in (2, 3):
        with pytest.raises(ClientError):
            await cache.get("a", source.read)
        assert source.reads == reads


async def test_number_of_values_is_bounded() -> None:
    cache = Cache(ttl_s=60)

    async def value() -> int:
        return 1

    for key in range(2 * ENTRIES_MAX):
        await cache.get(key, value)
    assert len(cache._readings) == ENTRIES_MAX


async def test_requests_that_wait_receive_the_value_after_a_clear_and_an_error_after_the_end() -> None:
    source, cache = Source(), Cache(ttl_s=60)
    source.ready.clear()
    first = asyncio.create_task(cache.get("a", source.read))
    await asyncio.sleep(0)
    cache.clear()
    second = asyncio.create_task(cache.get("a", source.read))
    await asyncio.sleep(0)
    cache.close()
    with pytest.raises(ClientError, match="the session has ended"):
        await second
    source.reads = 1
    source.ready.set()
    assert await first == 1
    assert cache._readings == {}


async def test_part_has_the_reason_of_a_failure() -> None:
    async def refused() -> int:
        raise ClientError("refused")

    assert await read_part(refused()) == Part(error="refused")
    assert await read_part(asyncio.sleep(0, 7)) == Part(7)
    assert await read_part(asyncio.Event().wait(), 0.001) == Part(error="no response within 0.001 s")
