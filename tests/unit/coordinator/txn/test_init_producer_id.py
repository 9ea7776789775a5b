"""InitProducerId: the next identity of a producer in each case."""

from __future__ import annotations

import pytest

from odradek.client_shares import Client
from odradek.coordinator import bounded_ids
from odradek.coordinator.txn import commands as c
from odradek.coordinator.txn import init_producer_id
from odradek.coordinator.txn.epochs import EPOCH_MAX, last_client_epoch
from odradek.coordinator.txn.state import ProducerIdentity
from odradek.protocol.errors import ErrorCode
from odradek.protocol.txn_state import TxnState
from tests.support.txn_rig import FRESH_PID, ID, NOW_MS, PID, T0, CoreRig, shown, transaction

LAST_CLIENT_EPOCH = last_client_epoch()
OTHER = 77


def init(expected: tuple[int, int] | None = None, timeout_ms: int = 30_000) -> c.InitProducerId:
    return c.InitProducerId(ID, timeout_ms, None if expected is None else ProducerIdentity(*expected), "client-1")


def test_unknown_id_gets_a_new_producer_id_and_epoch_0() -> None:
    rig = CoreRig()
    assert rig.do(init()) == (FRESH_PID, 0)
    txn = rig.txn
    assert (txn.state, txn.timeout_ms, txn.start_ms, txn.update_ms) == (TxnState.EMPTY, 30_000, -1, NOW_MS)
    assert (txn.prev_producer_id, txn.last_producer_epoch, txn.client_id) == (FRESH_PID, -1, "client-1")


def test_unknown_id_accepts_any_expected_identity() -> None:
    assert CoreRig().do(init((OTHER, 9))) == (FRESH_PID, 0)


@pytest.mark.parametrize("state", [TxnState.EMPTY, TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT])
@pytest.mark.parametrize(
    ("stored", "last", "expected", "identity", "last_after"),
    [
        (LAST_CLIENT_EPOCH, -1, None, (FRESH_PID, 0), -1),
        (EPOCH_MAX, -1, None, (FRESH_PID, 0), -1),
        (LAST_CLIENT_EPOCH, -1, LAST_CLIENT_EPOCH, (FRESH_PID, 0), LAST_CLIENT_EPOCH),
        (5, 4, None, (PID, 6), -1),
        (5, 4, 5, (PID, 6), 5),
        (5, 4, 4, (PID, 5), 4),
        (LAST_CLIENT_EPOCH - 1, -1, None, (PID, LAST_CLIENT_EPOCH), -1),
    ],
)
def test_init_producer_id_raises_the_epoch_or_allocates_a_producer_id(
    state: TxnState, stored: int, last: int, expected: int | None, identity: tuple[int, int], last_after: int
) -> None:
    rig = CoreRig(transaction(state, epoch=stored, last_producer_epoch=last))
    assert rig.do(init(None if expected is None else (PID, expected))) == identity
    txn = rig.txn
    assert (txn.producer_id, txn.producer_epoch, txn.last_producer_epoch) == (*identity, last_after)
    assert (txn.prev_producer_id, txn.state) == (PID, TxnState.EMPTY)


@pytest.mark.parametrize(
    ("stored", "last", "expected", "error"),
    [
        (LAST_CLIENT_EPOCH, 5, (PID, 5), "UNKNOWN_SERVER_ERROR"),
        (5, 4, (PID, 3), "PRODUCER_FENCED"),
        (5, 4, (PID, 6), "PRODUCER_FENCED"),
        (5, -1, (PID, 4), "PRODUCER_FENCED"),
        (5, 4, (OTHER, 5), "PRODUCER_FENCED"),
        (5, 4, (OTHER, LAST_CLIENT_EPOCH), "PRODUCER_FENCED"),
    ],
)
def test_producer_with_another_identity_is_fenced(
    stored: int, last: int, expected: tuple[int, int], error: str
) -> None:
    rig = CoreRig(transaction(epoch=stored, last_producer_epoch=last))
    assert rig.do(init(expected)) == error
    assert len(rig.log) == 1


def test_producer_with_the_previous_id_is_accepted_after_a_lost_response() -> None:
    rig = CoreRig(transaction(epoch=LAST_CLIENT_EPOCH))
    assert rig.do(init((PID, LAST_CLIENT_EPOCH))) == (FRESH_PID, 0)
    assert rig.do(init((PID, LAST_CLIENT_EPOCH))) == (FRESH_PID, 0)  # a retry returns the same identity
    assert rig.do(init((PID, LAST_CLIENT_EPOCH - 1))) == "PRODUCER_FENCED"


@pytest.mark.parametrize("state", [TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT])
def test_init_producer_id_of_a_prepared_transaction_waits_after_the_identity_check(state: TxnState) -> None:
    rig = CoreRig(transaction(state))
    assert rig.do(init((OTHER, 3))) == "RETRY"  # the check of pending records comes first
    rig.core.stop_completion(ID, PID, 5)
    assert rig.do(init((OTHER, 3))) == "PRODUCER_FENCED"
    assert rig.do(init()) == "RETRY"


def test_pending_check_comes_before_fencing() -> None:
    rig = CoreRig(transaction())
    rig.lag = True
    assert rig.do(init()) == (PID, 6)
    assert rig.do(init((OTHER, 1))) == "RETRY"
    rig.commit()
    assert rig.do(init((OTHER, 1))) == "PRODUCER_FENCED"


def test_wrong_producer_does_not_abort_the_ongoing_transaction() -> None:
    rig = CoreRig(transaction(TxnState.ONGOING))
    assert rig.do(init((OTHER, 5))) == "PRODUCER_FENCED"
    assert rig.txn.state is TxnState.ONGOING


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("epoch", [3, 4, 6])
def test_fenced_producer_does_not_abort_the_transaction_of_its_successor(level: int, epoch: int) -> None:
    rig = CoreRig(transaction(TxnState.ONGOING, epoch=5, last_producer_epoch=4), level=level)
    assert rig.do(init((PID, epoch))) == "PRODUCER_FENCED"
    assert rig.txn.state is TxnState.ONGOING
    assert len(rig.log) == 1


@pytest.mark.parametrize(
    ("level", "epoch", "last"),
    [(0, 6, -1), (1, 6, -1), (2, 6, 5)],
)
def test_ongoing_transaction_is_aborted_and_its_producer_fenced(level: int, epoch: int, last: int) -> None:
    rig = CoreRig(transaction(TxnState.ONGOING), level=level)
    assert rig.do(init()) == "RETRY"
    txn = rig.txn
    assert (txn.state, txn.producer_epoch, txn.last_producer_epoch) == (TxnState.PREPARE_ABORT, epoch, last)
    assert txn.client_version == (2 if level == 2 else 0)
    marker = rig.effects[0].marker
    assert (marker.producer_id, marker.producer_epoch, marker.commit) == (PID, epoch, False)
    assert (marker.partitions, marker.coordinator_epoch) == ((T0,), 7)
    assert rig.do(c.CompleteTransaction(ID, PID, epoch)) is None
    assert rig.do(init()) == (PID, epoch + 1)  # no producer receives the epoch of the fencing abort


@pytest.mark.parametrize(("level", "epoch"), [(1, EPOCH_MAX), (2, EPOCH_MAX)])
@pytest.mark.parametrize("stored", [LAST_CLIENT_EPOCH, EPOCH_MAX])
def test_last_epoch_is_reserved_for_an_abort_by_the_broker(level: int, epoch: int, stored: int) -> None:
    rig = CoreRig(transaction(TxnState.ONGOING, epoch=stored), level=level)
    assert rig.do(init()) == "RETRY"
    assert rig.txn.producer_epoch == epoch
    assert rig.txn.next_producer_id == (FRESH_PID if level == 2 else -1)
    rig.do(c.CompleteTransaction(ID, PID, epoch))
    identity = rig.do(init())
    assert identity == ((FRESH_PID, 1) if level == 2 else (FRESH_PID, 0))


def test_refused_append_of_a_fencing_abort_raises_no_epoch() -> None:
    rig = CoreRig(transaction(TxnState.ONGOING), level=0)
    for _ in range(3):  # decisions whose append the log refuses are not applied (KAFKA-9666)
        rig.core.decide(init(), NOW_MS)
    rig.do(init())
    assert rig.txn.producer_epoch == 6


def test_init_producer_id_without_available_producer_ids_is_refused_as_loading() -> None:
    rig = CoreRig()
    rig.ids.empty = True
    assert rig.do(init()) == "COORDINATOR_LOAD_IN_PROGRESS"
    assert shown(rig.do(init())) == "COORDINATOR_LOAD_IN_PROGRESS"
    assert ID not in rig.core.transactions


def test_init_producer_id_replaces_the_time_out() -> None:
    rig = CoreRig(transaction())
    rig.do(init(timeout_ms=1))
    assert rig.txn.timeout_ms == 1


def test_full_shard_refuses_new_ids_and_serves_known_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(init_producer_id, "TRANSACTIONAL_IDS_MAX", 2)
    rig = CoreRig(transaction(TxnState.COMPLETE_COMMIT, epoch=5))
    assert rig.do(c.InitProducerId("second", 30_000)) == (FRESH_PID, 0)
    assert rig.do(c.InitProducerId("third", 30_000)) == "COORDINATOR_NOT_AVAILABLE"
    assert rig.ids.next == FRESH_PID + 1, "a refused command must not take a producer id"
    assert rig.do(init()) == (PID, 6)
    assert rig.do(c.AddPartitions("second", FRESH_PID, 0, (T0,))) == {T0: ErrorCode.NONE}


def test_long_ids_reach_the_memory_limit_earlier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_ids, "IDS_BYTES_MAX", 100)
    rig = CoreRig()
    assert rig.do(c.InitProducerId("x" * 60, 30_000)) == (FRESH_PID, 0)
    assert rig.do(c.InitProducerId("y" * 41, 30_000)) == "COORDINATOR_NOT_AVAILABLE"
    assert rig.do(c.InitProducerId("\N{MONKEY}" * 11, 30_000)) == "COORDINATOR_NOT_AVAILABLE"
    assert rig.do(c.InitProducerId("x" * 60, 30_000)) == (FRESH_PID, 1)
    assert rig.do(c.InitProducerId("\N{MONKEY}" * 10, 30_000)) == (FRESH_PID + 1, 0)


def test_expired_id_frees_capacity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(init_producer_id, "TRANSACTIONAL_IDS_MAX", 1)
    rig = CoreRig(transaction(TxnState.COMPLETE_COMMIT, epoch=5))
    rig.now_ms += rig.config.id_expiration_ms
    rig.lag = True
    assert rig.do(c.ExpireIds((ID,))) == 1
    assert rig.do(c.InitProducerId("second", 30_000)) == "COORDINATOR_NOT_AVAILABLE", (
        "an id with an uncommitted tombstone must still count"
    )
    rig.commit()
    assert rig.do(c.InitProducerId("second", 30_000)) == (FRESH_PID, 0)


def test_client_that_fills_the_shard_is_refused_while_other_clients_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(init_producer_id, "TRANSACTIONAL_IDS_MAX", 100)
    rig = CoreRig()
    flood, other = Client("10.0.0.1", "flood"), Client("10.0.0.2", "payments")
    outcomes = [rig.do(c.InitProducerId(f"flood-{number}", 30_000, client=flood)) for number in range(80)]
    assert outcomes[75:] == ["COORDINATOR_NOT_AVAILABLE"] * 5
    assert rig.do(c.InitProducerId("flood-3", 30_000, client=flood))[1] == 1, "known ids are served"
    for number in range(10):
        assert rig.do(c.InitProducerId(f"payments-{number}", 30_000, client=other))[1] == 0
    assert rig.do(c.InitProducerId("unknown client", 30_000))[1] == 0
    # The removal of an id returns its capacity to the client.
    for number in range(20):
        identity = ProducerIdentity(rig.core.transactions[f"flood-{number}"].producer_id, int(number == 3))
        assert rig.do(c.ExpireId(f"flood-{number}", identity)) is None
    assert rig.do(c.InitProducerId("flood-80", 30_000, client=flood))[1] == 0


def test_client_with_long_ids_is_refused_by_its_share_of_the_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_ids, "IDS_BYTES_MAX", 1_000)
    rig = CoreRig()
    flood = Client("10.0.0.1", "flood")
    outcomes = [rig.do(c.InitProducerId(f"{number}" * 100, 30_000, client=flood)) for number in range(9)]
    assert outcomes[8:] == ["COORDINATOR_NOT_AVAILABLE"]
    assert rig.do(c.InitProducerId("x" * 100, 30_000, client=Client("10.0.0.2", "")))[1] == 0


def test_id_of_a_loaded_shard_counts_for_the_client_that_initializes_it_again() -> None:
    client = Client("10.0.0.1", "c")
    rig = CoreRig(transaction(TxnState.COMPLETE_COMMIT, epoch=5))
    assert rig.core.shares.client_of(ID) is None
    rig.do(c.InitProducerId(ID, 30_000, client=client))
    assert rig.core.shares.client_of(ID) == client
    rig.do(c.InitProducerId(ID, 30_000, client=Client("10.0.0.2", "c")))
    assert rig.core.shares.client_of(ID) == client, "an id counts for the client that has created it"


@pytest.mark.parametrize(
    ("state", "outcome"),
    [
        (TxnState.EMPTY, None),
        (TxnState.COMPLETE_COMMIT, None),
        (TxnState.COMPLETE_ABORT, None),
        (TxnState.ONGOING, "INVALID_TXN_STATE"),
        (TxnState.PREPARE_COMMIT, "RETRY"),
        (TxnState.PREPARE_ABORT, "RETRY"),
    ],
)
def test_removal_needs_the_current_identity_and_no_open_transaction(state: TxnState, outcome: str | None) -> None:
    rig = CoreRig(transaction(state, epoch=5))
    assert rig.do(c.ExpireId(ID, ProducerIdentity(PID, 4))) == ("RETRY" if outcome == "RETRY" else "PRODUCER_FENCED")
    assert rig.do(c.ExpireId("other", ProducerIdentity(PID, 5))) == "TRANSACTIONAL_ID_NOT_FOUND"
    rig.lag = True
    assert rig.do(c.ExpireId(ID, ProducerIdentity(PID, 5))) == outcome
    assert (rig.txn.state is TxnState.DEAD) == (outcome is None)
    if outcome is None:
        assert rig.do(c.ExpireId(ID, ProducerIdentity(PID, 5))) == "TRANSACTIONAL_ID_NOT_FOUND"
        assert rig.do(init()) == "RETRY", "the id waits for its tombstone"
        rig.commit()
        rig.lag = False
        assert rig.do(init()) == (FRESH_PID, 0), "the former producer is fenced: the id has a new producer id"
