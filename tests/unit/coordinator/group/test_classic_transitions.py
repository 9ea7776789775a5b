"""The transition table of classic groups."""

from __future__ import annotations

import pytest

from odradek.coordinator.group import transitions_doc
from odradek.coordinator.group.classic.transitions import (
    MAY_FOLLOW,
    TRANSITIONS,
    ClassicState,
    Event,
    look_up,
)
from odradek.protocol.errors import ErrorCode
from odradek.runtime.machine import BUG, InvalidTable, To, TransitionBug, TransitionTable, check_successors
from tests.support.cell_counts import count

S = ClassicState


def test_states_have_kafkas_names() -> None:
    assert [state.value for state in S] == ["Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead"]


def test_table_without_a_cell_is_invalid() -> None:
    cells = dict(TRANSITIONS.cells)
    del cells[S.DEAD, Event.LEAVE]
    with pytest.raises(InvalidTable, match="LEAVE in DEAD"):
        TransitionTable("classic groups", S, Event, cells)


def test_table_with_an_impossible_transition_is_invalid() -> None:
    cells = {**TRANSITIONS.cells, (S.EMPTY, Event.LEAVE): To(S.STABLE)}
    with pytest.raises(InvalidTable, match="STABLE cannot follow EMPTY"):
        check_successors(TransitionTable("classic groups", S, Event, cells), MAY_FOLLOW)


def test_every_state_is_entered_and_has_kafkas_predecessors() -> None:
    entered = {action.state for action in TRANSITIONS.cells.values() if isinstance(action, To)}
    assert entered == set(S)
    kafka = {
        S.EMPTY: {S.PREPARING},
        S.PREPARING: {S.STABLE, S.COMPLETING, S.EMPTY},
        S.COMPLETING: {S.PREPARING},
        S.STABLE: {S.COMPLETING},
    }
    for state, before in kafka.items():
        assert set(MAY_FOLLOW[state]) - {S.DEAD, state} == before


def test_impossible_event_raises_transition_bug() -> None:
    with pytest.raises(TransitionBug, match="HEARTBEAT cannot occur in state EMPTY"):
        look_up(S.EMPTY, Event.HEARTBEAT)


def test_member_requests_cannot_occur_in_groups_without_members() -> None:
    for event in (Event.JOIN_LEADER, Event.JOIN_FOLLOWER, Event.SYNC_LEADER, Event.HEARTBEAT, Event.COMMIT_MEMBER):
        assert TRANSITIONS.cells[S.EMPTY, event] is BUG
        assert TRANSITIONS.cells[S.DEAD, event] is BUG


def test_visits_are_counted() -> None:
    visits = count(TRANSITIONS).visits
    before = visits[S.STABLE, Event.HEARTBEAT]
    look_up(S.STABLE, Event.HEARTBEAT)
    assert visits[S.STABLE, Event.HEARTBEAT] == before + 1


def test_page_is_generated_from_the_table() -> None:
    generated = transitions_doc.classic()
    assert "Stable --> PreparingRebalance: JOIN_NEW" in generated
    assert "| Heartbeat | - | REBALANCE_IN_PROGRESS | response | response | - |" in generated
    assert transitions_doc.main(["--check"]) == 0
    with pytest.raises(ValueError, match="no marker lines"):
        transitions_doc.page("nothing")
    assert ErrorCode.REBALANCE_IN_PROGRESS.name in transitions_doc.page(transitions_doc.PAGE.read_text())
