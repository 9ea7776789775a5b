"""Command line of Odradek: `odradek COMMAND` or `python -m odradek COMMAND`."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from odradek.commands import (
    acls,
    configs,
    deletion,
    dump,
    features,
    groups,
    health,
    local,
    logs,
    partitions,
    producers,
    quotas,
    records,
    status,
    tokens,
    topics,
    txns,
    up,
    use,
    users,
)
from odradek.local.output import FAILED, errors
from odradek.source_commit import source_commit
from odradek.version import __version__

app = typer.Typer(
    help="Odradek: a Kafka-compatible broker cluster with transactions.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(up.up)
app.command()(up.start)
app.command()(local.restart)
app.command()(local.down)
app.command()(status.status)
app.command()(local.broker)
app.command()(use.use)
app.add_typer(topics.app, name="topics")
app.add_typer(txns.app, name="txns")
app.add_typer(producers.app, name="producers")
app.add_typer(groups.app, name="groups")
app.add_typer(configs.app, name="configs")
app.add_typer(acls.app, name="acls")
app.add_typer(users.app, name="users")
app.add_typer(tokens.app, name="tokens")
app.add_typer(partitions.app, name="partitions")
app.add_typer(deletion.app, name="records")
app.add_typer(quotas.app, name="quotas")
app.add_typer(features.app, name="features")
app.add_typer(features.brokers, name="brokers")
app.command()(health.health)
app.command()(logs.logs)
app.command()(records.consume)
app.command()(records.produce)
app.command()(dump.dump)


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
