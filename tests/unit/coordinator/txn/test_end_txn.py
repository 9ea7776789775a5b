"""EndTxn (classic and TV2), aborts by the broker and time-outs: expected results as tables, independent of the code."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from odradek.coordinator.txn import commands as c
from odradek.coordinator.txn.epochs import EPOCH_MAX, last_client_epoch
from odradek.protocol.txn_state import NEVER_TIMES_OUT_MS, TxnState
from tests.support.txn_rig import FRESH_PID, ID, NOW_MS, PID, T0, U0, CoreRig, transaction

if TYPE_CHECKING:
    from odradek.coordinator.txn.state import Transaction

LAST_CLIENT_EPOCH = last_client_epoch()
S = TxnState
PC, PA = "PrepareCommit", "PrepareAbort"


def end(*, commit: bool, pid: int = PID, epoch: int = 5, version: int = 0) -> c.EndTransaction:
    return c.EndTransaction(ID, pid, epoch, commit, version)


def outcome(rig: CoreRig, command: c.EndTransaction) -> str:
    """Return the state written, the error, or NONE with the identity for a reply without a record."""
    before = len(rig.log)
    reply = rig.do(command)
    if isinstance(reply, str):
        return reply
    return rig.txn.state.kafka_name if len(rig.log) > before else f"NONE {reply.producer_id}/{reply.producer_epoch}"


def rig_with_stopped_completion(txn: Transaction) -> CoreRig:
    """Return a rig without a pending completion, so that the row of a prepared state decides the result."""
    rig = CoreRig(txn)
    rig.core.stop_completion(ID, txn.producer_id, txn.producer_epoch)
    return rig


CLASSIC = {  # state: (commit, abort)
    S.ONGOING: (PC, PA),
    S.PREPARE_COMMIT: ("RETRY", "INVALID_TXN_STATE"),
    S.PREPARE_ABORT: ("INVALID_TXN_STATE", "RETRY"),
    S.COMPLETE_COMMIT: ("NONE 1000/5", "INVALID_TXN_STATE"),
    S.COMPLETE_ABORT: ("INVALID_TXN_STATE", "NONE 1000/5"),
    S.EMPTY: ("INVALID_TXN_STATE", "INVALID_TXN_STATE"),
}


@pytest.mark.parametrize("state", CLASSIC)
def test_classic_end_txn_has_the_result_of_the_table(state: TxnState) -> None:
    for commit, expected in zip((True, False), CLASSIC[state], strict=True):
        assert outcome(rig_with_stopped_completion(transaction(state)), end(commit=commit)) == expected


TV2 = {  # state: commit, retry of a commit, abort, retry of an abort
    S.ONGOING: (PC, "PRODUCER_FENCED", PA, "PRODUCER_FENCED"),
    S.EMPTY: ("INVALID_TXN_STATE", "PRODUCER_FENCED", PA, "PRODUCER_FENCED"),
    S.COMPLETE_COMMIT: ("INVALID_TXN_STATE", "NONE 1000/5", PA, "INVALID_TXN_STATE"),
    S.COMPLETE_ABORT: ("INVALID_TXN_STATE", "INVALID_TXN_STATE", PA, "NONE 1000/5"),
    S.PREPARE_COMMIT: ("PRODUCER_FENCED", "RETRY", "PRODUCER_FENCED", "INVALID_TXN_STATE"),
    S.PREPARE_ABORT: ("PRODUCER_FENCED", "INVALID_TXN_STATE", "PRODUCER_FENCED", "RETRY"),
}


@pytest.mark.parametrize("state", TV2)
def test_tv2_end_txn_has_the_result_of_the_table(state: TxnState) -> None:
    requests = ((True, 5), (True, 4), (False, 5), (False, 4))
    for (commit, epoch), expected in zip(requests, TV2[state], strict=True):
        stored = transaction(state, client_version=2)
        assert outcome(rig_with_stopped_completion(stored), end(commit=commit, epoch=epoch, version=2)) == expected


@pytest.mark.parametrize("state", [S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_tv2_producer_does_not_get_the_identity_of_a_classic_producer(state: TxnState) -> None:
    """1. A TV2 producer has epoch 4. A classic producer takes over the id and receives epoch 5.
    2. The classic producer ends its transaction, which does not raise the epoch.
    3. An EndTxn of the TV2 producer with epoch 4 arrives. No earlier EndTxn of this producer raised the epoch to 5.
    4. Kafka takes the request for a retry and returns the identity of the classic producer; here the request is fenced.
    """
    for commit in (True, False):
        assert outcome(CoreRig(transaction(state)), end(commit=commit, epoch=4, version=2)) == "PRODUCER_FENCED"


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("state", [S.EMPTY, S.ONGOING, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_end_txn_of_another_producer_id_or_epoch_is_refused(state: TxnState, version: int) -> None:
    rig = CoreRig(transaction(state))
    assert rig.do(end(commit=True, pid=1, epoch=5, version=version)) == "INVALID_PRODUCER_ID_MAPPING"
    assert rig.do(end(commit=True, epoch=3, version=version)) == "PRODUCER_FENCED"
    assert rig.do(end(commit=True, epoch=6, version=version)) == "PRODUCER_FENCED"  # KAFKA-9600
    assert CoreRig().do(end(commit=True, version=version)) == "INVALID_PRODUCER_ID_MAPPING"


@pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.PREPARE_ABORT])
def test_pending_check_is_after_the_identity_check_in_classic_and_before_it_in_tv2(state: TxnState) -> None:
    rig = CoreRig(transaction(state))
    assert rig.do(end(commit=True, pid=1)) == "INVALID_PRODUCER_ID_MAPPING"
    assert rig.do(end(commit=True, epoch=4)) == "PRODUCER_FENCED"
    assert rig.do(end(commit=True)) == "RETRY"
    assert rig.do(end(commit=False)) == "RETRY"
    for pid, epoch in ((1, 5), (PID, 3), (PID, 5), (PID, 4)):
        assert rig.do(end(commit=False, pid=pid, epoch=epoch, version=2)) == "RETRY"


def test_uncommitted_record_is_pending() -> None:
    rig = CoreRig(transaction())
    rig.lag = True
    rig.do(c.AddPartitions(ID, PID, 5, (T0,)))
    assert rig.do(end(commit=True)) == "RETRY"
    assert rig.do(end(commit=True, version=2)) == "RETRY"
    rig.commit()
    assert rig.do(end(commit=True)) == (PID, 5)


def test_classic_end_keeps_the_epoch_and_stores_version_0() -> None:
    rig = CoreRig(transaction(S.ONGOING, last_producer_epoch=4, client_version=2))
    assert rig.do(end(commit=True)) == (PID, 5)
    txn = rig.txn
    assert (txn.producer_epoch, txn.last_producer_epoch, txn.client_version) == (5, 4, 0)
    assert (txn.start_ms, txn.update_ms, list(txn.partitions)) == (NOW_MS - 1_000, NOW_MS, [T0])
    marker = rig.effects[0].marker
    assert (marker.producer_epoch, marker.commit, marker.transaction_version) == (5, True, 0)


def test_tv2_end_raises_the_epoch() -> None:
    rig = CoreRig(transaction(S.ONGOING, last_producer_epoch=4))
    assert rig.do(end(commit=False, version=2)) == (PID, 6)
    txn = rig.txn
    assert (txn.producer_epoch, txn.last_producer_epoch, txn.client_version) == (6, 5, 2)
    marker = rig.effects[0].marker
    assert (marker.producer_id, marker.producer_epoch, marker.transaction_version) == (PID, 6, 2)
    rig.do(c.CompleteTransaction(ID, PID, 6))
    assert rig.do(end(commit=False, epoch=5, version=2)) == (PID, 6)  # the retry
    assert rig.do(end(commit=True, epoch=5, version=2)) == "INVALID_TXN_STATE"


@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_tv2_abort_of_an_empty_transaction_raises_the_epoch(state: TxnState) -> None:
    rig = CoreRig(transaction(state))
    assert rig.do(end(commit=False, version=2)) == (PID, 6)
    assert (rig.txn.start_ms, rig.txn.partitions) == (NOW_MS, {})
    assert rig.effects[0].marker.partitions == ()
    rig.do(c.CompleteTransaction(ID, PID, 6))
    assert (rig.txn.state, rig.txn.producer_epoch) == (S.COMPLETE_ABORT, 6)


@pytest.mark.parametrize("commit", [True, False])
def test_tv2_epoch_overflow_sets_a_new_producer_id(commit: bool) -> None:
    rig = CoreRig(transaction(S.ONGOING, epoch=LAST_CLIENT_EPOCH))
    last = end(commit=commit, epoch=LAST_CLIENT_EPOCH, version=2)
    assert rig.do(last) == (FRESH_PID, 0)
    assert (rig.txn.producer_id, rig.txn.producer_epoch, rig.txn.next_producer_id) == (PID, EPOCH_MAX, FRESH_PID)
    assert rig.effects[0].marker.producer_epoch == EPOCH_MAX
    assert rig.do(last) == "RETRY"
    # The producer uses its new identity before the Complete record applies it: its request waits (KAFKA-18660).
    assert rig.do(end(commit=False, pid=FRESH_PID, epoch=0, version=2)) == "RETRY"
    assert rig.do(c.AddPartitions(ID, FRESH_PID, 0, (T0,), 2)) == "RETRY"
    rig.do(c.CompleteTransaction(ID, PID, EPOCH_MAX))
    txn = rig.txn
    assert (txn.producer_id, txn.producer_epoch, txn.next_producer_id) == (FRESH_PID, 0, -1)
    assert (txn.prev_producer_id, txn.last_producer_epoch) == (PID, LAST_CLIENT_EPOCH)
    assert rig.do(last) == (FRESH_PID, 0)  # a late retry
    assert rig.do(end(commit=not commit, epoch=LAST_CLIENT_EPOCH, version=2)) == "INVALID_TXN_STATE"
    assert rig.do(c.AddPartitions(ID, FRESH_PID, 0, (T0,), 2)) == {T0: 0}
    assert rig.do(last) == "INVALID_PRODUCER_ID_MAPPING"


def test_overflow_retry_does_not_match_a_prepared_transaction() -> None:
    """A classic transaction in PrepareCommit at epoch 0 has the same numbers without an epoch overflow."""
    rig = rig_with_stopped_completion(transaction(S.PREPARE_COMMIT, epoch=0, prev_producer_id=7))
    assert rig.do(end(commit=True, pid=7, epoch=LAST_CLIENT_EPOCH, version=2)) == "PRODUCER_FENCED"


def test_epoch_overflow_without_producer_ids_changes_nothing() -> None:
    rig = CoreRig(transaction(S.ONGOING, epoch=LAST_CLIENT_EPOCH))
    rig.ids.empty = True
    assert rig.do(end(commit=True, epoch=LAST_CLIENT_EPOCH, version=2)) == "COORDINATOR_LOAD_IN_PROGRESS"
    assert rig.txn.state is S.ONGOING


def test_transaction_with_epoch_32767_can_only_be_aborted() -> None:
    """Only an abort by the broker sets this epoch (KAFKA-20090)."""
    rig = CoreRig(transaction(S.ONGOING, epoch=EPOCH_MAX))
    assert rig.do(end(commit=True, epoch=EPOCH_MAX, version=2)) == "UNKNOWN_SERVER_ERROR"
    assert rig.do(end(commit=False, epoch=EPOCH_MAX, version=2)) == (FRESH_PID, 0)
    assert rig.txn.producer_epoch == EPOCH_MAX


@pytest.mark.parametrize(("level", "version"), [(0, 0), (1, 0), (2, 2)])
def test_time_out_aborts_under_the_feature_level_and_fences_the_producer(level: int, version: int) -> None:
    rig = CoreRig(transaction(S.ONGOING, timeout_ms=999), level=level)
    rig.do(c.SweepTimedOut())
    assert rig.effects == (c.Post(c.AbortTimedOut(ID, PID, NOW_MS - 1_000)),)
    rig.do(rig.effects[0].command)
    txn = rig.txn
    assert (txn.state, txn.producer_epoch, txn.client_version) == (S.PREPARE_ABORT, 6, version)
    assert rig.do(c.AddPartitions(ID, PID, 5, (U0,))) == "RETRY"
    rig.do(c.CompleteTransaction(ID, PID, 6))
    assert rig.do(c.AddPartitions(ID, PID, 5, (U0,))) == "PRODUCER_FENCED"  # KAFKA-6119
    assert rig.do(end(commit=True)) == "PRODUCER_FENCED"


@pytest.mark.parametrize(
    ("timeout_ms", "times_out"), [(999, True), (1_000, False), (1_001, False), (NEVER_TIMES_OUT_MS, False)]
)
def test_transaction_times_out_after_its_deadline_and_not_under_two_phase_commit(
    timeout_ms: int, times_out: bool
) -> None:
    rig = CoreRig(transaction(S.ONGOING, timeout_ms=timeout_ms))
    rig.do(c.SweepTimedOut())
    assert bool(rig.effects) is times_out


@pytest.mark.parametrize("state", [state for state in S if state not in {S.ONGOING, S.DEAD, S.PREPARE_EPOCH_FENCE}])
def test_only_ongoing_transactions_time_out(state: TxnState) -> None:
    rig = CoreRig(transaction(state, timeout_ms=1))
    rig.do(c.SweepTimedOut())
    assert rig.effects == ()
    rig.do(c.AbortTimedOut(ID, PID, rig.txn.start_ms))
    assert rig.txn.state is state


def test_stale_time_out_does_not_abort_a_transaction() -> None:
    rig = CoreRig(transaction(S.ONGOING, timeout_ms=999))
    stale = (
        c.AbortTimedOut(ID, 1, NOW_MS - 1_000),
        c.AbortTimedOut(ID, PID, NOW_MS - 2_000),
        c.AbortTimedOut("unknown", PID, NOW_MS - 1_000),
    )
    for command in stale:
        assert rig.do(command) is None
    rig.now_ms -= 10
    rig.do(c.AbortTimedOut(ID, PID, NOW_MS - 1_000))
    assert rig.txn.state is S.ONGOING


def test_uncommitted_transaction_is_not_aborted_by_a_time_out() -> None:
    rig = CoreRig(transaction(timeout_ms=10))
    rig.lag = True
    rig.do(c.AddPartitions(ID, PID, 5, (T0,)))
    rig.now_ms += 1_000
    rig.do(c.AbortTimedOut(ID, PID, NOW_MS))
    assert rig.txn.state.kafka_name == "Ongoing"
    rig.commit()
    rig.do(c.AbortTimedOut(ID, PID, NOW_MS))
    assert rig.txn.state.kafka_name == "PrepareAbort"


@pytest.mark.parametrize(
    ("state", "after"), [(S.PREPARE_COMMIT, S.COMPLETE_COMMIT), (S.PREPARE_ABORT, S.COMPLETE_ABORT)]
)
def test_completion_with_the_identity_of_the_transaction_is_written_once(state: TxnState, after: TxnState) -> None:
    rig = CoreRig(transaction(state, last_producer_epoch=4))
    rig.do(c.CompleteTransaction(ID, PID, 4))
    rig.do(c.CompleteTransaction(ID, 1, 5))
    rig.do(c.CompleteTransaction("unknown", PID, 5))
    assert rig.txn.state is state
    rig.do(c.CompleteTransaction(ID, PID, 5))
    txn = rig.txn
    assert (txn.state, txn.partitions, txn.start_ms, txn.update_ms) == (after, {}, NOW_MS - 1_000, NOW_MS)
    assert txn.last_producer_epoch == 4
    rig.do(c.CompleteTransaction(ID, PID, 5))
    assert len(rig.log) == 2


@pytest.mark.parametrize("commit", [True, False])
def test_fenced_tv2_producer_does_not_get_the_epoch_of_a_classic_producer(commit: bool) -> None:
    """A classic producer took over the id of a TV2 producer (epoch 4 -> 5) and ended a transaction at epoch 5."""
    rig = CoreRig(transaction(S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT, client_version=0))
    assert rig.do(end(epoch=4, commit=commit, version=2)) == "PRODUCER_FENCED"
