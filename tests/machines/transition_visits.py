"""Visits of the cells of transition tables by the walks of the state machines, summarized at the end of a test run.

Each pytest worker records its own. tests/conftest.py merges them and prints a line per table, and with `-v` a line per
event.
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
    """Record the reachable cells (event, state, visits) of a table. Return (state, event) of those without a visit."""
    unmet = []
    for event, state, visits in cells:
        record((table, event, state, visits))
        if not visits:
            unmet.append((state, event))
    return unmet


def record(row: Row) -> None:
    """Add the visits of one cell, of this process or of another pytest worker."""
    table, event, state, visits = row
    _rows[table, event, state] = _rows.get((table, event, state), 0) + visits


def noted() -> list[Row]:
    """Return all recorded rows, in a form that another process can read."""
    return [(*cell, visits) for cell, visits in _rows.items()]


def lines(rows: Iterable[Row], *, whole: bool = False) -> list[str]:
    """Return a line per table with its least visited cells. With `whole`, also a line per event."""
    tables: dict[str, list[Row]] = {}
    for row in rows:
        tables.setdefault(row[0], []).append(row)
    summary: list[str] = []
    for table, cells in sorted(tables.items()):
        visited_count = sum(1 for row in cells if row[3])
        total = sum(row[3] for row in cells)
        rarest = sorted(cells, key=lambda row: row[3])[:RAREST_SHOWN]
        least = ", ".join(f"{event} in {state} {visits}" for _, event, state, visits in rarest)
        summary.append(f"{table}: {visited_count} of {len(cells)} cells visited, {total:,} visits; least {least}")
        events: dict[str, list[str]] = {}
        for _, event, state, visits in cells if whole else ():
            events.setdefault(event, []).append(f"{state} {visits}")
        summary += [f"    {event:<22} {', '.join(states)}" for event, states in events.items()]
    return summary
