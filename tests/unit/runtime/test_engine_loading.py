"""Load of a shard: from the election until it is active."""

from __future__ import annotations

import pytest

from odradek.protocol.errors import ErrorCode, Refusal
from odradek.runtime.engine import LoadCancelled
from odradek.runtime.shard import EngineState, Marker, ShardRecord
from tests.support.cells import TIMEOUT_MS, Get, Mark, Rig, refused
from tests.support.fake_shard_log import FakeShardLog


async def test_load_replays_the_log_and_effects_wait_for_its_commit() -> None:
    previous = await Rig(lag=True).loaded()
    previous.put("a", 1)
    previous.put("b", 2)
    rig = await Rig(previous.log.successor()).loaded()
    assert rig.cells.values == {"a": 1, "b": 2}
    rig.log.commit(upto=1)
    assert rig.effects == []
    rig.log.commit()
    assert rig.effects == [Mark("a", 1), Mark("b", 2)]


async def test_commands_wait_for_the_load_for_a_bounded_time_only() -> None:
    previous = await Rig().loaded()
    previous.put("a", 1)
    rig = Rig(previous.log.successor(), wait_ms_max=5)
    early, impatient = rig.get("a"), rig.engine.submit(Get("a"), timeout_ms=TIMEOUT_MS, wait_ms=0)
    with pytest.raises(Refusal) as refusal:
        await impatient
    assert refusal.value.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert not early.done()
    await rig.loaded()
    assert early.result() == 1
    late = Rig(previous.log.successor(), wait_ms_max=1).get("a")
    with pytest.raises(Refusal) as refusal:
        await late
    assert refusal.value.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


async def test_unload_cancels_the_load_and_refuses_waiting_commands() -> None:
    previous = await Rig().loaded()
    previous.put("a", 1)
    rig = Rig(previous.log.successor())
    waiting = rig.get("a")
    rig.log.before_replay = rig.engine.unload
    with pytest.raises(LoadCancelled):
        await rig.loaded()
    assert refused(waiting) is ErrorCode.NOT_COORDINATOR
    assert refused(rig.get("a")) is ErrorCode.NOT_COORDINATOR


async def test_load_that_starts_after_the_unload_reads_nothing() -> None:
    rig = Rig()
    rig.log.before_replay = pytest.fail
    loading = rig.engine.load(0)
    rig.engine.unload()
    with pytest.raises(LoadCancelled):
        await loading
    assert (rig.engine.state, rig.log.subscribers) == (EngineState.CLOSED, [])


async def test_commands_wait_until_all_loaded_records_are_committed() -> None:
    previous = await Rig(lag=True).loaded()
    previous.put("a", 1)
    previous.put("b", 2)
    rig = await Rig(previous.log.successor()).loaded()
    early = [rig.put("c", 3), rig.get("c"), rig.put("a", 0)]
    rig.log.commit(upto=1)
    assert (rig.engine.waiting, len(rig.log.batches), rig.effects) == (3, 0, [])
    rig.log.commit()
    assert rig.effects == [Mark("a", 1), Mark("b", 2)]
    rig.log.commit()
    assert [early[0].result(), early[1].result(), refused(early[2])] == [3, 3, ErrorCode.INVALID_REQUEST]


async def test_unload_refuses_commands_that_wait_for_the_commit_of_the_load() -> None:
    previous = await Rig(lag=True).loaded()
    previous.put("a", 7)
    rig = await Rig(previous.log.successor()).loaded()
    waiting = rig.get("a")
    rig.engine.unload()
    rig.log.commit()
    assert refused(waiting) is ErrorCode.NOT_COORDINATOR
    assert (rig.effects, rig.log.subscribers) == ([], [])


async def test_unreadable_log_closes_the_engine() -> None:
    rig = Rig()
    rig.log.broken = True
    with pytest.raises(OSError, match="disk"):
        await rig.loaded()
    assert rig.engine.state is EngineState.CLOSED


async def test_markers_in_the_log_are_applied_to_the_core() -> None:
    log = FakeShardLog()
    log.entries = [(0, Marker(1, 2, 3, commit=True), 0), (1, ShardRecord(b"a", b"5"), 0)]
    log.commit()
    rig = await Rig(log).loaded()
    assert rig.cells.values == {"markers": 1, "a": 5}
