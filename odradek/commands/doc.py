"""Generate the tables of docs/command-line.md: the commands, the fields of each, and the meaning of each field.

`python -m odradek.commands.doc` prints the page, `--write` writes it, `--check` fails if the committed page differs.
"""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from odradek import generated_pages
from odradek.commands.application import COMMANDS, OTHER_PANEL, PANELS, app, panel_of
from odradek.commands.outputs import Output
from odradek.commands.vocabulary import MEANINGS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from typer._click.core import Command  # Typer's copy of click has no public name

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "command-line.md"
MARKUP: Final = re.compile(r"\[/?bold\]")


def commands(command: Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Command]]:
    """Yield all commands below a command, with the words that call them."""
    children: dict[str, Command] = getattr(command, "commands", {})
    if not children:
        yield path, command
    for name, child in children.items():
        yield from commands(child, (*path, name))


def all_commands() -> list[tuple[tuple[str, ...], Command]]:
    """Return all commands of `odradek`, with the words that call them."""
    return list(commands(typer.main.get_command(app)))


def outputs() -> list[Output]:
    """Return the outputs of all command modules, in the order of the commands."""
    modules = dict.fromkeys(module for module, _ in COMMANDS.values()) | {"status_rows": None}
    found = [
        value
        for module in modules
        for value in vars(import_module(f"odradek.commands.{module}")).values()
        if isinstance(value, Output)
    ]
    order = [" ".join(path) for path, _ in all_commands()]
    return sorted(dict.fromkeys(found), key=lambda output: (order.index(output.command), output.within))


def table_of_commands() -> str:
    """Return the commands in groups, each with the first sentence of its help."""
    rows: dict[str, list[str]] = {panel: [] for panel in (*PANELS, OTHER_PANEL)}
    for path, command in all_commands():
        text = MARKUP.sub("", " ".join((command.help or "").partition("\n\n")[0].split()))
        rows[panel_of(path[0])].append(f"| `{' '.join(path)}` | {text} |")
    head = ("| command | what it does |", "|---|---|")
    return "\n\n".join("\n".join((f"### {panel}", "", *head, *lines)) for panel, lines in rows.items() if lines)


def table_of_outputs() -> str:
    """Return the fields of each command that has `--json`."""
    lines = ["| command | JSON | fields of table and JSON | fields of the JSON only |", "|---|---|---|---|"]
    for output in outputs():
        form = f"in `{output.within}`: {output.shape.value}" if output.within else output.shape.value
        lines.append(f"| `{output.command}` | {form} | {listed(output.table)} | {listed(output.more)} |")
    return "\n".join(lines)


def listed(names: Sequence[str]) -> str:
    """Return names as code, separated by commas."""
    return ", ".join(f"`{name}`" for name in names)


def table_of_fields() -> str:
    """Return the meaning of each field that a command prints, in alphabetical order."""
    used = sorted({name for output in outputs() for name in output.names})
    rows = [f"| `{name}` | {MEANINGS[name].text} | {MEANINGS[name].kafka or 'own'} |" for name in used]
    return "\n".join(["| field | meaning | Kafka |", "|---|---|---|", *rows])


def page(text: str) -> str:
    """Return the page with its tables generated."""
    for source, generate in (
        ("the help of the commands", table_of_commands),
        ("the outputs of the commands", table_of_outputs),
        ("odradek/commands/vocabulary.py", table_of_fields),
    ):
        text = generated_pages.with_generated(PAGE, text, source, generate())
    return text


if __name__ == "__main__":
    sys.exit(generated_pages.main(sys.argv[1:], {PAGE: page(PAGE.read_text())}, "odradek.commands.doc"))
