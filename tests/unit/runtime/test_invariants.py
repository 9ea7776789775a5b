"""Each test breaks one invariant of the shard engine, and the next transition detects it."""

from __future__ import annotations

import heapq
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from odradek.invariants.shard import (
    ENGINE_APPEND_ORDER,
    ENGINE_COMMITTED,
    ENGINE_LOADED_ONCE,
    ENGINE_NOT_REENTERED,
    ENGINE_REPLY_COMMITTED,
    TIMER_ENTRIES,
)
from odradek.protocol.errors import Refusal
from odradek.runtime.calls import Parked
from odradek.runtime.shard import Timer
from odradek.runtime.timers import TimerQueue
from tests.support.cells import Rig
from tests.support.fake_shard_log import FakeClock
from tests.support.invariants import breaks

if TYPE_CHECKING:
    import pytest


@breaks(ENGINE_LOADED_ONCE)
async def test_second_load_is_a_violation() -> None:
    rig = await Rig().loaded()
    await rig.engine.load(1)


@breaks(ENGINE_NOT_REENTERED)
async def test_command_during_an_append_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = await Rig().loaded()
    append = rig.log.append

    def append_and_submit(*arguments: Any, **options: Any) -> int:
        rig.get("b")
        return append(*arguments, **options)

    monkeypatch.setattr(rig.log, "append", append_and_submit)
    with suppress(Refusal):
        await rig.put("a", 1)


@breaks(ENGINE_APPEND_ORDER)
async def test_append_below_the_previous_end_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = await Rig().loaded()
    rig.put("a", 1)
    monkeypatch.setattr(rig.log, "append", lambda *_, **__: 1)
    with suppress(Refusal):
        await rig.put("b", 2)


@breaks(ENGINE_COMMITTED)
async def test_high_watermark_above_the_log_end_offset_is_a_violation() -> None:
    rig = await Rig(lag=True).loaded()
    rig.put("a", 1)
    rig.log.high_watermark = 2
    rig.get("b")


@breaks(ENGINE_REPLY_COMMITTED)
async def test_reply_above_the_high_watermark_is_a_violation() -> None:
    rig = await Rig(lag=True).loaded()
    rig.engine._finish(Parked(5, None, None, None))


@breaks(TIMER_ENTRIES)
async def test_timer_without_an_entry_in_a_queue_is_a_violation() -> None:
    queue = TimerQueue(FakeClock(), lambda _key, _command: None)
    queue.set(Timer("a", 5_000_000_000_000, "command"))
    heapq.heappop(queue._wall)
    queue._expire()
