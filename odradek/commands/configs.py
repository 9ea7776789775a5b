"""``odradek configs``: settings of topics, brokers and groups, by Kafka's names."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from odradek import client
from odradek.commands.options import BOOTSTRAP_DEFAULT, Bootstrap, Json, parse_pair
from odradek.commands.requests import failures, run
from odradek.commands.rows import row_of
from odradek.local.output import print_json, show, usage

if TYPE_CHECKING:
    from collections.abc import Iterator

app = typer.Typer(
    help="Settings of topics, brokers and groups: describe, alter.", no_args_is_help=True, rich_markup_mode="rich"
)


class Kind(StrEnum):
    TOPIC = "topic"
    BROKER = "broker"
    GROUP = "group"


KindArgument = Annotated[Kind, typer.Argument(help="Of what.")]
NameArgument = Annotated[str, typer.Argument(help="Its name or node id; of brokers, none stands for all of them.")]
COLUMNS = ("name", "value", "source")
Pairs = list[str] | None


@app.command()
def describe(
    kind: KindArgument,
    name: NameArgument = "",
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    everything: Annotated[bool, typer.Option("--all", help="Defaults too.")] = False,
    as_json: Json = False,
) -> None:
    """Show what was set, and where.

    Examples:

      odradek configs describe topic payments --all

      odradek configs describe broker 1
    """
    named(kind, name)
    of = client.ConfigKind(kind.value)
    entries = run(bootstrap, lambda cluster: client.describe_configs(cluster, of, name, defaults=everything))
    show(
        [row_of(entry) for entry in entries],
        {column: column for column in COLUMNS},
        as_json=as_json,
        empty="nothing was set; defaults: --all",
    )


@app.command()
def alter(
    kind: KindArgument,
    name: NameArgument = "",
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    to_set: Annotated[Pairs, typer.Option("--set", help="Give it a value.", metavar="NAME=VALUE")] = None,
    to_delete: Annotated[Pairs, typer.Option("--delete", help="Back to what holds without.", metavar="NAME")] = None,
    append: Annotated[Pairs, typer.Option("--append", help="Add to a list.", metavar="NAME=VALUE")] = None,
    subtract: Annotated[Pairs, typer.Option("--subtract", help="Take out of a list.", metavar="NAME=VALUE")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only see whether it would be taken.")] = False,
    as_json: Json = False,
) -> None:
    """Change settings while the cluster runs; all of them, or none.

    Examples:

      odradek configs alter topic payments --set retention.ms=3600000 --delete segment.bytes

      odradek configs alter broker --set log.retention.ms=86400000
    """
    named(kind, name)
    with failures():
        changes = list(parsed({"set": to_set, "delete": to_delete, "append": append, "subtract": subtract}))
    if not changes:
        usage("say what to change: --set, --delete, --append or --subtract")
    of = client.ConfigKind(kind.value)
    run(bootstrap, lambda cluster: client.alter_configs(cluster, of, name, changes, validate_only=dry_run))
    changed = [change.name for change in changes]
    if as_json:
        print_json({"kind": kind.value, "name": name, "changed": changed, "validate_only": dry_run})
        return
    whose = " ".join(filter(None, (kind.value, name))) if name or kind is not Kind.BROKER else "all brokers"
    done = "would change" if dry_run else "changed"
    print(f"{done} {', '.join(changed)} of {whose}")


def parsed(options: dict[str, Pairs]) -> Iterator[client.ConfigChange]:
    """Parse the values of the options by option name. Raise InvalidArgument if one is malformed."""
    for option, texts in options.items():
        operation = client.ConfigOperation[option.upper()]
        for text in texts or []:
            if operation is client.ConfigOperation.DELETE:
                yield client.ConfigChange(operation, text)
            else:
                yield client.ConfigChange(operation, *parse_pair(text, f"--{option}"))


def named(kind: Kind, name: str) -> None:
    if not name and kind is not Kind.BROKER:
        usage(f"name the {kind.value}")
