"""Shards whose leader is this broker: commands to several of them."""

from __future__ import annotations

import asyncio
import gc
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from odradek.protocol.errors import ErrorCode, Refusal
from odradek.runtime.shards import LedShard, LedShards

if TYPE_CHECKING:
    from collections.abc import Sequence

    from odradek.runtime.shard import Shard


def led(outcome: int | ErrorCode) -> LedShard[Shard[Any, Any]]:
    """Return a shard that replies with a number, or refuses each command with an error."""

    def submit(_command: object, *, timeout_ms: int) -> asyncio.Future[int]:
        assert timeout_ms == 5
        future = asyncio.get_running_loop().create_future()
        if isinstance(outcome, ErrorCode):
            future.set_exception(Refusal(outcome))
        else:
            future.set_result(outcome)
        return future

    return cast("LedShard[Shard[Any, Any]]", SimpleNamespace(engine=SimpleNamespace(submit=submit)))


async def replies(*outcomes: int | ErrorCode) -> list[int]:
    """Submit a command to shards with these outcomes. Fail if asyncio reports a refusal that nothing read."""
    reports: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context))
    led_shards = cast("LedShards[Shard[Any, Any]]", object.__new__(LedShards))
    shards: Sequence[LedShard[Shard[Any, Any]]] = [led(outcome) for outcome in outcomes]
    try:
        return [reply for _, reply in await led_shards.submit_to_all("command", shards, timeout_ms=5)]
    finally:
        gc.collect()
        assert reports == []


async def test_closed_shards_are_left_out() -> None:
    assert await replies(1, ErrorCode.NOT_COORDINATOR, 3) == [1, 3]


async def test_all_refusals_are_read() -> None:
    unavailable = ErrorCode.COORDINATOR_NOT_AVAILABLE
    with pytest.raises(Refusal) as caught:
        await replies(1, unavailable, unavailable, ErrorCode.NOT_COORDINATOR)
    assert caught.value.error is unavailable
