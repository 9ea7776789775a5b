"""The application of the command line: all commands of `odradek`, and the groups in which its help lists them."""

from __future__ import annotations

import codecs
import os
import sys
from importlib import import_module
from io import TextIOWrapper
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperGroup

from odradek.commands.late_types import convert_late
from odradek.interruption import INTERRUPTED, MESSAGE
from odradek.local.output import FAILED, errors, os_error_text
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
    "logs": ("logs", "logs"),
    "console": ("console", "console"),
    "broker": ("local", "broker"),
    "dump": ("dump", "dump"),
    "use": ("use", "use"),
    "status": ("status", "status"),
    "health": ("health", "health"),
    "brokers": ("features", "brokers"),
    "features": ("features", "app"),
    "configs": ("configs", "app"),
    "quotas": ("quotas", "app"),
    "topics": ("topics", "app"),
    "partitions": ("partitions", "app"),
    "records": ("deletion", "app"),
    "consume": ("records", "consume"),
    "produce": ("records", "produce"),
    "groups": ("groups", "app"),
    "txns": ("txns", "app"),
    "producers": ("producers", "app"),
    "acls": ("acls", "app"),
    "users": ("users", "app"),
    "tokens": ("tokens", "app"),
}
"""Module of `odradek.commands` and name of its function or Typer, by command."""
PANELS: Final = {
    "Local cluster": ("up", "start", "restart", "down", "logs", "broker", "dump"),
    "Any cluster": ("use", "status", "health", "console", "brokers", "features", "configs", "quotas"),
    "Topics and records": ("topics", "partitions", "records", "consume", "produce"),
    "Groups and transactions": ("groups", "txns", "producers"),
    "Security": ("acls", "users", "tokens"),
}
"""Commands by the heading of the help under which they are listed."""
OTHER_PANEL: Final = "Other"
ESCAPES: Final = "odradek.escapes"
"""Name of the error handler of both outputs."""
COMPLETION_VARIABLE: Final = "_ODRADEK_COMPLETE"
"""Variable by which the completion scripts of Typer call this command."""


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

    def invoke(self, ctx: Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # of a command that has no other end after Ctrl-C
            errors.print(MESSAGE)
            raise typer.Exit(INTERRUPTED) from None

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        return load(cmd_name) if cmd_name in COMMANDS else None

    def _main_shell_completion(
        self, ctx_args: MutableMapping[str, Any], prog_name: str, complete_var: str | None = None
    ) -> None:
        if COMPLETION_VARIABLE in os.environ:
            from odradek.commands import bash_completion

            bash_completion.register()
        super()._main_shell_completion(ctx_args, prog_name, complete_var)


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
    command.rich_help_panel = panel_of(name)  # type: ignore[attr-defined]  # an attribute of Typer's commands
    return command


def panel_of(name: str) -> str:
    """Return the heading under which the help lists a command."""
    return next((panel for panel, names in PANELS.items() if name in names), OTHER_PANEL)


convert_late()
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


def print_all_characters() -> None:
    """Let both outputs print characters that their encoding does not have as escapes of JSON."""
    codecs.register_error(ESCAPES, escape)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors=ESCAPES)


def escape(error: UnicodeError) -> tuple[str, int]:
    """Return the escapes of the characters that cannot be encoded, and the position after them.

    A character above U+FFFF has two escapes.
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2)), error.end


def run() -> int:
    """Run the command that the command line names. Return the exit code, or raise SystemExit with it."""
    print_all_characters()
    try:
        app(prog_name="odradek")
    except OSError as error:  # standard output cannot be written, such as on a full disk; Typer handles a closed pipe
        # Python flushes standard output at exit, and would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        errors.print(os_error_text(error), markup=False)
        return FAILED
    return 0
