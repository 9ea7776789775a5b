"""Output of commands: tables, JSON, and a failure as one line with an exit code."""

from __future__ import annotations

import json
from typing import Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

from odradek.local.processes import USAGE

errors = Console(stderr=True, highlight=False, soft_wrap=True)  # a reason is one line, however long
console = Console(highlight=False)

FAILED = 1
INTERRUPTED = 130
"""The exit code after Ctrl-C, as shells have it."""
COLUMNS_MAX = 2_000


def usage(reason: str) -> NoReturn:
    """Raises typer.Exit with the code of a command line that asks for what cannot be."""
    errors.print(reason, markup=False)
    raise typer.Exit(USAGE)


def counted(count: int, thing: str) -> str:
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def show(rows: list[dict[str, Any]], columns: dict[str, str], *, as_json: bool, empty: str) -> None:
    """Print rows as JSON, or as a table with the given titles (field name -> title)."""
    if as_json:
        print_json(rows)
        return
    if not rows:
        console.print(empty, markup=False)
        return
    table = table_of(rows, columns)
    # A row is one line, also in a pipe and on a narrow terminal, which may break it: folded columns cannot be read.
    needed = Measurement.get(console, console.options.update(max_width=COLUMNS_MAX), table).maximum
    Console(highlight=False, width=max(console.width, needed)).print(table)


def table_of(rows: list[dict[str, Any]], columns: dict[str, str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in columns.values():
        table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(*(escape(text(row.get(name))) for name in columns))
    return table


def text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, list):
        return " ".join(text(item) for item in value)
    if isinstance(value, dict):
        return " ".join(f"{name}={text(item)}" for name, item in value.items())
    return str(value)


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=1, ensure_ascii=False))
