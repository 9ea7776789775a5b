"""AddPartitionsToTxn and verification of partitions: checks of the transaction shard."""

import pytest

from odradek.client_shares import Client
from odradek.coordinator.txn import commands as c
from odradek.coordinator.txn import table
from odradek.coordinator.txn.ports import TopicPartition
from odradek.coordinator.txn.state import ProducerIdentity
from odradek.protocol.errors import ErrorCode
from odradek.protocol.txn_state import TxnState
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


def partitions(count: int, first: int = 0) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition("t", first + number) for number in range(count))


def begun(rig: CoreRig, transactional_id: str, client: Client | None) -> ProducerIdentity:
    """Return the identity of a new producer."""
    identity: ProducerIdentity = rig.do(c.InitProducerId(transactional_id, 30_000, client=client))
    return identity


def test_client_that_fills_the_partitions_of_transactions_is_refused_while_other_clients_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(table, "PARTITIONS_MAX", 100)
    rig = CoreRig()
    flood = [begun(rig, f"flood-{number}", Client("10.0.0.1", "flood")) for number in range(9)]
    outcomes = [rig.do(c.AddPartitions(f"flood-{n}", *flood[n], partitions(10))) for n in range(9)]
    assert outcomes[7:] == ["CONCURRENT_TRANSACTIONS"] * 2
    assert rig.core.transactions.partition_count == 70
    known = rig.do(c.AddPartitions("flood-3", *flood[3], partitions(10)))
    assert known == dict.fromkeys(partitions(10), NONE), "partitions of the transaction need no capacity"
    assert rig.do(c.AddPartitions("flood-3", *flood[3], partitions(6, 10))) == "CONCURRENT_TRANSACTIONS"
    assert len(rig.do(c.AddPartitions("flood-3", *flood[3], partitions(5, 10)))) == 5, "three quarters of the capacity"
    other = begun(rig, "payments", Client("10.0.0.2", "payments"))
    assert rig.do(c.AddPartitions("payments", *other, partitions(2))) == dict.fromkeys(partitions(2), NONE)
    unknown = begun(rig, "unknown client", None)
    assert rig.do(c.AddPartitions("unknown client", *unknown, partitions(2))) == dict.fromkeys(partitions(2), NONE)
    assert rig.do(c.AddPartitions("unknown client", *unknown, partitions(22, 2))) == "CONCURRENT_TRANSACTIONS"


def test_partitions_of_a_complete_or_removed_transaction_return_their_capacity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "PARTITIONS_MAX", 4)
    rig = CoreRig()
    client = Client("10.0.0.1", "c")
    identity = begun(rig, ID, client)
    assert rig.do(c.AddPartitions(ID, *identity, partitions(3))) == dict.fromkeys(partitions(3), NONE)
    rig.do(c.EndTransaction(ID, *identity, commit=True))
    assert rig.core.transactions.partition_count == 3, "the markers are not written"
    second = begun(rig, "second", client)
    assert rig.do(c.AddPartitions("second", *second, (T0,))) == "CONCURRENT_TRANSACTIONS"
    rig.do(c.CompleteTransaction(ID, *identity))
    assert rig.core.transactions.partition_count == 0
    assert rig.do(c.AddPartitions("second", *second, (T0, T0))) == {T0: NONE}
    assert rig.do(c.AddPartitions(ID, *identity, partitions(2))) == dict.fromkeys(partitions(2), NONE)
    del rig.core.transactions["second"]
    assert rig.core.transactions.partition_count == 2


def test_number_of_partitions_follows_from_the_log_and_may_exceed_the_maximum(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = CoreRig(transaction(TxnState.ONGOING, partitions=partitions(6)))
    rig.store(transaction(TxnState.PREPARE_COMMIT, transactional_id="second", partitions=partitions(4)))
    rig.store(transaction(TxnState.COMPLETE_ABORT, transactional_id="third"))
    monkeypatch.setattr(table, "PARTITIONS_MAX", 5)
    core = rig.replayed()
    assert core.transactions.partition_count == 10
    assert rig.do(add(T0)) == {T0: NONE}
    assert rig.do(add(*partitions(1, 6))) == "CONCURRENT_TRANSACTIONS"
    rig.do(c.EndTransaction(ID, PID, 5, commit=False))
    rig.do(c.CompleteTransaction(ID, PID, 5))
    rig.do(c.CompleteTransaction("second", PID, 5))
    assert rig.core.transactions.partition_count == rig.replayed().transactions.partition_count == 0
    assert rig.do(add(T0)) == {T0: NONE}
