"""Help texts of the command line: width and examples."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from odradek.commands.application import COMMANDS as MAIN_COMMANDS
from odradek.commands.application import app
from odradek.commands.doc import all_commands

if TYPE_CHECKING:
    from typer._click.core import Command  # Typer's copy of click has no public name

TERMINAL_COLUMNS = 80
TEXT_COLUMNS = TERMINAL_COLUMNS - 2


COMMANDS = all_commands()


@pytest.mark.parametrize(("path", "command"), COMMANDS, ids=[" ".join(path) for path, _ in COMMANDS])
def test_help_fits_80_columns_and_its_examples_are_not_broken(path: tuple[str, ...], command: Command) -> None:
    call = f"odradek {' '.join(path)}"
    examples = [line.strip() for line in (command.help or "").splitlines() if call in line]
    assert examples, "the help has no example"
    _, *text_lines = inspect.cleandoc(command.help or "").splitlines()  # Typer wraps the first paragraph
    assert [line for line in text_lines if len(line) > TEXT_COLUMNS] == [], (
        "Typer keeps the line breaks of all paragraphs except the first"
    )
    printed = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": str(TERMINAL_COLUMNS), "NO_COLOR": "1"})
    lines = [line.rstrip() for line in printed.stdout.splitlines()]
    assert [line for line in lines if len(line) > TERMINAL_COLUMNS or "…" in line] == []
    assert [example for example in examples if not any(line.strip() == example for line in lines)] == []


@pytest.mark.parametrize("path", [(), *((name,) for name in MAIN_COMMANDS)], ids=" ".join)
def test_help_of_the_groups_fits_80_columns(path: tuple[str, ...]) -> None:
    printed = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": str(TERMINAL_COLUMNS), "NO_COLOR": "1"})
    assert printed.exit_code == 0
    lines = [line.rstrip() for line in printed.stdout.splitlines()]
    assert [line for line in lines if len(line) > TERMINAL_COLUMNS or "…" in line] == []


def test_commands_that_talk_to_a_cluster_take_client_properties() -> None:
    options = {path: {name for each in command.params for name in each.opts} for path, command in COMMANDS}
    connecting = {path for path, names in options.items() if "--bootstrap" in names or path == ("status",)}
    assert len(connecting) > 15
    assert [path for path in connecting if "--command-config" not in options[path]] == []
