"""Define a state machine as one table: the outcome of each event in each state.

A table is checked when its module is imported: a missing or superfluous cell raises InvalidTable with its name. The
module that owns the table defines its outcomes, such as a next state, a refusal or an action. The table holds no
current state.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, Generic, Literal, Protocol, TypeVar

from odradek.frozen import frozen_dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from odradek.protocol.errors import ErrorCode

S = TypeVar("S", bound=Enum)
S_contra = TypeVar("S_contra", bound=Enum, contravariant=True)
E = TypeVar("E", bound=Enum)
E_contra = TypeVar("E_contra", bound=Enum, contravariant=True)
O = TypeVar("O")  # noqa: E741  O is the outcome, as S is the state and E the event


class _Impossible(Enum):
    BUG = "bug"


BUG: Final = _Impossible.BUG
"""Outcome of an event that cannot occur in a state. `look_up` raises TransitionBug for it."""
Bug = Literal[_Impossible.BUG]


@frozen_dataclass(frozen=True, slots=True)
class To(Generic[S]):
    """Outcome: the machine enters `state`."""

    state: S


@frozen_dataclass(frozen=True, slots=True)
class Refuse:
    """Outcome: the request fails with `error`; the state does not change."""

    error: ErrorCode


class InvalidTable(AssertionError):
    """A transition table has missing or superfluous cells, or a transition that its machine does not allow."""


class TransitionBug(AssertionError):
    """An event occurred in a state where it cannot occur, or led to a next state that its cell does not allow."""


class Observer(Protocol[S_contra, E_contra]):
    """Callbacks for the use of a table. Tests and the simulator count the visits of each cell with them."""

    def on_look_up(self, state: S_contra, event: E_contra) -> None:
        """Note that a cell is looked up, BUG cells included."""

    def on_next(self, state: S_contra, event: E_contra, after: S_contra) -> None:
        """Note that a cell with several allowed next states has led to `after`."""


class TransitionTable(Generic[S, E, O]):
    """Outcome of each event in each state: `cells[state, event]`.

    If look-ups are frequent, the enums of states and events should set `__hash__ = object.__hash__`: the hash of Enum
    is slow Python code.
    """

    __slots__ = ("_observer", "cells", "name", "next_states")

    def __init__(
        self,
        name: str,
        states: type[S],
        events: type[E],
        cells: Mapping[tuple[S, E], O | Bug],
        *,
        leads_to: Mapping[O, Sequence[S]] | None = None,
    ) -> None:
        """Create a table. `leads_to` has the allowed next states of outcomes with several; `check_next` checks them.

        Raises:
            InvalidTable: `cells` lacks a pair of state and event or has an unknown one, or an event is BUG in all
                states.
        """
        expected = {(state, event) for state in states for event in events}
        missing = [
            f"{event.name} in {state.name}" for state in states for event in events if (state, event) not in cells
        ]
        superfluous = [f"{event} in {state}" for state, event in cells if (state, event) not in expected]
        if missing or superfluous:
            raise InvalidTable(f"{name}: missing cells: {missing}; superfluous cells: {superfluous}")
        unused = [event.name for event in events if all(cells[state, event] is BUG for state in states)]
        if unused:
            raise InvalidTable(f"{name}: these events cannot occur in any state: {unused}")
        self.name = name
        self.cells = cells
        self.next_states: dict[tuple[S, E], tuple[S, ...]] = {
            cell: tuple(leads_to[outcome])
            for cell, outcome in cells.items()
            if leads_to and outcome is not BUG and outcome in leads_to
        }
        """Cells with several allowed next states, and those states."""
        self._observer: Observer[S, E] | None = None

    @classmethod
    def of_rows(
        cls,
        name: str,
        states: type[S],
        events: type[E],
        rows: Mapping[E, Sequence[O | Bug]],
        *,
        columns: Sequence[S] | None = None,
        leads_to: Mapping[O, Sequence[S]] | None = None,
    ) -> TransitionTable[S, E, O]:
        """Create a table from one row per event with one cell per state.

        `columns` is the order of the states in a row; the default is the order of `states`.

        Raises:
            InvalidTable: A row has too few or too many cells, or as for the constructor.
        """
        order = tuple(states) if columns is None else tuple(columns)
        wrong = [f"{event}: {len(row)}" for event, row in rows.items() if len(row) != len(order)]
        if wrong:
            raise InvalidTable(f"{name}: these rows do not have {len(order)} cells: {wrong}")
        cells = {
            (state, event): outcome for event, row in rows.items() for state, outcome in zip(order, row, strict=True)
        }
        return cls(name, states, events, cells, leads_to=leads_to)

    def look_up(self, state: S, event: E) -> O:
        """Return the outcome of `event` in `state`. Raise TransitionBug if the cell is BUG."""
        outcome = self.cells[state, event]
        if self._observer is not None:
            self._observer.on_look_up(state, event)
        if outcome is BUG:
            raise TransitionBug(f"{self.name}: event {event.name} cannot occur in state {state.name}")
        return outcome

    def check_next(self, state: S, event: E, after: S) -> None:
        """Raise TransitionBug unless the cell allows `after` as its next state."""
        if after not in self.next_states.get((state, event), ()):
            raise TransitionBug(f"{self.name}: event {event.name} cannot lead from {state.name} to {after.name}")
        if self._observer is not None:
            self._observer.on_next(state, event, after)

    def observe(self, observer: Observer[S, E] | None) -> None:
        """Report each look-up to `observer`, in place of the previous observer; None stops the reports."""
        self._observer = observer


def check_successors(table: TransitionTable[S, E, O], valid_previous: Mapping[S, Sequence[S]]) -> None:
    """Raise InvalidTable if a `To` outcome enters a state from one that `valid_previous[entered state]` lacks."""
    for (state, event), outcome in table.cells.items():
        if isinstance(outcome, To) and state not in valid_previous[outcome.state]:
            raise InvalidTable(f"{table.name}: {event.name}: {outcome.state.name} cannot follow {state.name}")
