"""Table of the transaction states: completeness, outcomes, and invalid successors."""

from __future__ import annotations

from dataclasses import replace

import pytest

from odradek.coordinator.txn import commands as c
from odradek.coordinator.txn.changes import check_step
from odradek.coordinator.txn.end_txn import decide_complete
from odradek.coordinator.txn.state import VALID_PREVIOUS_STATES
from odradek.coordinator.txn.transitions import (
    TRANSITIONS,
    Event,
    Outcome,
    look_up,
)
from odradek.invariants.invariant import InvariantViolation
from odradek.protocol.txn_state import TxnState
from odradek.runtime.machine import (
    BUG,
    InvalidTable,
    Refuse,
    To,
    TransitionBug,
    TransitionTable,
    check_successors,
)
from tests.support.cell_counts import count
from tests.support.invariants import checked
from tests.support.txn_rig import ID, NOW_MS, PID, T0, T1, CoreRig, transaction

S = TxnState


def test_states_have_kafkas_codes_and_names() -> None:
    assert [(state.value, state.kafka_name) for state in S] == [
        (0, "Empty"),
        (1, "Ongoing"),
        (2, "PrepareCommit"),
        (3, "PrepareAbort"),
        (4, "CompleteCommit"),
        (5, "CompleteAbort"),
        (6, "Dead"),
        (7, "PrepareEpochFence"),
    ]


def test_missing_cell_is_refused() -> None:
    cells = dict(TRANSITIONS.cells)
    del cells[S.DEAD, Event.VERIFY]
    with pytest.raises(InvalidTable, match="VERIFY in DEAD"):
        TransitionTable("transactions", S, Event, cells)


def test_invalid_successor_state_is_refused() -> None:
    cells = {**TRANSITIONS.cells, (S.PREPARE_COMMIT, Event.MARKERS_DONE): To(S.COMPLETE_ABORT)}
    with pytest.raises(InvalidTable, match="COMPLETE_ABORT cannot follow PREPARE_COMMIT"):
        check_successors(TransitionTable("transactions", S, Event, cells), VALID_PREVIOUS_STATES)


def test_each_stored_state_is_entered_by_a_cell() -> None:
    entered = {action.state for action in TRANSITIONS.cells.values() if isinstance(action, To)}
    assert entered == set(S) - {S.PREPARE_EPOCH_FENCE}
    assert set(VALID_PREVIOUS_STATES) == set(S)


def test_bug_cells_are_those_of_the_state_that_is_never_stored() -> None:
    bugs = {cell for cell, action in TRANSITIONS.cells.items() if action is BUG}
    assert bugs == {(S.PREPARE_EPOCH_FENCE, event) for event in Event}
    with pytest.raises(TransitionBug, match="PREPARE_EPOCH_FENCE"):
        look_up(S.PREPARE_EPOCH_FENCE, Event.INIT)


COMMANDS: dict[Event, c.Command] = {
    Event.INIT: c.InitProducerId(ID, 60_000),
    Event.INIT_KEEP: c.RecoverProducer(c.InitProducerId(ID, 60_000)),
    Event.ADD: c.AddPartitions(ID, PID, 5, (T0,)),
    Event.VERIFY: c.VerifyPartitions(ID, PID, 5, (T0,)),
    Event.COMMIT: c.EndTransaction(ID, PID, 5, commit=True),
    Event.ABORT: c.EndTransaction(ID, PID, 5, commit=False),
    Event.COMMIT_TV2: c.EndTransaction(ID, PID, 5, commit=True, client_version=2),
    Event.COMMIT_TV2_RETRY: c.EndTransaction(ID, PID, 4, commit=True, client_version=2),
    Event.ABORT_TV2: c.EndTransaction(ID, PID, 5, commit=False, client_version=2),
    Event.ABORT_TV2_RETRY: c.EndTransaction(ID, PID, 4, commit=False, client_version=2),
    Event.TIME_OUT: c.AbortTimedOut(ID, PID, NOW_MS - 1_000),
    Event.MARKERS_DONE: c.CompleteTransaction(ID, PID, 5),
    Event.EXPIRE: c.ExpireIds((ID,)),
}


@pytest.mark.parametrize("state", list(S))
@pytest.mark.parametrize("event", list(Event))
def test_each_cell_decides_the_result_of_its_command(state: TxnState, event: Event) -> None:
    """No record or completion is pending, so only the cell of state and event can decide the outcome."""
    stored = transaction(
        state, timeout_ms=500, update_ms=0, client_version=getattr(COMMANDS[event], "client_version", 0)
    )
    rig = CoreRig(stored)
    rig.core.stop_completion(ID, PID, 5)
    visits = count(TRANSITIONS).visits
    before = visits[state, event]
    action = TRANSITIONS.cells[state, event]
    command = COMMANDS[event]
    if isinstance(action, Refuse):
        assert rig.do(command) == action.error.name
    elif action is BUG:
        with pytest.raises(TransitionBug):
            rig.do(command)
    elif action is Outcome.RETRY:
        assert rig.do(command) == "RETRY"
        assert len(rig.log) == 1
    elif action is Outcome.RESPOND:
        assert rig.do(command) != "RETRY"
        assert len(rig.log) == 1
    else:
        rig.do(command)
        assert isinstance(action, To)
        assert rig.core.transactions.get(ID, transaction(S.DEAD)).state is action.state
    assert visits[state, event] > before


@pytest.mark.parametrize(
    "change",
    [
        {"producer_id": 2},
        {"producer_epoch": 7},
        {"timeout_ms": 1},
        {"start_ms": 5},
        {"start_ms": -1},
        {"partitions": {}},
        {"last_producer_epoch": 3, "client_version": 2},
    ],
)
def test_invalid_prepare_record_is_not_written(change: dict[str, object]) -> None:
    before = transaction(S.ONGOING)
    after = replace(before, state=S.PREPARE_COMMIT, producer_epoch=6, last_producer_epoch=5)
    check_step(before, after)
    with checked(), pytest.raises(InvariantViolation):
        check_step(before, replace(after, **change))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("state", "change"),
    [
        (S.EMPTY, {"producer_epoch": 9}),
        (S.EMPTY, {"partitions": {T0: None}}),
        (S.EMPTY, {"start_ms": 1}),
        (S.ONGOING, {"producer_id": 2}),
        (S.ONGOING, {"producer_epoch": 6}),
        (S.ONGOING, {"partitions": {}}),
        (S.ONGOING, {"next_producer_id": PID, "next_producer_epoch": 5}),
        (S.ONGOING, {"next_producer_id": PID, "next_producer_epoch": 7}),
        (S.ONGOING, {"next_producer_id": 2, "next_producer_epoch": 0}),
        (S.ONGOING, {"next_producer_id": PID, "next_producer_epoch": 6, "timeout_ms": 1}),
        (S.ONGOING, {"next_producer_id": PID, "next_producer_epoch": 6, "partitions": {T0: None, T1: None}}),
        (S.COMPLETE_COMMIT, {"partitions": {T0: None}}),
        (S.COMPLETE_COMMIT, {"producer_id": 2}),
        (S.COMPLETE_COMMIT, {"start_ms": 1}),
        (S.DEAD, {}),
    ],
)
def test_other_invalid_changes_are_not_written(state: TxnState, change: dict[str, object]) -> None:
    before = transaction(S.ONGOING)
    after = replace(before, state=state, **change)  # type: ignore[arg-type]
    with checked(), pytest.raises(AssertionError):
        check_step(before, after)


KEPT = transaction(S.ONGOING, next_producer_id=PID, next_producer_epoch=6)


@pytest.mark.parametrize(
    ("state", "change"),
    [
        (S.ONGOING, {"partitions": {T0: None, T1: None}}),
        (S.ONGOING, {"next_producer_id": -1, "next_producer_epoch": -1}),
        (S.PREPARE_COMMIT, {"next_producer_id": PID, "next_producer_epoch": 6}),  # the identity of the client stays
        (S.PREPARE_COMMIT, {"next_producer_id": -1, "next_producer_epoch": -1}),
        (S.PREPARE_COMMIT, {"producer_epoch": 7, "next_producer_epoch": 7}),  # markers with that of the client
        (S.PREPARE_COMMIT, {"last_producer_epoch": 5, "next_producer_epoch": 7}),
        (
            S.PREPARE_ABORT,
            {"client_version": 0, "producer_epoch": 6, "next_producer_id": -1, "next_producer_epoch": -1},
        ),
    ],
)
def test_invalid_change_of_a_kept_transaction_is_not_written(state: TxnState, change: dict[str, object]) -> None:
    after = replace(KEPT, state=state)
    if state is not S.ONGOING:
        after = replace(after, producer_epoch=6, last_producer_epoch=6, next_producer_epoch=7, client_version=2)
        check_step(KEPT, after)
    with checked(), pytest.raises(InvariantViolation):
        check_step(KEPT, replace(after, **change))  # type: ignore[arg-type]


def test_complete_record_with_another_identity_than_that_of_the_client_is_not_written() -> None:
    before = replace(
        KEPT, state=S.PREPARE_COMMIT, producer_epoch=6, last_producer_epoch=6, next_producer_epoch=7, client_version=2
    )
    after = replace(
        before, state=S.COMPLETE_COMMIT, producer_epoch=7, next_producer_id=-1, next_producer_epoch=-1, partitions={}
    )
    check_step(before, after)
    for change in ({"producer_epoch": 6}, {"next_producer_id": PID, "next_producer_epoch": 8}):
        with checked(), pytest.raises(InvariantViolation):
            check_step(before, replace(after, **change))  # type: ignore[arg-type]


def test_completion_follows_the_state_and_not_the_command() -> None:
    rig = CoreRig(transaction(S.PREPARE_ABORT))
    decision = decide_complete(c.CompleteTransaction(ID, PID, 5), rig.core._context(COMMANDS[Event.INIT], NOW_MS))
    assert decision.records[0].memo.state is S.COMPLETE_ABORT
