"""AddPartitionsToTxn and verification of partitions: checks of the transaction shard."""

import pytest

from odradek.coordinator.txn import commands as c
from odradek.coordinator.txn.ports import TopicPartition
from odradek.coordinator.txn.state import TxnState
from odradek.protocol.errors import ErrorCode
from tests.support.txn_rig import ID, NOW_MS, PID, T0, T1, CoreRig, transaction

NONE, ABORTABLE = ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE


def add(*partitions: TopicPartition, pid: int = PID, epoch: int = 5, version: int = 0) -> c.AddPartitions:
    return c.AddPartitions(ID, pid, epoch, partitions, version, "client-2")


def verify(*partitions: TopicPartition, pid: int = PID, epoch: int = 5) -> c.VerifyPartitions:
    return c.VerifyPartitions(ID, pid, epoch, partitions)


@pytest.mark.parametrize("state", [TxnState.EMPTY, TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT])
@pytest.mark.parametrize("version", [0, 2])
def test_first_partitions_begin_the_transaction(state: TxnState, version: int) -> None:
    rig = CoreRig(transaction(state))
    assert rig.do(add(T0, T1, version=version)) == {T0: NONE, T1: NONE}
    txn = rig.txn
    assert (txn.state, txn.start_ms, list(txn.partitions)) == (TxnState.ONGOING, NOW_MS, [T0, T1])
    assert (txn.client_version, txn.client_id) == (version, "client-2")


def test_further_partitions_do_not_change_the_start_time() -> None:
    rig = CoreRig(transaction(TxnState.ONGOING))
    assert rig.do(add(T1)) == {T1: NONE}
    assert rig.txn.start_ms == NOW_MS - 1_000
    assert rig.txn.update_ms == NOW_MS
    assert list(rig.txn.partitions) == [T0, T1]


def test_known_partitions_write_no_record() -> None:
    rig = CoreRig(transaction(TxnState.ONGOING))
    assert rig.do(add(T0)) == {T0: NONE}
    assert len(rig.log) == 1


def test_add_partitions_with_a_wrong_producer_identity_is_refused() -> None:
    assert CoreRig().do(add(T0)) == "INVALID_PRODUCER_ID_MAPPING"
    rig = CoreRig(transaction())
    assert rig.do(add(T0, pid=1, epoch=9)) == "INVALID_PRODUCER_ID_MAPPING"
    assert rig.do(add(T0, epoch=4)) == "PRODUCER_FENCED"
    assert rig.do(add(T0, epoch=6)) == "PRODUCER_FENCED"


@pytest.mark.parametrize("state", [TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT])
def test_pending_check_comes_before_the_identity_check(state: TxnState) -> None:
    """After an epoch overflow, a TV2 producer may use its new id before the Complete record (KAFKA-18464)."""
    rig = CoreRig(transaction(state))
    assert rig.do(add(T0, pid=1)) == "RETRY"
    rig.core.stop_completion(ID, PID, 5)
    assert rig.do(add(T0, pid=1)) == "INVALID_PRODUCER_ID_MAPPING"
    assert rig.do(add(T0)) == "RETRY"


def test_partitions_are_added_while_the_complete_record_is_uncommitted() -> None:
    rig = CoreRig(transaction(TxnState.PREPARE_COMMIT))
    rig.lag = True
    rig.do(c.CompleteTransaction(ID, PID, 5))
    assert rig.do(add(T0)) == {T0: NONE}
    assert rig.do(add(T1)) == {T1: NONE}
    assert rig.do(verify(T0, T1)) == {T0: NONE, T1: NONE}
    assert [entry.memo.state.kafka_name for entry in rig.log] == [
        "PrepareCommit",
        "CompleteCommit",
        "Ongoing",
        "Ongoing",
    ]


def test_add_waits_for_an_uncommitted_identity() -> None:
    rig = CoreRig(transaction())
    rig.lag = True
    rig.do(c.InitProducerId(ID, 60_000))
    assert (rig.do(add(T0)), rig.do(add(T0, epoch=6))) == ("RETRY", "RETRY")
    rig.commit()
    assert (rig.do(add(T0)), rig.do(add(T0, epoch=6))) == ("PRODUCER_FENCED", {T0: NONE})


@pytest.mark.parametrize("state", [TxnState.EMPTY, TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT])
def test_verification_without_an_ongoing_transaction_is_abortable(state: TxnState) -> None:
    assert CoreRig(transaction(state)).do(verify(T0)) == {T0: ABORTABLE}


def test_verification_with_a_wrong_identity_or_of_a_prepared_transaction_is_refused() -> None:
    assert CoreRig().do(verify(T0)) == "INVALID_PRODUCER_ID_MAPPING"
    for state in (TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT):
        rig = CoreRig(transaction(state))
        assert rig.do(verify(T0, pid=1)) == "INVALID_PRODUCER_ID_MAPPING"
        assert rig.do(verify(T0, epoch=4)) == "PRODUCER_FENCED"
        assert rig.do(verify(T0)) == "RETRY"
