"""The generic transition table."""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.runtime.machine import BUG, Bug, InvalidTable, Refuse, To, TransitionBug, TransitionTable, check_successors


class Door(Enum):
    OPEN = "open"
    CLOSED = "closed"


class Event(Enum):
    PUSH = "push"
    LOCK = "lock"


Outcome: TypeAlias = To[Door] | Refuse
Cells: TypeAlias = dict[tuple[Door, Event], Outcome | Bug]

REFUSED = Refuse(ErrorCode.INVALID_REQUEST)
CELLS: Cells = {
    (Door.OPEN, Event.PUSH): To(Door.CLOSED),
    (Door.OPEN, Event.LOCK): BUG,
    (Door.CLOSED, Event.PUSH): To(Door.OPEN),
    (Door.CLOSED, Event.LOCK): REFUSED,
}

STAYS_CLOSED: dict[Outcome, tuple[Door, ...]] = {REFUSED: (Door.CLOSED,)}


class Recorder:
    def __init__(self) -> None:
        self.seen: list[tuple[Enum, ...]] = []

    def on_look_up(self, state: Door, event: Event) -> None:
        self.seen.append((state, event))

    def on_next(self, state: Door, event: Event, after: Door) -> None:
        self.seen.append((state, event, after))


def table(cells: Cells = CELLS) -> TransitionTable[Door, Event, Outcome]:
    return TransitionTable("door", Door, Event, cells)


def test_look_up_returns_the_outcome_of_the_cell() -> None:
    assert table().look_up(Door.OPEN, Event.PUSH) == To(Door.CLOSED)
    assert table().look_up(Door.CLOSED, Event.LOCK) is REFUSED


def test_look_up_of_a_bug_cell_raises_with_machine_event_and_state() -> None:
    with pytest.raises(TransitionBug, match="door: event LOCK cannot occur in state OPEN"):
        table().look_up(Door.OPEN, Event.LOCK)


def test_table_with_missing_cells_is_refused_and_names_them() -> None:
    cells = {cell: outcome for cell, outcome in CELLS.items() if cell[1] is not Event.LOCK}
    with pytest.raises(InvalidTable, match=r"missing cells: \['LOCK in OPEN', 'LOCK in CLOSED'\]"):
        table(cells)


def test_table_with_superfluous_cells_is_refused_and_names_them() -> None:
    class Other(Enum):
        AJAR = "ajar"

    with pytest.raises(InvalidTable, match=r"superfluous cells: \['Event.PUSH in Other.AJAR'\]"):
        table({**CELLS, (Other.AJAR, Event.PUSH): REFUSED})  # type: ignore[dict-item]  # the table must refuse this


def test_table_with_an_event_that_never_occurs_is_refused() -> None:
    with pytest.raises(InvalidTable, match=r"cannot occur in any state: \['LOCK'\]"):
        table({**CELLS, (Door.CLOSED, Event.LOCK): BUG})


def test_rows_follow_the_order_of_the_columns() -> None:
    rows: dict[Event, tuple[Outcome | Bug, ...]] = {
        Event.PUSH: (To(Door.CLOSED), To(Door.OPEN)),
        Event.LOCK: (BUG, REFUSED),
    }
    assert TransitionTable.of_rows("door", Door, Event, rows).cells == CELLS
    turned = {event: tuple(reversed(row)) for event, row in rows.items()}
    columns = (Door.CLOSED, Door.OPEN)
    assert TransitionTable.of_rows("door", Door, Event, turned, columns=columns).cells == CELLS


def test_row_with_too_few_cells_is_refused_with_its_name() -> None:
    rows: dict[Event, tuple[Outcome | Bug, ...]] = {Event.PUSH: (REFUSED,), Event.LOCK: (REFUSED, REFUSED)}
    with pytest.raises(InvalidTable, match=r"rows do not have 2 cells: \['Event.PUSH: 1'\]"):
        TransitionTable.of_rows("door", Door, Event, rows)


def test_outcome_that_enters_a_state_from_a_wrong_one_is_refused() -> None:
    check_successors(table(), {Door.OPEN: (Door.CLOSED,), Door.CLOSED: (Door.OPEN,)})
    with pytest.raises(InvalidTable, match="door: PUSH: CLOSED cannot follow OPEN"):
        check_successors(table(), {Door.OPEN: (Door.CLOSED,), Door.CLOSED: ()})


def test_next_state_that_the_outcome_does_not_allow_is_refused() -> None:
    cells = TransitionTable("door", Door, Event, CELLS, leads_to=STAYS_CLOSED)
    cells.check_next(Door.CLOSED, Event.LOCK, Door.CLOSED)
    with pytest.raises(TransitionBug, match="event LOCK cannot lead from CLOSED to OPEN"):
        cells.check_next(Door.CLOSED, Event.LOCK, Door.OPEN)
    with pytest.raises(TransitionBug, match="event PUSH cannot lead from OPEN to OPEN"):
        cells.check_next(Door.OPEN, Event.PUSH, Door.OPEN)


def test_observer_receives_look_ups_and_next_states_until_it_is_removed() -> None:
    cells = TransitionTable("door", Door, Event, CELLS, leads_to=STAYS_CLOSED)
    recorder = Recorder()
    cells.observe(recorder)
    cells.look_up(Door.CLOSED, Event.LOCK)
    cells.check_next(Door.CLOSED, Event.LOCK, Door.CLOSED)
    with pytest.raises(TransitionBug):
        cells.look_up(Door.OPEN, Event.LOCK)
    cells.observe(None)
    cells.look_up(Door.CLOSED, Event.LOCK)
    assert recorder.seen == [
        (Door.CLOSED, Event.LOCK),
        (Door.CLOSED, Event.LOCK, Door.CLOSED),
        (Door.OPEN, Event.LOCK),
    ]
