"""``odradek configs``: settings of topics, brokers and groups, by Kafka's names."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from odradek.commands.options import BOOTSTRAP_DEFAULT, Bootstrap, Json
from odradek.local.output import ask, print_json, show, usage

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
    arguments = ["configs", "describe", kind.value, name, "--bootstrap", bootstrap, *(["--all"] if everything else [])]
    show(
        ask(*arguments),
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
    verbs = {"set": to_set, "delete": to_delete, "append": append, "subtract": subtract}
    changes = [f"{verb} {pair}" for verb, pairs in verbs.items() for pair in pairs or []]
    if not changes:
        usage("say what to change: --set, --delete, --append or --subtract")
    arguments = ["configs", "alter", kind.value, name, "--bootstrap", bootstrap]
    arguments += [f"--change={change}" for change in changes]
    answer = ask(*arguments, *(["--validate-only"] if dry_run else []))
    if as_json:
        print_json(answer)
        return
    whose = " ".join(filter(None, (kind.value, name))) if name or kind is not Kind.BROKER else "all brokers"
    done = "would change" if dry_run else "changed"
    print(f"{done} {', '.join(answer['changed'])} of {whose}")


def named(kind: Kind, name: str) -> None:
    if not name and kind is not Kind.BROKER:
        usage(f"name the {kind.value}")
