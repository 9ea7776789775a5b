from __future__ import annotations

import asyncio

import pytest

from odradek.protocol.errors import ErrorCode, Refusal
from odradek.runtime.engine import TIMER_RETRY_MS
from odradek.runtime.shard import EngineState
from tests.support.cells import TIMEOUT_MS, Add, Age, Mark, Put, Rig, refused


async def test_reply_is_given_on_return_if_nothing_is_uncommitted() -> None:
    rig = await Rig().loaded()
    future = rig.put("a", 1)
    assert future.done()
    assert future.result() == 1
    assert rig.effects == [Mark("a", 1)]
    assert rig.get("a").result() == 1


async def test_command_that_deletes_by_age_is_decided_at_the_expiry_time_and_appended_at_wall_time() -> None:
    rig = await Rig().loaded()
    rig.clock.expiry_offset_ms = -5_000
    assert rig.engine.submit(Age(), timeout_ms=TIMEOUT_MS).result() == rig.clock.wall_ms() - 5_000
    assert rig.log.times_ms == [rig.clock.wall_ms()]


async def test_replies_effects_refusals_and_reads_wait_for_the_high_watermark_in_order() -> None:
    rig = await Rig(lag=True).loaded()
    put, refusal, read = rig.put("a", 1), rig.put("b", 0), rig.get("a")
    assert not put.done()
    assert not refusal.done()
    assert not read.done()
    assert rig.effects == []
    rig.log.commit()
    assert (put.result(), refused(refusal), read.result()) == (1, ErrorCode.INVALID_REQUEST, 1)
    assert rig.effects == [Mark("a", 1)]


async def test_advanced_high_watermark_releases_only_the_replies_below_it() -> None:
    rig = await Rig(lag=True).loaded()
    first, second = rig.put("a", 1), rig.put("b", 2)
    rig.log.commit(upto=1)
    assert first.done()
    assert not second.done()
    assert rig.effects == [Mark("a", 1)]


async def test_request_time_out_returns_an_error_and_the_record_commits_later() -> None:
    rig = await Rig(lag=True).loaded()
    future = rig.put("a", 1, timeout_ms=1)
    with pytest.raises(Refusal) as refusal:
        await future
    assert refusal.value.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert rig.cells.values == {"a": 1}
    assert rig.effects == []
    rig.log.commit()
    assert rig.effects == [Mark("a", 1)]
    assert rig.get("a").result() == 1


async def test_append_refused_before_writing_changes_nothing() -> None:
    rig = await Rig().loaded()
    rig.log.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    assert refused(rig.put("a", 7)) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert rig.cells.values == {}
    assert rig.effects == []
    assert rig.engine.timers == 0


async def test_command_waits_for_its_key_until_the_key_is_committed() -> None:
    rig = await Rig(lag=True).loaded()
    first, second, third = rig.put("a", 1), rig.put("a", 2), rig.put("a", 3)
    assert rig.engine.waiting == 2
    rig.log.commit()
    assert first.done()
    assert not second.done()  # appended when it was decided again, and uncommitted now
    assert rig.engine.waiting == 1
    rig.log.commit()
    rig.log.commit()
    assert (second.result(), third.result()) == (2, 3)
    assert rig.engine.waiting == 0


async def test_queue_of_a_key_is_bounded_in_length_and_time() -> None:
    rig = await Rig(lag=True, wait_ms_max=5).loaded()
    first = rig.put("a", 1)
    queued, queued_too, one_too_many = rig.put("a", 2), rig.put("a", 3), rig.put("a", 4)
    assert refused(one_too_many) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert not queued.done()
    with pytest.raises(Refusal):
        await queued
    with pytest.raises(Refusal):
        await queued_too
    assert rig.engine.waiting == 0
    rig.log.commit()
    assert first.result() == 1
    assert rig.cells.values == {"a": 1}


async def test_time_limit_of_a_queue_does_not_apply_to_the_commit() -> None:
    rig = await Rig(lag=True, wait_ms_max=20).loaded()
    first, second = rig.put("a", 1), rig.put("a", 2)
    rig.log.commit()
    assert first.done()
    await asyncio.sleep(0.04)
    assert not second.done()  # decided and appended: the time limit of the queue has ended
    rig.log.commit()
    assert second.result() == 2


async def test_cancelled_command_in_a_queue_is_not_decided() -> None:
    rig = await Rig(lag=True).loaded()
    rig.put("a", 1)
    rig.put("a", 2).cancel()
    rig.log.commit()
    assert rig.cells.values == {"a": 1}


async def test_command_is_refused_beyond_the_uncommitted_limit() -> None:
    rig = await Rig(lag=True).loaded()
    for number in range(8):
        rig.put(f"key-{number}", 1)
    assert refused(rig.put("late", 1)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert "late" not in rig.cells.values


async def test_command_can_write_first_and_is_decided_again_after_the_commit() -> None:
    rig = await Rig(lag=True).loaded()
    future = rig.put("a", 50)
    assert rig.effects == []
    rig.log.commit()
    assert not future.done()
    assert rig.effects == [Mark("a", 49)]
    rig.log.commit()
    assert future.result() == 50
    assert rig.effects == [Mark("a", 49), Mark("a", 50)]


async def test_bug_in_decide_fails_one_command_only() -> None:
    rig = await Rig().loaded()
    assert refused(rig.put("a", 13)) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert isinstance(rig.failures[0], ZeroDivisionError)
    assert rig.put("a", 1).result() == 1


@pytest.mark.parametrize("how", ["io", "apply"])
async def test_io_error_or_bug_in_apply_drops_the_shard(how: str) -> None:
    rig = await Rig(lag=True).loaded()
    parked, waiting = rig.put("a", 1), rig.put("a", 2)
    rig.log.broken = how == "io"
    assert refused(rig.put("b", 99)) is ErrorCode.NOT_COORDINATOR
    assert refused(parked) is ErrorCode.NOT_COORDINATOR
    assert refused(waiting) is ErrorCode.NOT_COORDINATOR
    assert rig.engine.state is EngineState.CLOSED
    assert rig.dropped == 1
    assert len(rig.failures) == 1
    assert rig.log.subscribers == []
    assert refused(rig.get("a")) is ErrorCode.NOT_COORDINATOR


async def test_unload_refuses_all_commands_and_issues_no_effect() -> None:
    rig = await Rig(lag=True).loaded()
    parked, waiting = rig.put("a", 7), rig.put("a", 2)
    rig.engine.unload()
    rig.engine.unload()
    assert refused(parked) is ErrorCode.NOT_COORDINATOR
    assert refused(waiting) is ErrorCode.NOT_COORDINATOR
    rig.log.commit()
    assert rig.effects == []
    assert rig.engine.timers == 0
    assert rig.dropped == 0


async def test_waiting_command_is_decided_again_when_its_key_is_appended() -> None:
    rig = await Rig(lag=True).loaded()
    rig.put("a", 1)
    adding = rig.engine.submit(Add("a", 5), timeout_ms=TIMEOUT_MS)
    assert rig.engine.waiting == 1
    rig.log.lag = False
    rig.log.commit(upto=1)
    assert (adding.done(), rig.cells.values) == (False, {"a": 1})
    rig.log.lag = True
    rig.put("a", 20)  # the record that it waits for is appended but not committed
    assert (adding.done(), rig.cells.values) == (False, {"a": 25})
    rig.log.commit()
    assert adding.result() == 25


async def test_command_submitted_by_an_effect_is_decided_in_order() -> None:
    rig = await Rig().loaded()
    seen: list[int] = []

    def on_effect(mark: Mark) -> None:
        seen.append(mark.value)
        if mark.value < 4:
            rig.engine.post(Put("a", mark.value + 1))

    rig.engine._on_effect = on_effect
    assert rig.put("a", 1).result() == 1
    assert seen == [1, 2, 3, 4]


async def test_timer_submits_its_command_at_its_wall_clock_deadline() -> None:
    rig = await Rig().loaded()
    rig.put("a", 7)
    rig.engine._timers._expire()
    assert rig.cells.values == {"a": 7}
    rig.clock.now_ms += 1_000
    rig.engine._timers._expire()
    assert rig.cells.values == {"a": 8}


async def test_timer_with_refused_records_fires_again() -> None:
    """Otherwise a failed member would stay in its group permanently: no other event sets its timer again."""
    rig = await Rig().loaded()
    rig.put("a", 7)
    rig.log.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    rig.clock.now_ms += 1_000
    rig.engine._timers._expire()
    assert (rig.cells.values, rig.engine.timers) == ({"a": 7}, 1)
    rig.log.refuse = None
    rig.clock.now_ms += TIMER_RETRY_MS
    rig.engine._timers._expire()
    assert (rig.cells.values, rig.engine.timers) == ({"a": 8}, 0)
