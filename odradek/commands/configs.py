"""`odradek configs`: configurations of topics, brokers and groups, by Kafka's names."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from odradek import client
from odradek.commands import completion
from odradek.commands.options import Json, parse_pair
from odradek.commands.outputs import Output, Shape
from odradek.commands.requests import exit_on_client_error, run
from odradek.commands.rows import row_of
from odradek.commands.target import Target, on_cluster
from odradek.local.output import usage_error

if TYPE_CHECKING:
    from collections.abc import Iterator

app = typer.Typer(
    help="Configurations of topics, brokers and groups: describe, alter.", no_args_is_help=True, rich_markup_mode="rich"
)


class Kind(StrEnum):
    TOPIC = "topic"
    BROKER = "broker"
    GROUP = "group"


KindArgument = Annotated[Kind, typer.Argument(help="Type of the resource.")]
NameArgument = Annotated[
    str,
    typer.Argument(
        help="Name of the topic or group, or node id of the broker. Without it: all brokers.",
        autocompletion=completion.config_resources,
    ),
]
DESCRIBED = Output("configs describe", ("name", "value", "source"), ("read_only", "documentation", "synonyms"))
SYNONYMS = Output("configs describe", more=("name", "value", "source"), within="synonyms")
ALTERED = Output(
    "configs alter", more=("resource_type", "resource_name", "changed", "validate_only"), shape=Shape.OBJECT
)
Pairs = list[str] | None


@app.command()
@on_cluster
def describe(
    target: Target,
    kind: KindArgument,
    name: NameArgument = "",
    everything: Annotated[bool, typer.Option("--all", help="Include default values.")] = False,
    as_json: Json = False,
) -> None:
    """Show the configurations that were set, and their sources.

    Examples:

      odradek configs describe topic payments --all

      odradek configs describe broker 1
    """
    require_name(kind, name)
    config_kind = client.ConfigKind(kind.value)
    entries = run(
        target,
        lambda cluster: client.describe_configs(cluster, config_kind, name, defaults=everything),
    )
    rows = [row | {"synonyms": SYNONYMS.rows(row["synonyms"])} for row in map(row_of, entries)]
    DESCRIBED.show(rows, as_json=as_json, empty="no configuration was set; show the defaults with --all")


@app.command()
@on_cluster
def alter(
    target: Target,
    kind: KindArgument,
    name: NameArgument = "",
    to_set: Annotated[Pairs, typer.Option("--set", help="Set a value.", metavar="NAME=VALUE")] = None,
    to_delete: Annotated[
        Pairs, typer.Option("--delete", help="Remove the value, so that the default applies.", metavar="NAME")
    ] = None,
    append: Annotated[Pairs, typer.Option("--append", help="Append to a list.", metavar="NAME=VALUE")] = None,
    subtract: Annotated[Pairs, typer.Option("--subtract", help="Remove from a list.", metavar="NAME=VALUE")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Validate the changes only.")] = False,
    as_json: Json = False,
) -> None:
    """Change configurations while the cluster runs. If one change is invalid, none is applied.

    Examples:

      odradek configs alter topic payments --set retention.ms=3600000

      odradek configs alter topic payments --delete retention.ms --dry-run

      odradek configs alter broker --set log.retention.ms=86400000
    """
    require_name(kind, name)
    with exit_on_client_error():
        changes = list(parse_changes({"set": to_set, "delete": to_delete, "append": append, "subtract": subtract}))
    if not changes:
        usage_error("no change: specify --set, --delete, --append or --subtract")
    config_kind = client.ConfigKind(kind.value)
    run(
        target,
        lambda cluster: client.alter_configs(cluster, config_kind, name, changes, validate_only=dry_run),
    )
    changed = [change.name for change in changes]
    if as_json:
        ALTERED.print_json(
            {"resource_type": kind.value, "resource_name": name, "changed": changed, "validate_only": dry_run}
        )
        return
    resource = f"{kind.value} {name}" if name else "all brokers"
    verb = "would change" if dry_run else "changed"
    print(f"{verb} {', '.join(changed)} of {resource}")


def parse_changes(options: dict[str, Pairs]) -> Iterator[client.ConfigChange]:
    """Yield the changes that the options contain, by option name. Raise InvalidArgument if a value is malformed."""
    for option, texts in options.items():
        operation = client.ConfigOperation[option.upper()]
        for text in texts or []:
            if operation is client.ConfigOperation.DELETE:
                yield client.ConfigChange(operation, text)
            else:
                yield client.ConfigChange(operation, *parse_pair(text, f"--{option}"))


def require_name(kind: Kind, name: str) -> None:
    """Raise typer.Exit if the name is missing. Only brokers have a configuration that applies to all of them."""
    if not name and kind is not Kind.BROKER:
        usage_error(f"the name of the {kind.value} is missing: odradek configs COMMAND {kind.value} NAME")
