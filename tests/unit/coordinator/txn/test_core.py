"""Transaction shard: replay, load, and the effects that follow a load or a commit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from odradek.coordinator.txn import commands as c
from odradek.coordinator.txn.core import TransactionShard
from odradek.coordinator.txn.ports import TxnConfig
from odradek.coordinator.txn.records import encode_key
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.txn_state import TxnState
from odradek.runtime.shard import Marker, ShardRecord
from tests.support.txn_rig import ID, NOW_MS, PID, T0, T1, CoreRig, EngineRig, transaction

S = TxnState


def busy_rig(level: int) -> CoreRig:
    """Return a rig whose log has classic and TV2 transactions, a time-out, an epoch overflow and an expiry."""
    rig = CoreRig(level=level)
    for number in range(3):
        rig.do(c.InitProducerId(f"id-{number}", 60_000))
    pid = rig.core.transactions["id-0"].producer_id
    rig.do(c.AddPartitions("id-0", pid, 0, (T0, T1)))
    rig.do(c.EndTransaction("id-0", pid, 0, commit=True))
    rig.do(c.CompleteTransaction("id-0", pid, 0))
    pid = rig.core.transactions["id-1"].producer_id
    rig.do(c.AddPartitions("id-1", pid, 0, (T1,), 2))
    rig.do(c.EndTransaction("id-1", pid, 0, commit=False, client_version=2))
    rig.now_ms += 700_000_000
    rig.do(c.ExpireIds(("id-2",)))
    rig.do(c.InitProducerId("id-2", 60_000))
    rig.do(c.AddPartitions("id-2", rig.core.transactions["id-2"].producer_id, 0, (T0,)))
    rig.store(transaction(S.ONGOING, epoch=32_766))
    rig.do(c.EndTransaction(ID, PID, 32_766, commit=True, client_version=2))
    return rig


@pytest.mark.parametrize("level", [0, 1, 2])
def test_replay_of_any_prefix_of_the_log_gives_the_same_state(level: int) -> None:
    rig = busy_rig(level)
    live = TransactionShard(TxnConfig(), rig.level, rig.ids.take)
    replayed = TransactionShard(TxnConfig(), rig.level, rig.ids.take)
    for offset, record in enumerate(rig.log):
        live.apply(offset, record, 7)
        replayed.apply(offset, replace(record, memo=None), 7)
        for core in (live, replayed):
            core.on_committed(offset + 1)
        expected = {name: txn.as_replayed(feature_level=level) for name, txn in live.transactions.items()}
        assert replayed.transactions == expected
        assert replayed._ongoing == live._ongoing
        assert replayed._offsets == live._offsets


def test_load_sends_markers_of_prepared_transactions_with_the_new_epoch() -> None:
    rig = busy_rig(2)
    loaded = rig.replayed().on_loaded(9, NOW_MS)
    sent = [(send.transactional_id, send.marker.commit, send.marker.coordinator_epoch) for send in loaded.effects]
    assert sent == [("id-1", False, 9), (ID, True, 9)]
    assert loaded.effects[1].marker.producer_epoch == 32_767


def test_next_producer_id_survives_a_fail_over() -> None:
    """The Prepare record contains the next producer id (KAFKA-20310)."""
    core = busy_rig(2).replayed()
    decision = core.decide(c.CompleteTransaction(ID, PID, 32_767), NOW_MS)
    after = decision.records[0].memo  # type: ignore[union-attr]
    assert (after.producer_epoch, after.producer_id) == (0, core.transactions[ID].next_producer_id)


def test_records_of_unknown_types_are_ignored_and_reported_once() -> None:
    core = CoreRig().core
    core.apply(0, ShardRecord(b"\x00\x05", b"x"), 0)
    core.apply(1, ShardRecord(b"\x00\x05", None), 0)
    core.apply_marker(2, Marker(1, 2, 3, commit=True), 0)
    assert (core.unreadable.ignored, core.unreadable.blocked) == (2, 0)
    (report,) = core.unreadable.take_reports()
    assert (report.event, report.reason, report.severe) == ("records ignored", "2 records of unknown types: 5", False)
    assert core.unreadable.take_reports() == []
    assert core.transactions == {}


def test_value_of_an_unknown_version_blocks_its_id() -> None:
    """Kafka continues from the state before the record."""
    rig = CoreRig()
    core = rig.core
    core.apply(0, ShardRecord(encode_key(ID), b"\x00\x09"), 0)
    assert core.unreadable.blocked == 1
    (report,) = core.unreadable.take_reports()
    assert (report.event, report.severe) == ("unreadable record", True)
    with pytest.raises(Refusal) as refused:
        core.decide(c.Describe(ID), NOW_MS)
    assert refused.value.error is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_tombstone_of_an_unknown_id_is_ignored_and_a_record_without_key_is_reported() -> None:
    core = CoreRig().core
    core.apply(0, ShardRecord(encode_key("x"), None), 0)
    assert core.transactions == {}
    core.apply(1, ShardRecord(None, b""), 0)
    assert core.transactions == {}
    (report,) = core.unreadable.take_reports()
    assert report.reason.startswith("record at offset 1: ")


@pytest.mark.parametrize(
    ("append_error", "coordinator_error"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.INVALID_RECORD, ErrorCode.INVALID_RECORD),
    ],
)
async def test_append_errors_are_mapped_to_coordinator_errors(
    append_error: ErrorCode, coordinator_error: ErrorCode
) -> None:
    rig = await EngineRig().loaded()
    rig.log.refuse = append_error
    failure = rig.submit(c.InitProducerId(ID, 60_000)).exception()
    assert isinstance(failure, Refusal)
    assert failure.error is coordinator_error
    assert rig.core.transactions == {}


async def test_end_txn_that_commits_after_its_time_out_is_final() -> None:
    """1. The Prepare record of an EndTxn is appended, and the high watermark does not advance.
    2. The request times out: the client receives COORDINATOR_NOT_AVAILABLE and retries.
    3. The retry waits, because the record of the transactional id is uncommitted.
    4. The record is committed: the coordinator sends the markers.
    5. The markers are written and the Complete record is committed: the retry succeeds.
    """
    rig = await EngineRig(level=2, wait_ms=10_000).loaded()
    pid, epoch = rig.begin(T0)
    rig.log.lag = True
    end = c.EndTransaction(ID, pid, epoch, commit=True, client_version=2)
    with pytest.raises(Refusal) as refusal:
        await rig.submit(end, timeout_ms=1)
    assert refusal.value.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert rig.effects == []
    retry = rig.submit(end)
    rig.log.commit()
    assert [effect.marker.commit for effect in rig.effects] == [True]
    rig.complete()
    assert not retry.done()
    rig.log.commit()
    assert retry.result() == (pid, epoch + 1)


async def test_next_transaction_waits_for_the_markers_for_a_bounded_time() -> None:
    rig = await EngineRig(level=2, wait_ms=5).loaded()
    pid, epoch = rig.begin(T0)
    rig.submit(c.EndTransaction(ID, pid, epoch, commit=True, client_version=2)).result()
    with pytest.raises(Refusal) as refusal:
        await rig.submit(c.AddPartitions(ID, pid, epoch + 1, (T1,), 2))
    assert refusal.value.error is ErrorCode.CONCURRENT_TRANSACTIONS
    waiting = rig.submit(c.AddPartitions(ID, pid, epoch + 1, (T1,), 2))
    rig.complete()
    assert waiting.result() == {T1: ErrorCode.NONE}


async def test_init_producer_id_waits_for_the_abort_of_the_ongoing_transaction() -> None:
    rig = await EngineRig(level=2).loaded()
    pid, epoch = rig.begin(T0)
    successor = rig.submit(c.InitProducerId(ID, 60_000))
    assert not successor.done()
    assert [effect.marker.commit for effect in rig.effects] == [False]
    rig.complete()
    assert successor.result() == (pid, epoch + 2)


async def test_load_sends_markers_only_after_the_prepare_record_is_committed() -> None:
    rig = await EngineRig(level=2).loaded()
    pid, epoch = rig.begin(T0)
    rig.submit(c.EndTransaction(ID, pid, epoch, commit=True, client_version=2)).result()
    successor = await EngineRig(rig.log.successor(lag=True)).loaded()
    assert successor.effects == []
    successor.log.commit()
    assert [effect.marker.coordinator_epoch for effect in successor.effects] == [1]


async def test_timers_abort_timed_out_transactions_and_expire_ids() -> None:
    rig = await EngineRig(level=2).loaded()
    rig.begin(T0)
    rig.clock.now_ms += 60_001
    rig.engine._timers._expire()
    assert rig.core.transactions[ID].state is S.PREPARE_ABORT
    rig.complete()
    rig.clock.now_ms += 604_800_000
    rig.engine._timers._expire()
    assert rig.core.transactions == {}
    assert rig.log.batches[-1][0].value is None
