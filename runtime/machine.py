"""A state machine as one table: the outcome of each event in each state.

The table is complete when it is made, at import: a missing or superfluous cell raises InvalidTable with its name. What an
outcome means (a next state, a refusal, an action) is up to the module that owns the table; the table holds no current state.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, Generic, Literal, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from odradek.protocol.errors import ErrorCode

S = TypeVar("S", bound=Enum)
S_contra = TypeVar("S_contra", bound=Enum, contravariant=True)
E = TypeVar("E", bound=Enum)
E_contra = TypeVar("E_contra", bound=Enum, contravariant=True)
O = TypeVar("O")  # noqa: E741  the outcome, as S is the state and E the event


class _Impossible(Enum):
    BUG = "bug"


BUG: Final = _Impossible.BUG
"""Outcome of an event that cannot occur in a state. Looking it up raises TransitionBug."""
Bug = Literal[_Impossible.BUG]


@dataclass(frozen=True, slots=True)
class To(Generic[S]):
    """Outcome: the machine enters `state`."""

    state: S


@dataclass(frozen=True, slots=True)
class Refuse:
    """Outcome: the request fails with `error`; the state does not change."""

    error: ErrorCode


class InvalidTable(AssertionError):
    """A transition table lacks cells, has cells too many, or has a transition that its machine does not allow."""


class TransitionBug(AssertionError):
    """An event occurred in a state where it cannot occur, or led to a state that its cell does not allow."""


class Observer(Protocol[S_contra, E_contra]):
    """Receives what a table decides. Tests and the simulator count the visits of each cell with one."""

    def on_look_up(self, state: S_contra, event: E_contra) -> None:
        """A cell is looked up, BUG cells included."""

    def on_next(self, state: S_contra, event: E_contra, after: S_contra) -> None:
        """A cell that allows several next states has led to `after`."""


class TransitionTable(Generic[S, E, O]):
    """The outcome of each event in each state: `cells[state, event]`.

    Hash state and event by identity (`__hash__ = object.__hash__`) where look-ups are frequent: Enum's own hash is Python code.
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
        """Raise InvalidTable unless `cells` has exactly one outcome for each pair of a state and an event.

        Raise it also for an event that is BUG in every state. `leads_to` gives the next states of outcomes that allow
        more than one; `check_next` holds the machine to them.
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
            raise InvalidTable(f"{name}: events that cannot occur in any state: {unused}")
        self.name = name
        self.cells = cells
        self.next_states: dict[tuple[S, E], tuple[S, ...]] = {
            cell: tuple(leads_to[outcome])
            for cell, outcome in cells.items()
            if leads_to and outcome is not BUG and outcome in leads_to
        }
        """Cells that allow more than one next state, and those states."""
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
        """Make a table of one row per event and one column per state, in the order of `columns` (default: of `states`)."""
        order = tuple(states) if columns is None else tuple(columns)
        wrong = [f"{event}: {len(row)}" for event, row in rows.items() if len(row) != len(order)]
        if wrong:
            raise InvalidTable(f"{name}: rows that do not have {len(order)} cells: {wrong}")
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
        """Report every look-up to `observer` from now on; None ends it."""
        self._observer = observer


def check_successors(table: TransitionTable[S, E, O], may_follow: Mapping[S, Sequence[S]]) -> None:
    """Raise InvalidTable if a `To` outcome enters a state from one that `may_follow[entered state]` does not list."""
    for (state, event), outcome in table.cells.items():
        if isinstance(outcome, To) and state not in may_follow[outcome.state]:
            raise InvalidTable(f"{table.name}: {event.name}: {outcome.state.name} cannot follow {state.name}")
