"""How often the walks of the machines have visited each cell of the tables: what the end of a test run says of them.

Processes that share a run note their own; `tests/conftest.py` brings them together and prints them, a line per table, and with `-v` one per event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

Row = tuple[str, str, str, int]
"""Table, event, state, visits."""
RAREST_SHOWN = 3
_rows: dict[tuple[str, str, str], int] = {}


def note(table: str, cells: Iterable[tuple[str, str, int]]) -> list[tuple[str, str]]:
    """Take down the cells (event, state, visits) of a table that can be met; those that were not."""
    unmet = []
    for event, state, visits in cells:
        record((table, event, state, visits))
        if not visits:
            unmet.append((state, event))
    return unmet


def record(row: Row) -> None:
    """Also what another process has noted."""
    table, event, state, visits = row
    _rows[table, event, state] = _rows.get((table, event, state), 0) + visits


def noted() -> list[Row]:
    """Everything so far, in a form that can be handed to another process."""
    return [(*cell, visits) for cell, visits in _rows.items()]


def lines(rows: Iterable[Row], *, whole: bool = False) -> list[str]:
    """A line per table with what was visited least; with `whole` also one per event."""
    tables: dict[str, list[Row]] = {}
    for row in rows:
        tables.setdefault(row[0], []).append(row)
    found: list[str] = []
    for table, cells in sorted(tables.items()):
        met = sum(1 for row in cells if row[3])
        total = sum(row[3] for row in cells)
        rarest = sorted(cells, key=lambda row: row[3])[:RAREST_SHOWN]
        least = ", ".join(f"{event} in {state} {visits}" for _, event, state, visits in rarest)
        found.append(f"{table}: {met} of {len(cells)} cells visited, {total:,} visits; least {least}")
        events: dict[str, list[str]] = {}
        for _, event, state, visits in cells if whole else ():
            events.setdefault(event, []).append(f"{state} {visits}")
        found += [f"    {event:<22} {', '.join(states)}" for event, states in events.items()]
    return found
