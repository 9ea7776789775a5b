"""Transition table of the broker lifecycle."""

from __future__ import annotations

import pytest

from odradek.cluster.lifecycle.transitions import OVER, RUNNING, SHUTTING_DOWN, TRANSITIONS, Event, State, Step
from odradek.runtime.machine import BUG


def test_every_state_is_in_one_phase() -> None:
    assert sorted((*RUNNING, *SHUTTING_DOWN, *OVER), key=list(State).index) == list(State)


@pytest.mark.parametrize("state", OVER)
def test_no_event_is_possible_after_the_end(state: State) -> None:
    assert {TRANSITIONS.cells[state, event] for event in Event} == {BUG}


def test_broker_in_shutdown_neither_registers_nor_fails() -> None:
    for state in SHUTTING_DOWN:
        steps = [TRANSITIONS.cells[state, event] for event in Event]
        entered = {step.state for step in steps if isinstance(step, Step)}
        assert entered <= {*SHUTTING_DOWN, State.ENDED}


def test_every_state_is_reachable() -> None:
    entered = {step.state for step in TRANSITIONS.cells.values() if isinstance(step, Step)}
    assert entered == set(State)
