"""``odradek groups``: who reads what, how far behind, and from where to read again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from odradek import client
from odradek.commands.offset_targets import parse_duration_ms, parse_moment_ms, parse_scope, read_offsets
from odradek.commands.options import BOOTSTRAP_DEFAULT, Bootstrap, Json
from odradek.commands.requests import failures, run
from odradek.commands.rows import row_of
from odradek.local.output import console, counted, errors, print_json, show, usage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from odradek.client import Cluster, PlannedOffset

    Planner = Callable[[Cluster], Awaitable[list[PlannedOffset]]]

app = typer.Typer(
    help="Consumer groups: list, describe with lag, reset, delete.", no_args_is_help=True, rich_markup_mode="rich"
)

Group = Annotated[str, typer.Argument(help="Group id.")]
LISTED = ("group", "type", "protocol_type", "state", "coordinator")
PARTITIONS = {
    "topic": "topic",
    "partition": "partition",
    "committed": "committed",
    "last_stable_offset": "LSO",
    "stable_lag": "lag to LSO",
    "high_watermark": "high watermark",
    "lag": "lag",
    "member_id": "member",
    "host": "host",
    "client_id": "client",
}
MEMBERS = ("member_id", "instance_id", "client_id", "host", "epoch", "assignment")


@app.command("list")
def list_groups(
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    state: Annotated[
        list[str] | None, typer.Option(help="Only these states: Stable, Empty, ...", metavar="STATE")
    ] = None,
    kind: Annotated[
        list[str] | None, typer.Option("--type", help="Only these types: classic, consumer.", metavar="TYPE")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the groups that the coordinators know.

    Examples:

      odradek groups list

      odradek groups list --state Stable --type consumer --json
    """
    groups = run(bootstrap, lambda cluster: client.list_groups(cluster, state or (), kind or ()))
    show([row_of(group) for group in groups], {column: column for column in LISTED}, as_json=as_json, empty="no groups")


@app.command()
def describe(group: Group, bootstrap: Bootstrap = BOOTSTRAP_DEFAULT, as_json: Json = False) -> None:
    """Show the members of a group, what it has committed, and how far behind that is.

    Lag counts to the high watermark. Lag to the last stable offset (LSO) is what a reader of committed records could read now: the
    difference is held back by open transactions; see odradek txns.

    Example:

      odradek groups describe payments-app
    """
    described = run(bootstrap, lambda cluster: client.describe_group(cluster, group))
    row = row_of(described)
    if as_json:
        print_json(row)
        return
    words = [f"{described.type} group {group}", described.state, counted(len(described.members), "member")]
    if described.epoch is not None:
        words.append(f"epoch {described.epoch}")
    if described.assignor:
        words.append(f"assignor {described.assignor}")
    console.print(", ".join(words), markup=False)
    print()
    show(row["members"], {column: column for column in MEMBERS}, as_json=False, empty="no members")
    print()
    show(row["partitions"], PARTITIONS, as_json=False, empty="nothing committed")


@app.command()
def reset(
    group: Group,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    topic: Annotated[
        list[str] | None, typer.Option(help="A topic, or some of its partitions.", metavar="TOPIC[:PARTITION,...]")
    ] = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="All partitions that the group has committed.")
    ] = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the first record.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="Behind the last record.")] = False,
    to_current: Annotated[
        bool, typer.Option("--to-current", help="To what is committed, within what the log has.")
    ] = False,
    to_offset: Annotated[int | None, typer.Option(help="To an offset.")] = None,
    shift_by: Annotated[int | None, typer.Option(help="By so many records, negative: back.", metavar="N")] = None,
    to_datetime: Annotated[
        str | None, typer.Option(help="To the first record since then (UTC).", metavar="YYYY-MM-DDThh:mm:ss")
    ] = None,
    by_duration: Annotated[
        str | None, typer.Option(help="To the first record of that last while.", metavar="PnDTnHnMnS")
    ] = None,
    from_file: Annotated[str | None, typer.Option(help="Lines of topic,partition,offset.", metavar="FILE")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be. The default.")] = False,
    execute: Annotated[bool, typer.Option("--execute", help="Commit the new offsets.")] = False,
    as_json: Json = False,
) -> None:
    """Set where a group reads on; it must have no members then.

    Without --execute the plan is shown and nothing is changed.

    Examples:

      odradek groups reset payments-app --topic payments --to-earliest

      odradek groups reset payments-app --all-topics --by-duration PT1H --execute

      odradek groups reset payments-app --topic payments:0,2 --shift-by -10 --execute
    """
    given = {
        "to-earliest": to_earliest or None,
        "to-latest": to_latest or None,
        "to-current": to_current or None,
        "to-offset": to_offset,
        "shift-by": shift_by,
        "to-datetime": to_datetime,
        "by-duration": by_duration,
        "from-file": from_file,
    }
    chosen = {name: value for name, value in given.items() if value is not None}
    if len(chosen) != 1:
        usage("say where to in one way: " + ", ".join(f"--{name}" for name in given))
    if dry_run and execute:
        usage("--dry-run and --execute exclude each other")
    if from_file is None and bool(topic) == all_topics:
        usage("name the topics with --topic, or take what is committed with --all-topics")
    [(specification, value)] = chosen.items()
    with failures():
        planned = planner(group, specification, value, topic)
    plan = run(bootstrap, lambda cluster: carried_out(cluster, group, planned, execute=execute))
    rows = [row_of(row) for row in plan]
    if as_json:
        print_json({"group": group, "executed": execute, "partitions": rows})
        return
    columns = ("topic", "partition", "committed", "new")
    show(rows, {column: column for column in columns}, as_json=False, empty="nothing to reset")
    if not execute:
        errors.print("nothing was changed; to do it: the same with --execute", markup=False)


def planner(group: str, specification: str, value: str | int, topics: list[str] | None) -> Planner:
    """Return the request for the plan of a reset. Raise InvalidArgument if the value or a topic is malformed."""
    scope = None if topics is None else parse_scope(topics)

    def by(target: client.ResetTarget, number: int | None = None) -> Planner:
        return lambda cluster: client.plan_offset_reset(cluster, group, target, number, scope)

    match specification, value:
        case "from-file", str(path):
            offsets = read_offsets(path)
            return lambda cluster: client.plan_offsets(cluster, group, offsets)
        case "to-datetime", str(text):
            return by(client.ResetTarget.TIMESTAMP, parse_moment_ms(text))
        case "by-duration", str(text):
            return by(client.ResetTarget.TIMESTAMP, parse_duration_ms(text))
        case "to-offset", int(offset):
            return by(client.ResetTarget.OFFSET, offset)
        case "shift-by", int(number):
            return by(client.ResetTarget.SHIFT, number)
        case _:
            return by(client.ResetTarget[specification.removeprefix("to-").upper()])


async def carried_out(cluster: Cluster, group: str, planned: Planner, *, execute: bool) -> list[PlannedOffset]:
    """Fetch the plan of a reset and, with `execute`, commit it."""
    plan = await planned(cluster)
    if execute:
        await client.commit_offsets(cluster, group, plan)
    return plan


@app.command()
def delete(group: Group, bootstrap: Bootstrap = BOOTSTRAP_DEFAULT, as_json: Json = False) -> None:
    """Delete a group without members, and what it has committed.

    Example:

      odradek groups delete payments-app
    """
    run(bootstrap, lambda cluster: client.delete_group(cluster, group))
    if as_json:
        print_json({"group": group, "deleted": True})
    else:
        print(f"deleted group {group}")
