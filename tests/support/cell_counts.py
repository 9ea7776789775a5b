"""Count how often each cell of a transition table is looked up, and to which state it leads, in this process."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from odradek.runtime.machine import BUG

if TYPE_CHECKING:
    from odradek.runtime.machine import TransitionTable

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)


class CellCounts(Generic[S, E]):
    """Counts of one table since its first `count`. BUG cells are counted, too."""

    def __init__(self, table: TransitionTable[S, E, Any]) -> None:
        self.visits: dict[tuple[S, E], int] = dict.fromkeys(table.cells, 0)
        self.arrivals: dict[tuple[S, E, S], int] = {
            (state, event, after): 0 for (state, event), nexts in table.next_states.items() for after in nexts
        }
        self.possible = tuple(cell for cell, outcome in table.cells.items() if outcome is not BUG)

    def on_look_up(self, state: S, event: E) -> None:
        self.visits[state, event] += 1

    def on_next(self, state: S, event: E, after: S) -> None:
        self.arrivals[state, event, after] += 1


_counts: dict[str, CellCounts[Any, Any]] = {}


def count(table: TransitionTable[S, E, Any]) -> CellCounts[S, E]:
    """Start to count the cells of `table`; return the counts that already run, if there are some."""
    if table.name not in _counts:
        _counts[table.name] = CellCounts(table)
        table.observe(_counts[table.name])
    return _counts[table.name]
