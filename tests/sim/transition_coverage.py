"""Number of decisions per cell of the state machines in a run. A cell without visits was not tested by the campaign."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from odradek.coordinator.group.classic import transitions as classic
from odradek.coordinator.group.modern import transitions as consumer
from odradek.coordinator.txn import transitions as txn
from tests.support.cell_counts import count

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.cell_counts import CellCounts

Cell: TypeAlias = tuple[str, str, str]
"""Table, event and state."""

_TABLES: Final[dict[str, CellCounts[Any, Any]]] = {
    table.name: count(table) for table in (txn.TRANSITIONS, classic.TRANSITIONS, consumer.TRANSITIONS)
}
CELLS: Final[tuple[Cell, ...]] = tuple(
    (table, event.name, state.name) for table, counts in _TABLES.items() for state, event in counts.possible
)
"""All possible cells."""

_OF_GROUPS: Final = ("classic groups", "consumer groups")

GROUP_EVENTS: Final[tuple[tuple[str, str], ...]] = tuple(
    dict.fromkeys((table, event) for table, event, _ in CELLS if table in _OF_GROUPS)
)
"""Table and event of every event that a campaign with groups has to reach."""
RARE_EVENTS: Final = (
    ("classic groups", "JOIN_STATIC_NEW_PROTOCOL"),
    ("classic groups", "NO_MEMBER_JOINED"),
    ("classic groups", "OVERSIZED"),
    ("consumer groups", "RESUBSCRIBED"),
    ("consumer groups", "NOT_REVOKED_RESUBSCRIBED"),
    ("consumer groups", "REBALANCE_TIMEOUT"),
)
"""Events of GROUP_EVENTS that occur in a few runs of a hundred."""


def unmet(counts: Mapping[Cell, int], *, rare: bool = True) -> list[str]:
    """Return the events of the group tables that did not occur. With `rare` False, rare events are not expected."""
    visited_events = {(table, event) for (table, event, _), visited in counts.items() if visited}
    expected = [event for event in GROUP_EVENTS if rare or event not in RARE_EVENTS]
    return [f"{table}: {event}" for table, event in expected if (table, event) not in visited_events]


def visits() -> dict[Cell, int]:
    """Return the visits of each cell since the process started."""
    return {
        (table, event.name, state.name): visited
        for table, counts in _TABLES.items()
        for (state, event), visited in counts.visits.items()
    }


def since(before: Mapping[Cell, int]) -> dict[Cell, int]:
    """Return the visits of each cell since `before` was counted."""
    return {cell: visited - before[cell] for cell, visited in visits().items() if visited > before[cell]}


def report(counts: Mapping[Cell, int]) -> list[str]:
    """A line per table, and one per event with its states."""
    lines: list[str] = []
    for table in _TABLES:
        cells = [cell for cell in CELLS if cell[0] == table]
        visited_events = sum(1 for cell in cells if counts.get(cell))
        lines.append(f"  {table}: {visited_events} of {len(cells)} cells of the table")
        events = dict.fromkeys(event for _, event, _ in cells)
        lines += [
            f"    {event:<22} "
            + ", ".join(
                f"{state} {counts.get((table, event, state), 0)}" for _, named, state in cells if named == event
            )
            for event in events
        ]
    return lines
