"""Transaction markers in the log of a shard: they are applied between two commands, in the order of the log."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from odradek.protocol.errors import ErrorCode, Refusal
from odradek.runtime.shard import EngineState, Marker
from tests.support.cells import Add, Rig, refused
from tests.support.fake_shard_log import FakeShardLog

if TYPE_CHECKING:
    from collections.abc import Callable

MARKER = Marker(7, 0, 3, commit=True)


def mark(rig: Rig, write: Callable[[], int] | None = None) -> None:
    rig.engine.mark(MARKER, write or (lambda: rig.log.append_marker(MARKER)))


def marks(rig: Rig) -> int:
    return rig.cells.values.get("markers", 0)


def refusal_of(call: Callable[[], None]) -> ErrorCode:
    with pytest.raises(Refusal) as refusal:
        call()
    return refusal.value.error


def never() -> int:
    raise AssertionError("a marker was written")


async def test_marker_is_applied_before_the_next_command() -> None:
    rig = await Rig().loaded()
    rig.put("a", 1)
    mark(rig)
    assert rig.get("markers").result() == 1


async def test_reply_after_a_marker_waits_for_the_commit_of_the_marker() -> None:
    rig = await Rig(lag=True).loaded()
    put = rig.put("a", 1)
    mark(rig)
    read = rig.get("markers")
    rig.log.commit(upto=1)
    assert put.done()
    assert not read.done()
    rig.log.commit()
    assert read.result() == 1


async def test_commit_during_the_write_releases_no_reply_before_the_marker_is_applied() -> None:
    rig = await Rig(lag=True).loaded()
    seen: list[int] = []
    put = rig.put("a", 1)
    put.add_done_callback(lambda _future: seen.append(marks(rig)))

    def write() -> int:
        offset = rig.log.append_marker(MARKER)
        rig.log.commit()
        assert not put.done()
        return offset

    mark(rig, write)
    assert put.done()
    await asyncio.sleep(0)
    assert seen == [1]


async def test_marker_is_refused_before_the_shard_is_active() -> None:
    previous = await Rig(lag=True).loaded()
    previous.put("a", 1)
    rig = Rig(previous.log.successor(lag=True))
    assert refusal_of(lambda: mark(rig, never)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    refusals: list[ErrorCode] = []
    rig.log.before_replay = lambda: refusals.append(refusal_of(lambda: mark(rig, never)))
    await rig.loaded()
    assert refusals == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    assert rig.engine.state is EngineState.CATCHING_UP
    assert refusal_of(lambda: mark(rig, never)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    rig.log.commit()
    mark(rig)
    assert marks(rig) == 1


async def test_marker_is_refused_by_a_closed_shard() -> None:
    rig = await Rig().loaded()
    rig.engine.unload()
    assert refusal_of(lambda: mark(rig, never)) is ErrorCode.NOT_COORDINATOR


async def test_marker_refused_by_the_log_is_not_applied() -> None:
    rig = await Rig().loaded()
    rig.log.refuse = ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert refusal_of(lambda: mark(rig)) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert marks(rig) == 0
    rig.log.refuse = None
    assert rig.put("a", 1).result() == 1


@pytest.mark.parametrize("where", ["write", "apply"])
async def test_failed_apply_of_a_marker_drops_the_shard(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = await Rig().loaded()

    def broken(*_arguments: Any) -> int:
        raise OSError("injected")

    if where == "apply":
        monkeypatch.setattr(rig.cells, "apply_marker", broken)
    assert refusal_of(lambda: mark(rig, broken if where == "write" else None)) is ErrorCode.NOT_COORDINATOR
    assert (rig.dropped, len(rig.failures), rig.engine.state) == (1, 1, EngineState.CLOSED)


async def test_unload_during_the_write_of_a_marker() -> None:
    rig = await Rig(lag=True).loaded()
    put = rig.put("a", 1)

    def write() -> int:
        rig.engine.unload()
        return rig.log.append_marker(MARKER)

    mark(rig, write)
    assert refused(put) is ErrorCode.NOT_COORDINATOR
    assert rig.engine.state is EngineState.CLOSED


async def test_marker_is_replayed_in_the_order_of_the_log() -> None:
    previous = await Rig().loaded()
    previous.put("a", 1)
    mark(previous)
    previous.put("b", 2)
    rig = await Rig(previous.log.successor()).loaded()
    assert rig.cells.values == {"a": 1, "markers": 1, "b": 2}


async def test_guard_is_passed_to_the_append_of_its_command() -> None:
    rig = await Rig(FakeShardLog(lag=True)).loaded()
    rig.put("a", 20)
    rig.engine.submit(Add("b", 1), timeout_ms=1_000, guard=17)  # the command waits until the state is 20
    rig.engine.submit(Add("a", 1), timeout_ms=1_000, guard=18)
    rig.put("b", 20)
    rig.log.commit()
    assert rig.log.guards == [0, 18, 0, 17]
