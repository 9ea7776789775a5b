"""Work for many transactions at the same time is divided among turns of the event loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from odradek.coordinator.txn import commands as c
from odradek.coordinator.txn import core, marker_driver, markers
from odradek.protocol.errors import ErrorCode
from odradek.protocol.txn_state import TxnState
from tests.support.coordinator_rig import SHARD, CoordinatorRig
from tests.support.txn_rig import NOW_MS, T0, T1, transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from odradek.coordinator.txn.core import TransactionShard
    from odradek.coordinator.txn.ports import Marker, MarkerResults

S = TxnState
SLICES = 4
"""Turns of the event loop among which each test divides the work, at least."""


class Turns:
    """Counter of events, with the largest number between two turns of the event loop."""

    def __init__(self) -> None:
        self.largest = 0
        self._since_turn = 0

    def add(self, count: int) -> None:
        self._since_turn += count
        self.largest = max(self.largest, self._since_turn)

    async def until(self, done: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not done():
                await asyncio.sleep(0)
                self._since_turn = 0


async def rig_with(count: int, state: TxnState) -> tuple[CoordinatorRig, TransactionShard]:
    """Return a loaded coordinator with `count` transactional ids, all of them timed out or expired."""
    rig = await CoordinatorRig().ready()
    shard: Any = rig.coordinator.shards[SHARD].shard
    for number in range(count):
        txn = transaction(
            state, transactional_id=f"id-{number}", producer_id=number, start_ms=NOW_MS - 100_000, update_ms=1
        )
        shard.transactions[txn.transactional_id] = txn
        if state is S.ONGOING:
            shard._ongoing[txn.transactional_id] = None
    return rig, shard


def count_commands(rig: CoordinatorRig, shard: TransactionShard, monkeypatch: pytest.MonkeyPatch, kind: type) -> Turns:
    turns, decide = Turns(), shard.decide

    def counted(command: c.Command, now_ms: int) -> Any:
        if isinstance(command, kind):
            turns.add(len(command.transactional_ids) if isinstance(command, c.ExpireIds) else 1)
        return decide(command, now_ms)

    monkeypatch.setattr(shard, "decide", counted)
    return turns


async def test_time_out_of_many_transactions_aborts_a_bounded_number_per_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    count = SLICES * core.ABORTED_PER_TURN_MAX + 1
    rig, shard = await rig_with(count, S.ONGOING)
    aborted = count_commands(rig, shard, monkeypatch, c.AbortTimedOut)
    asyncio.get_running_loop().call_soon(rig.coordinator.shards[SHARD].post, c.SweepTimedOut())
    await aborted.until(lambda: all(txn.state is S.COMPLETE_ABORT for txn in shard.transactions.values()))
    assert aborted.largest == core.ABORTED_PER_TURN_MAX
    assert len(shard.transactions) == count


async def test_sweep_checks_a_bounded_number_of_transactions_per_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "SWEPT_PER_TURN_MAX", 10)
    rig, shard = await rig_with(10 * SLICES + 1, S.ONGOING)
    aborted = count_commands(rig, shard, monkeypatch, c.AbortTimedOut)
    asyncio.get_running_loop().call_soon(rig.coordinator.shards[SHARD].post, c.SweepTimedOut())
    await aborted.until(lambda: all(txn.state is S.COMPLETE_ABORT for txn in shard.transactions.values()))
    assert aborted.largest == 10


async def test_completions_of_many_transactions_are_written_in_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    count = SLICES * markers.COMPLETIONS_PER_TURN_MAX + 1
    rig, shard = await rig_with(count, S.PREPARE_ABORT)
    completed = count_commands(rig, shard, monkeypatch, c.CompleteTransaction)
    rig.sender.hold = True
    send_all(rig, shard)
    await completed.until(lambda: len(rig.sender.held) == 1)
    rig.sender.release()
    await completed.until(lambda: all(txn.state is S.COMPLETE_ABORT for txn in shard.transactions.values()))
    # Each step of the marker driver is bounded: the one after the response, and the one that it has scheduled.
    assert completed.largest <= 2 * markers.COMPLETIONS_PER_TURN_MAX


@pytest.mark.parametrize("error", [None, ErrorCode.NOT_ENOUGH_REPLICAS])
async def test_markers_of_many_transactions_are_sent_in_several_turns(
    error: ErrorCode | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sender responds immediately, as for markers of partitions that this broker leads."""
    monkeypatch.setattr(marker_driver, "MARKER_RETRY_BACKOFF_S", 0.001)
    rig, shard = await rig_with(SLICES * markers.MARKERS_PER_REQUEST_MAX, S.PREPARE_ABORT)
    turns, write = Turns(), rig.sender.write_markers
    if error is not None:
        rig.sender.errors = [error] * SLICES

    def counted(broker_id: int, sent: Sequence[Marker]) -> asyncio.Future[MarkerResults]:
        turns.add(sum(len(marker.partitions) for marker in sent))
        return write(broker_id, sent)

    monkeypatch.setattr(rig.sender, "write_markers", counted)
    send_all(rig, shard)
    await turns.until(lambda: all(txn.state is S.COMPLETE_ABORT for txn in shard.transactions.values()))
    # A retry can begin in the turn in which the marker driver continues with other work.
    assert turns.largest <= 2 * markers.MARKERS_PER_REQUEST_MAX
    assert rig.sender.errors == []


def send_all(rig: CoordinatorRig, shard: TransactionShard) -> None:
    """Send two markers for each transaction."""
    for txn in shard.transactions.values():
        txn.partitions[T0] = txn.partitions[T1] = None
    for effect in shard.on_loaded(0, NOW_MS).effects:
        rig.coordinator._on_effect(rig.coordinator._shards.find(SHARD), effect)


async def test_expiration_of_many_ids_removes_a_bounded_number_per_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, shard = await rig_with(SLICES * core.EXPIRED_PER_TURN_MAX + 1, S.EMPTY)
    expired = count_commands(rig, shard, monkeypatch, c.ExpireIds)
    asyncio.get_running_loop().call_soon(rig.coordinator.shards[SHARD].post, c.SweepExpired())
    await expired.until(lambda: not shard.transactions)
    assert expired.largest == core.EXPIRED_PER_TURN_MAX
