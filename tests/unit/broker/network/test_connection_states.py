"""Tables of a connection: which states it can enter, and that CLOSED is final."""

import pytest

from odradek.broker.network.connection_states import INTAKE, READING, Intake, IntakeEvent, Reading, ReadingEvent
from odradek.runtime.machine import BUG, TransitionBug


def test_closed_intake_stays_closed_on_every_event_that_can_still_arrive() -> None:
    outcomes = [INTAKE.cells[Intake.CLOSED, event] for event in IntakeEvent]

    assert {outcome for outcome in outcomes if outcome is not BUG} == {Intake.CLOSED}


def test_intake_opens_when_both_the_held_request_and_the_turn_are_over() -> None:
    for events in (
        (IntakeEvent.RELEASE, IntakeEvent.NEXT_TURN),
        (IntakeEvent.NEXT_TURN, IntakeEvent.RELEASE),
    ):
        state = Intake.HELD_YIELDED
        for event in events:
            assert state is not Intake.OPEN
            state = INTAKE.look_up(state, event)
        assert state is Intake.OPEN


def test_second_held_request_is_a_bug() -> None:
    with pytest.raises(TransitionBug, match="HOLD cannot occur in state HELD"):
        INTAKE.look_up(Intake.HELD, IntakeEvent.HOLD)


@pytest.mark.parametrize(
    ("first", "second", "state"),
    [
        (ReadingEvent.SELF_LIMIT, ReadingEvent.BUDGET, Reading.SELF_LIMITED),
        (ReadingEvent.BUDGET, ReadingEvent.SELF_LIMIT, Reading.OVER_BUDGET),
    ],
)
def test_first_cause_of_a_pause_is_kept(first: ReadingEvent, second: ReadingEvent, state: Reading) -> None:
    paused = READING.look_up(READING.look_up(Reading.ON, first), second)

    assert paused is state
    assert READING.look_up(paused, ReadingEvent.BELOW_LIMITS) is Reading.ON
