"""Output of commands: tables, JSON, and errors as one line with an exit code."""

from __future__ import annotations

import errno
import json
from typing import TYPE_CHECKING, Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

from odradek.local.processes import USAGE

if TYPE_CHECKING:
    from collections.abc import Sequence

errors = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)
"""Standard error. An error message is one line of any length."""
console = Console(highlight=False, emoji=False)

FAILED = 1
"""Exit code if an operation failed."""
FULL_DISK_REMEDY = "free space on its file system, and repeat the command"
OS_REMEDIES = {
    errno.ENOSPC: FULL_DISK_REMEDY,
    errno.EDQUOT: f"{FULL_DISK_REMEDY}, or raise the quota of this user",
    errno.EROFS: "use a path on a file system that can be written",
    errno.EACCES: "give this user permission, or use another path",
    errno.EPERM: "give this user permission, or use another path",
}
"""Next step by the error of the operating system."""
COLUMNS_MAX = 2_000
"""Maximum columns of a table on an output that is narrower than the table."""


def usage_error(reason: str) -> NoReturn:
    """Print the reason why a command line is invalid, and raise typer.Exit with exit code 2."""
    errors.print(reason, markup=False)
    raise typer.Exit(USAGE)


def os_error_text(error: OSError) -> str:
    """Return an error of the operating system as one line: the file, the reason, and the next step if one is known.

    An error of a full disk that names no file is one of standard output: all other files of commands are named
    (`errors_naming`).
    """
    if error.errno is None or error.strerror is None:
        return str(error)
    is_full = error.errno in {errno.ENOSPC, errno.EDQUOT}
    subject = error.filename or ("standard output" if is_full else None)
    remedy = OS_REMEDIES.get(error.errno)
    if subject is None:
        return str(error)
    return f"{subject}: {error.strerror}" + (f"; {remedy}" if remedy else "")


def show(rows: list[dict[str, Any]], columns: Sequence[str], *, as_json: bool, empty: str) -> None:
    """Print rows as JSON, or as a table.

    Args:
        rows: Values by field name.
        columns: Fields of the table. Their names are its headings.
        as_json: Print all fields as JSON.
        empty: Text to print instead of a table without rows.
    """
    if as_json:
        print_json(rows)
        return
    if not rows:
        console.print(empty, markup=False)
        return
    table = table_of(rows, columns)
    # Print each row on one line, also to a pipe and on a narrow terminal: folded cells cannot be read.
    table_width = Measurement.get(console, console.options.update(max_width=COLUMNS_MAX), table).maximum
    Console(highlight=False, emoji=False, width=max(console.width, table_width)).print(table)


def fitting_table(rows: list[dict[str, Any]], columns: Sequence[str], optional: Sequence[str], width: int) -> Table:
    """Return a table without the first of the optional columns, so that it fits in a width if that is possible."""
    kept = list(columns)
    for name in ("", *optional):
        if name in kept:
            kept.remove(name)
        table = table_of(rows, kept)
        if Measurement.get(console, console.options.update(max_width=COLUMNS_MAX), table).maximum <= width:
            break
    return table


def table_of(rows: list[dict[str, Any]], columns: Sequence[str]) -> Table:
    """Return a table of these fields of the rows."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in columns:
        table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(*(escape(text(row.get(name))) for name in columns))
    return table


def text(value: Any) -> str:
    """Return a value as text. None is "-", and parts of lists and dictionaries are separated by spaces."""
    if value is None:
        return "-"
    if isinstance(value, list):
        return " ".join(text(item) for item in value)
    if isinstance(value, dict):
        return " ".join(f"{name}={text(item)}" for name, item in value.items())
    return str(value)


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=1, ensure_ascii=False))
