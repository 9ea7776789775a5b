"""Expiration of transactional ids."""

from __future__ import annotations

import pytest

from odradek.coordinator.txn import commands as c
from odradek.coordinator.txn.expiry import batches
from odradek.coordinator.txn.ports import TxnConfig
from odradek.coordinator.txn.records import tombstone
from odradek.coordinator.txn.state import Transaction
from odradek.protocol.batch import build_batch
from odradek.protocol.txn_state import TxnState
from odradek.runtime.shard import Timer
from tests.support.txn_rig import FRESH_PID, ID, NOW_MS, PID, CoreRig, transaction

S = TxnState
WEEK_MS = 604_800_000
OLD = NOW_MS - WEEK_MS


def sweep(rig: CoreRig) -> tuple[c.Command, ...]:
    rig.do(c.SweepExpired())
    return tuple(effect.command for effect in rig.effects)


@pytest.mark.parametrize("state", [state for state in S if state not in {S.DEAD, S.PREPARE_EPOCH_FENCE}])
def test_only_ids_without_a_transaction_expire(state: TxnState) -> None:
    rig = CoreRig(transaction(state, update_ms=OLD))
    expected = state in {S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT}
    assert sweep(rig) == ((c.ExpireIds((ID,)),) if expected else ())


@pytest.mark.parametrize(("update_ms", "expires"), [(OLD, True), (OLD + 1, False)])
def test_expiry_counts_from_the_last_update(update_ms: int, expires: bool) -> None:
    assert bool(sweep(CoreRig(transaction(update_ms=update_ms)))) is expires


def test_expired_id_is_dead_until_its_tombstone_is_committed() -> None:
    rig = CoreRig(transaction(update_ms=OLD))
    rig.lag = True
    assert rig.do(c.ExpireIds((ID,))) == 1
    assert rig.log[-1] == tombstone(ID)
    assert rig.txn.state is S.DEAD
    # A new leader may lack an uncommitted tombstone, so the id must not get a new producer id yet.
    assert rig.do(c.InitProducerId(ID, 1_000)) == "RETRY"
    assert rig.do(c.Describe(ID)) == "TRANSACTIONAL_ID_NOT_FOUND"
    assert rig.do(c.ListAll()) == ()
    rig.commit()
    assert ID not in rig.core.transactions
    assert rig.do(c.InitProducerId(ID, 1_000)) == (FRESH_PID, 0)


def test_id_used_since_the_sweep_does_not_expire() -> None:
    rig = CoreRig(transaction(update_ms=OLD))
    rig.do(c.InitProducerId(ID, 1_000))
    assert rig.do(c.ExpireIds((ID, "unknown"))) == 0
    assert rig.txn.state is S.EMPTY


def test_id_with_an_uncommitted_record_does_not_expire() -> None:
    rig = CoreRig()
    rig.now_ms = OLD
    rig.lag = True
    rig.do(c.InitProducerId(ID, 1_000))
    rig.now_ms = NOW_MS
    assert sweep(rig) == ()
    assert rig.do(c.ExpireIds((ID,))) == 0


def test_tombstones_are_grouped_by_the_maximum_batch_size() -> None:
    bytes_max = 500
    ids = [f"transactional-id-{number}" for number in range(100)]
    groups = list(batches(ids, bytes_max))
    assert [name for group in groups for name in group] == ids
    assert len(groups) > 1
    for group in groups:
        records = [tombstone(name) for name in group]
        built = build_batch([(record.key, record.value, NOW_MS, ()) for record in records])
        assert len(built) <= bytes_max
    assert list(batches(["x" * 1_000], bytes_max)) == [
        ("x" * 1_000,)
    ]  # a record over the limit is still appended; the log refuses it
    assert list(batches([], bytes_max)) == []


def test_expiry_of_many_ids_respects_the_batch_size() -> None:
    rig = CoreRig(config=TxnConfig(tombstone_batch_bytes_max=200))
    for number in range(20):
        rig.store(Transaction(f"id-{number}", producer_id=PID, producer_epoch=0, update_ms=OLD))
    commands = sweep(rig)
    assert len(commands) > 1
    assert sum(rig.do(command) for command in commands) == 20
    assert rig.core.transactions == {}


def test_sweeps_repeat_at_their_intervals() -> None:
    rig = CoreRig(config=TxnConfig(abort_timed_out_interval_ms=7, remove_expired_interval_ms=9))
    loaded = rig.core.on_loaded(3, NOW_MS)
    assert {timer.delay_ms for timer in loaded.timers} == {7, 9}
    for command, interval_ms in ((c.SweepTimedOut(), 7), (c.SweepExpired(), 9)):
        decision = rig.core.decide(command, NOW_MS)
        timer = decision.timers[0]  # type: ignore[union-attr]
        assert isinstance(timer, Timer)
        assert (timer.delay_ms, timer.deadline_ms, timer.command) == (interval_ms, None, command)
