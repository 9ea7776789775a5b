"""Two-phase commit (KIP-939): transactions that InitProducerId keeps, and their end by the owner that comes back."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.coordinator.txn import commands as c
from odradek.coordinator.txn.epochs import EPOCH_MAX, last_client_epoch
from odradek.coordinator.txn.state import ProducerIdentity, Transaction
from odradek.protocol.errors import ErrorCode
from odradek.protocol.txn_state import NEVER_TIMES_OUT_MS, TxnState
from tests.support.txn_rig import FRESH_PID, ID, NOW_MS, PID, T0, U0, CoreRig, transaction

LAST_CLIENT_EPOCH = last_client_epoch()
S = TxnState
YEAR_MS = 365 * 24 * 3_600_000


def keep(expected: tuple[int, int] | None = None, timeout_ms: int = NEVER_TIMES_OUT_MS) -> c.RecoverProducer:
    identity = None if expected is None else ProducerIdentity(*expected)
    return c.RecoverProducer(c.InitProducerId(ID, timeout_ms, identity, "owner"))


def end(identity: tuple[int, int], *, commit: bool = True, version: int = 2) -> c.EndTransaction:
    return c.EndTransaction(ID, *identity, commit, version)


def prepared(epoch: int = 100, **more: Any) -> CoreRig:
    """Return a rig with an ongoing transaction of a 2PC owner."""
    values: dict[str, Any] = {"timeout_ms": NEVER_TIMES_OUT_MS, "client_version": 2, "partitions": (T0, U0)}
    return CoreRig(transaction(S.ONGOING, epoch=epoch, **(values | more)))


def complete(rig: CoreRig) -> None:
    marker = rig.effects[0].marker
    assert rig.do(c.CompleteTransaction(ID, marker.producer_id, marker.producer_epoch)) is None
    assert rig.txn.state.is_complete


def markers(rig: CoreRig) -> tuple[int, int]:
    (effect,) = rig.effects
    return effect.marker.producer_id, effect.marker.producer_epoch


# ---- InitProducerId with KeepPreparedTxn ----------------------------------------------------------------------------


def test_kept_transaction_stays_ongoing_with_its_partitions_and_identity() -> None:
    rig = prepared()
    before = rig.txn
    assert rig.do(keep()) == ((PID, 101), (PID, 100))
    txn = rig.txn
    assert (txn.state, txn.own_identity, txn.partitions) == (S.ONGOING, (PID, 100), before.partitions)
    assert (txn.start_ms, txn.timeout_ms, txn.client_version) == (before.start_ms, NEVER_TIMES_OUT_MS, 2)
    assert (txn.client_identity, txn.client_id, txn.update_ms) == ((PID, 101), "owner", NOW_MS)
    assert rig.effects == ()


def test_each_further_keep_raises_the_identity_of_the_client() -> None:
    rig = prepared()
    assert [rig.do(keep()).identity for _ in range(3)] == [(PID, 101), (PID, 102), (PID, 103)]
    assert rig.txn.own_identity == (PID, 100)


@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_keep_without_an_ongoing_transaction_is_a_normal_init(state: TxnState) -> None:
    rig = CoreRig(transaction(state))
    assert rig.do(keep()) == ((PID, 6), None)
    assert (rig.txn.state, rig.txn.timeout_ms) == (S.EMPTY, NEVER_TIMES_OUT_MS)


def test_keep_of_an_unknown_id_creates_it() -> None:
    assert CoreRig().do(keep()) == ((FRESH_PID, 0), None)


@pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.PREPARE_ABORT])
def test_keep_waits_for_the_end_of_a_transaction(state: TxnState) -> None:
    rig = CoreRig(transaction(state))
    assert rig.do(keep()) == "RETRY"
    rig.core.stop_completion(ID, PID, 5)
    assert rig.do(keep()) == "RETRY"


def test_keep_with_the_identity_of_the_client_is_accepted_and_others_are_fenced() -> None:
    rig = prepared()
    assert rig.do(keep((PID, 99))) == "PRODUCER_FENCED"
    assert rig.do(keep((PID, 101))) == "PRODUCER_FENCED"
    assert rig.do(keep((77, 100))) == "PRODUCER_FENCED"
    assert rig.do(keep((PID, 100))).identity == (PID, 101)
    assert rig.do(keep((PID, 101))).identity == (PID, 102)
    assert rig.do(keep((PID, 100))) == "PRODUCER_FENCED"


@pytest.mark.parametrize(("epoch", "client"), [(100, (PID, 101)), (LAST_CLIENT_EPOCH, (FRESH_PID, 0))])
def test_retry_of_a_keep_receives_the_same_identity(epoch: int, client: tuple[int, int]) -> None:
    rig = prepared(epoch)
    for _ in range(3):
        assert rig.do(keep((PID, epoch))) == (client, (PID, epoch))
    assert len(rig.log) == 2
    assert rig.do(keep()).identity == (client[0], client[1] + 1)
    assert rig.do(keep((PID, epoch))) == "PRODUCER_FENCED"


def test_former_epoch_of_an_ongoing_transaction_is_no_retry_of_a_keep() -> None:
    assert prepared(last_producer_epoch=99).do(keep((PID, 99))) == "PRODUCER_FENCED"


# ---- time-outs ------------------------------------------------------------------------------------------------------


def test_no_time_out_aborts_a_two_phase_transaction() -> None:
    for rig in (prepared(), prepared(next_producer_id=PID, next_producer_epoch=101)):
        rig.now_ms += 100 * YEAR_MS
        rig.do(c.SweepTimedOut())
        assert rig.effects == ()
        rig.do(c.AbortTimedOut(ID, PID, rig.txn.start_ms))
        assert rig.do(c.ExpireIds((ID,))) == 0
        assert rig.txn.state is S.ONGOING


def test_keep_without_2pc_leaves_the_time_out_of_the_ongoing_transaction() -> None:
    """The owner may have recorded its decision. A time-out set by its later request would break it."""
    rig = prepared()
    rig.do(keep(timeout_ms=1))
    assert rig.txn.timeout_ms == NEVER_TIMES_OUT_MS
    rig = prepared(timeout_ms=60_000)
    rig.do(keep(timeout_ms=1))
    assert rig.txn.timeout_ms == 60_000
    rig.do(keep())
    assert rig.txn.never_times_out


def test_kept_transaction_with_a_time_out_is_aborted_after_it() -> None:
    rig = prepared(timeout_ms=60_000)
    rig.do(keep(timeout_ms=60_000))
    rig.now_ms += 60_001
    rig.do(c.AbortTimedOut(ID, PID, rig.txn.start_ms))
    assert (rig.txn.state, markers(rig), rig.txn.client_identity) == (S.PREPARE_ABORT, (PID, 101), (PID, 102))


def test_init_without_2pc_sets_the_time_out_again() -> None:
    rig = CoreRig(transaction(S.COMPLETE_COMMIT, timeout_ms=NEVER_TIMES_OUT_MS))
    rig.do(c.InitProducerId(ID, 60_000))
    assert rig.txn.timeout_ms == 60_000


# ---- the end of a kept transaction ----------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize(
    ("epoch", "keeps", "client", "after"),
    [
        (100, 1, (PID, 101), (PID, 102)),
        (100, 2, (PID, 102), (PID, 103)),
        (LAST_CLIENT_EPOCH - 1, 1, (PID, LAST_CLIENT_EPOCH), (FRESH_PID, 0)),
        (LAST_CLIENT_EPOCH - 1, 2, (FRESH_PID, 0), (FRESH_PID, 1)),
        (LAST_CLIENT_EPOCH, 1, (FRESH_PID, 0), (FRESH_PID, 1)),
        (LAST_CLIENT_EPOCH, 3, (FRESH_PID, 2), (FRESH_PID, 3)),
    ],
)
def test_markers_follow_the_transaction_and_the_next_identity_the_client(
    commit: bool, epoch: int, keeps: int, client: tuple[int, int], after: tuple[int, int]
) -> None:
    rig = prepared(epoch)
    for _ in range(keeps):
        identity = rig.do(keep()).identity
    assert identity == client
    assert rig.do(end(client, commit=commit)) == after
    assert markers(rig) == (PID, epoch + 1)
    assert rig.txn.state is (S.PREPARE_COMMIT if commit else S.PREPARE_ABORT)
    complete(rig)
    assert (rig.txn.own_identity, rig.txn.has_next_identity) == (after, False)
    assert rig.do(end(client, commit=commit)) == after  # a retry
    assert rig.do(end(client, commit=not commit)) == "INVALID_TXN_STATE"
    assert rig.do(c.AddPartitions(ID, *after, (T0,), 2)) == {T0: ErrorCode.NONE}
    assert rig.do(end(client, commit=commit)) in {"PRODUCER_FENCED", "INVALID_PRODUCER_ID_MAPPING"}
    assert rig.txn.partitions == {T0: None}


def test_producer_id_changes_twice_for_one_transaction() -> None:
    """The epoch is exhausted when the owner comes back, and again at its end."""
    rig = prepared(LAST_CLIENT_EPOCH)
    assert rig.do(keep()).identity == (FRESH_PID, 0)
    stored = rig.replayed().transactions[ID]
    rig.store(_with_client_epoch(stored, LAST_CLIENT_EPOCH))
    assert rig.do(end((FRESH_PID, LAST_CLIENT_EPOCH))) == (FRESH_PID + 1, 0)
    assert markers(rig) == (PID, EPOCH_MAX)
    for stopped in (True, False):
        if stopped:
            rig.core.stop_completion(ID, PID, EPOCH_MAX)
            assert rig.do(end((FRESH_PID, LAST_CLIENT_EPOCH))) == "RETRY"
        else:
            complete(rig)
            assert rig.do(end((FRESH_PID, LAST_CLIENT_EPOCH))) == (FRESH_PID + 1, 0)
        assert rig.do(end((PID, LAST_CLIENT_EPOCH))) != (FRESH_PID + 1, 0)


def _with_client_epoch(txn: Transaction, epoch: int) -> Transaction:
    return transaction(
        S.ONGOING,
        epoch=txn.producer_epoch,
        next_producer_id=txn.next_producer_id,
        next_producer_epoch=epoch,
        client_version=2,
    )


def test_requests_of_former_owners_do_not_end_a_kept_transaction() -> None:
    rig = prepared()
    rig.do(keep())
    rig.do(keep())
    for former in ((PID, 100), (PID, 101), (PID, 103)):
        for commit in (True, False):
            for version in (0, 2):
                assert rig.do(end(former, commit=commit, version=version)) == "PRODUCER_FENCED"
    rotated = prepared(LAST_CLIENT_EPOCH)
    rotated.do(keep())
    assert rotated.do(end((PID, LAST_CLIENT_EPOCH))) == "PRODUCER_FENCED"
    assert rotated.do(end((77, 0))) == "INVALID_PRODUCER_ID_MAPPING"


def test_classic_end_of_a_kept_transaction_is_refused() -> None:
    rig = prepared()
    rig.do(keep())
    assert rig.do(end((PID, 101), version=0)) == "UNSUPPORTED_VERSION"


def test_init_without_keep_aborts_a_kept_transaction_and_passes_its_client() -> None:
    rig = prepared()
    rig.do(keep())
    assert rig.do(c.InitProducerId(ID, 60_000, ProducerIdentity(PID, 100))) == "PRODUCER_FENCED"
    assert rig.do(c.InitProducerId(ID, 60_000)) == "RETRY"
    assert (rig.txn.state, markers(rig)) == (S.PREPARE_ABORT, (PID, 101))
    complete(rig)
    assert rig.do(end((PID, 101))) == "INVALID_TXN_STATE"  # the commit of the owner that was fenced
    assert rig.do(c.InitProducerId(ID, 60_000)) == (PID, 103)
    assert rig.do(end((PID, 101))) == "PRODUCER_FENCED"


@pytest.mark.parametrize("level", [0, 1])
def test_kept_transaction_survives_a_downgrade_of_the_feature_level(level: int) -> None:
    for commit in (True, False):
        rig = prepared()
        rig.do(keep())
        rig.level.level = level
        rig.core = rig.replayed()
        rig.core.on_loaded(7, NOW_MS)
        if commit:
            assert rig.do(end((PID, 101))) == (PID, 102)
        else:
            assert rig.do(c.InitProducerId(ID, 60_000)) == "RETRY"
        assert markers(rig) == (PID, 101)
        rig.core = rig.replayed()
        rig.core.on_loaded(7, NOW_MS)
        rig.do(c.CompleteTransaction(ID, PID, 101))
        assert rig.txn.own_identity == (PID, 102)


# ---- partitions -----------------------------------------------------------------------------------------------------


def test_kept_transaction_gets_no_partitions() -> None:
    rig = prepared()
    rig.do(keep())
    requests = [((PID, 101), "INVALID_TXN_STATE"), ((PID, 100), "PRODUCER_FENCED"), ((PID, 102), "PRODUCER_FENCED")]
    for identity, error in [*requests, ((77, 100), "INVALID_PRODUCER_ID_MAPPING")]:
        for partition in (T0, ("t", 9)):
            for version in (0, 2):
                assert rig.do(c.AddPartitions(ID, *identity, (partition,), version)) == error  # type: ignore[arg-type]
            assert rig.do(c.VerifyPartitions(ID, *identity, (partition,))) == error  # type: ignore[arg-type]


def test_former_owner_is_fenced_after_a_change_of_the_producer_id() -> None:
    rig = prepared(LAST_CLIENT_EPOCH)
    rig.do(keep())
    assert rig.do(c.AddPartitions(ID, PID, LAST_CLIENT_EPOCH, (T0,), 2)) == "PRODUCER_FENCED"
    assert rig.do(c.VerifyPartitions(ID, PID, LAST_CLIENT_EPOCH, (T0,))) == "PRODUCER_FENCED"


# ---- the log --------------------------------------------------------------------------------------------------------


def test_new_coordinator_ends_a_kept_transaction() -> None:
    rig = prepared()
    rig.do(keep())
    rig.do(keep())
    for _ in range(2):
        rig.core = rig.replayed()
        loaded = rig.core.on_loaded(8, NOW_MS)
    assert loaded.effects == ()
    assert rig.do(end((PID, 101))) == "PRODUCER_FENCED"
    assert rig.do(end((PID, 102))) == (PID, 103)
    rig.core = rig.replayed()
    rig.effects = rig.core.on_loaded(9, NOW_MS).effects
    assert markers(rig) == (PID, 101)
    complete(rig)
    assert rig.replayed().transactions[ID].own_identity == (PID, 103)


def test_keep_without_available_producer_ids_changes_nothing() -> None:
    rig = prepared(LAST_CLIENT_EPOCH)
    rig.ids.empty = True
    assert rig.do(keep()) == "COORDINATOR_LOAD_IN_PROGRESS"
    assert not rig.txn.is_kept
