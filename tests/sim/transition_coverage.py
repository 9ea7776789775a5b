"""How often each cell of the tables of the machines has decided something in a run: what a campaign did not meet it did not try."""

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
"""All that can be met."""

_OF_GROUPS: Final = ("classic groups", "consumer groups")

GROUP_EVENTS: Final[tuple[tuple[str, str], ...]] = tuple(
    dict.fromkeys((table, event) for table, event, _ in CELLS if table in _OF_GROUPS)
)
"""Table and event: what a campaign with groups has to meet, all that there are."""
RARE_EVENTS: Final = (
    ("classic groups", "JOIN_STATIC_NEW_PROTOCOL"),
    ("classic groups", "NO_MEMBER_JOINED"),
    ("classic groups", "OVERSIZED"),
    ("consumer groups", "RESUBSCRIBED"),
    ("consumer groups", "NOT_REVOKED_RESUBSCRIBED"),
    ("consumer groups", "REBALANCE_TIMEOUT"),
)
"""Those of them that a few runs in a hundred meet."""


def unmet(counts: Mapping[Cell, int], *, rare: bool = True) -> list[str]:
    """The events of the tables of groups that should have been met and were not; `rare`: were there enough runs for the rare ones?"""
    met = {(table, event) for (table, event, _), visited in counts.items() if visited}
    wanted = [each for each in GROUP_EVENTS if rare or each not in RARE_EVENTS]
    return [f"{table}: {event}" for table, event in wanted if (table, event) not in met]


def visits() -> dict[Cell, int]:
    """Since this process began."""
    return {
        (table, event.name, state.name): visited
        for table, counts in _TABLES.items()
        for (state, event), visited in counts.visits.items()
    }


def since(before: Mapping[Cell, int]) -> dict[Cell, int]:
    """What has been visited after `before` was counted."""
    return {cell: visited - before[cell] for cell, visited in visits().items() if visited > before[cell]}


def report(counts: Mapping[Cell, int]) -> list[str]:
    """A line per table, and one per event with its states."""
    lines: list[str] = []
    for table in _TABLES:
        cells = [cell for cell in CELLS if cell[0] == table]
        met = sum(1 for cell in cells if counts.get(cell))
        lines.append(f"  {table}: {met} of {len(cells)} cells of the table")
        events = dict.fromkeys(event for _, event, _ in cells)
        lines += [
            f"    {event:<22} "
            + ", ".join(
                f"{state} {counts.get((table, event, state), 0)}" for _, named, state in cells if named == event
            )
            for event in events
        ]
    return lines
