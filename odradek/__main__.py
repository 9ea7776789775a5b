"""Command line of Odradek: `odradek COMMAND` or `python -m odradek COMMAND`."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Final

import typer
from typer.core import TyperGroup

from odradek.local.output import FAILED, errors
from odradek.source_commit import source_commit
from odradek.version import __version__

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from typer._click.core import Command, Context  # Typer's copy of click has no public name

COMMANDS: Final = {
    "up": ("up", "up"),
    "start": ("up", "start"),
    "restart": ("local", "restart"),
    "down": ("local", "down"),
    "status": ("status", "status"),
    "health": ("health", "health"),
    "logs": ("logs", "logs"),
    "console": ("console", "console"),
    "broker": ("local", "broker"),
    "use": ("use", "use"),
    "topics": ("topics", "app"),
    "partitions": ("partitions", "app"),
    "records": ("deletion", "app"),
    "groups": ("groups", "app"),
    "txns": ("txns", "app"),
    "producers": ("producers", "app"),
    "configs": ("configs", "app"),
    "quotas": ("quotas", "app"),
    "acls": ("acls", "app"),
    "users": ("users", "app"),
    "tokens": ("tokens", "app"),
    "features": ("features", "app"),
    "brokers": ("features", "brokers"),
    "consume": ("records", "consume"),
    "produce": ("records", "produce"),
    "dump": ("dump", "dump"),
}
"""Module of `odradek.commands` and name of its function or Typer, by command."""


class Commands(TyperGroup):
    """The commands of `odradek`. The module of a command is imported when the command is used."""

    @property
    def commands(self) -> MutableMapping[str, Command]:
        """All commands by name, for suggestions after a name that is wrong."""
        return {name: load(name) for name in COMMANDS}

    @commands.setter
    def commands(self, _: MutableMapping[str, Command]) -> None:
        """Ignore the empty commands of the base class."""

    def list_commands(self, ctx: Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        return load(cmd_name) if cmd_name in COMMANDS else None


def load(name: str) -> Command:
    """Import the module of a command, and return the command."""
    module, attribute = COMMANDS[name]
    found = getattr(import_module(f"odradek.commands.{module}"), attribute)
    command: Command
    if isinstance(found, typer.Typer):
        command = typer.main.get_group(found)
    else:
        single = typer.Typer(add_completion=False, rich_markup_mode="rich")
        single.command(name)(found)
        command = typer.main.get_command(single)
    command.name = name
    return command


app = typer.Typer(
    cls=Commands,
    help="Odradek: a Kafka-compatible broker cluster with transactions.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def show_version(requested: bool) -> None:
    if requested:
        print(f"odradek {__version__} (commit {source_commit()})")
        raise typer.Exit


@app.callback()
def odradek(
    _: Annotated[
        bool, typer.Option("--version", help="Show version and commit.", callback=show_version, is_eager=True)
    ] = False,
) -> None:
    pass


def main() -> None:
    try:
        app(prog_name="odradek")
    except OSError as error:  # standard output cannot be written, such as on a full disk; Typer handles a closed pipe
        # Python flushes standard output at exit, and would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        errors.print(str(error), markup=False)
        sys.exit(FAILED)


if __name__ == "__main__":
    main()
