"""`odradek groups`: consumer groups, their lag, and resets of their offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from odradek import client
from odradek.commands import completion
from odradek.commands.offset_targets import parse_duration_ms, parse_moment_ms, parse_scope, read_offsets
from odradek.commands.options import Json
from odradek.commands.outputs import Output, Shape
from odradek.commands.requests import exit_on_client_error, run
from odradek.commands.rows import Row, row_of
from odradek.commands.target import Target, on_cluster
from odradek.local.output import console, errors, usage_error
from odradek.plurals import counted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from odradek.client import Cluster, PlannedOffset

    Planner = Callable[[Cluster], Awaitable[list[PlannedOffset]]]
    """Request for the plan of an offset reset."""

app = typer.Typer(
    help="Consumer groups: list, describe with lag, reset, delete.", no_args_is_help=True, rich_markup_mode="rich"
)

Group = Annotated[str, typer.Argument(help="Group id.", autocompletion=completion.groups)]
Scope = Annotated[
    list[str] | None,
    typer.Option(
        help="Topic to reset, or some of its partitions.",
        metavar="TOPIC[:PARTITION,...]",
        autocompletion=completion.topics,
    ),
]
LISTED = Output("groups list", ("group", "type", "protocol_type", "state", "coordinator"))
DESCRIBED = Output(
    "groups describe",
    more=("group", "type", "state", "group_epoch", "assignor_name", "members", "partitions"),
    shape=Shape.OBJECT,
)
PARTITIONS = Output(
    "groups describe",
    (
        "topic", "partition", "committed_offset", "last_stable_offset", "stable_lag", "high_watermark", "lag",
        "member_id", "client_host", "client_id",
    ),
    ("metadata",),
    within="partitions",
)  # fmt: skip
MEMBERS = Output(
    "groups describe",
    ("member_id", "instance_id", "client_id", "client_host", "member_epoch", "assignment"),
    within="members",
)
RESET = Output("groups reset", more=("group", "executed", "partitions"), shape=Shape.OBJECT)
PLANNED = Output("groups reset", ("topic", "partition", "committed_offset", "new_offset"), within="partitions")
DELETED = Output("groups delete", more=("group", "deleted"), shape=Shape.OBJECT)


@app.command("list")
@on_cluster
def list_groups(
    target: Target,
    state: Annotated[
        list[str] | None, typer.Option(help="Show only groups in this state: Stable, Empty, ...", metavar="STATE")
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            "--type", help="Show only groups of this type: classic, consumer, share or streams.", metavar="TYPE"
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """List the groups of all coordinators.

    Examples:

      odradek groups list

      odradek groups list --state Stable --type consumer --json
    """
    groups = run(target, lambda cluster: client.list_groups(cluster, state or (), kind or ()))
    LISTED.show(map(row_of, groups), as_json=as_json, empty="no groups")


@app.command()
@on_cluster
def describe(target: Target, group: Group, as_json: Json = False) -> None:
    """Show the members of a group, its committed offsets, and its lag.

    The lag is the distance to the high watermark. A consumer with read_committed
    can read only up to the last stable offset (LSO). Open transactions hold back
    the records between both: see odradek txns. The committed offset of a share
    group is its start offset. Members of a streams group (KIP-1071) are shown
    with the inputs of their active tasks.

    Example:

      odradek groups describe payments-app
    """
    described = run(target, lambda cluster: client.describe_group(cluster, group))
    row = row_of(described)
    if as_json:
        nested = {"members": MEMBERS.rows(row["members"]), "partitions": PARTITIONS.rows(row["partitions"])}
        DESCRIBED.print_json(row | nested)
        return
    parts = [f"{described.type} group {group}", described.state, counted(len(described.members), "member")]
    if described.epoch is not None:
        parts.append(f"epoch {described.epoch}")
    if described.assignor:
        parts.append(f"assignor {described.assignor}")
    console.print(", ".join(parts), markup=False)
    print()
    MEMBERS.show(row["members"], as_json=False, empty="no members")
    print()
    PARTITIONS.show(row["partitions"], as_json=False, empty="no committed offsets")


@app.command()
@on_cluster
def reset(
    target: Target,
    group: Group,
    topic: Scope = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="Reset all partitions with a committed offset.")
    ] = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="Reset to the first record.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="Reset to the end of the log.")] = False,
    to_current: Annotated[
        bool, typer.Option("--to-current", help="Keep the committed offset, within the offsets of the log.")
    ] = False,
    to_offset: Annotated[int | None, typer.Option(help="Reset to an offset.")] = None,
    shift_by: Annotated[
        int | None, typer.Option(help="Add N to the committed offset; N may be negative.", metavar="N")
    ] = None,
    to_datetime: Annotated[
        str | None, typer.Option(help="Reset to the first record since a time in UTC.", metavar="YYYY-MM-DDThh:mm:ss")
    ] = None,
    by_duration: Annotated[
        str | None, typer.Option(help="Reset to the first record since a duration ago.", metavar="PnDTnHnMnS")
    ] = None,
    from_file: Annotated[
        str | None,
        typer.Option(help="Reset to the offsets of a file with lines of topic,partition,offset.", metavar="FILE"),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan only. This is the default.")] = False,
    execute: Annotated[bool, typer.Option("--execute", help="Commit the new offsets.")] = False,
    as_json: Json = False,
) -> None:
    """Reset the committed offsets of a group. The group must have no members.

    Without --execute, the command shows the plan and changes nothing.

    Examples:

      odradek groups reset payments-app --topic payments --to-earliest

      odradek groups reset payments-app --all-topics --by-duration PT1H

      odradek groups reset app --topic payments:0,2 --shift-by -10 --execute
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
        usage_error("specify exactly one of: " + ", ".join(f"--{name}" for name in given))
    if dry_run and execute:
        usage_error("--dry-run and --execute exclude each other: specify one of them")
    if from_file is not None and (topic or all_topics):
        usage_error("--from-file names the partitions: remove --topic and --all-topics")
    if from_file is None and bool(topic) == all_topics:
        usage_error("specify either topics with --topic, or all committed partitions with --all-topics")
    [(specification, value)] = chosen.items()
    with exit_on_client_error():
        request_plan = planner(group, specification, value, topic)
    plan = run(target, lambda cluster: plan_and_commit(cluster, group, request_plan, execute=execute))
    print_plan(group, [row_of(row) for row in plan], execute=execute, as_json=as_json)


def print_plan(group: str, rows: list[Row], *, execute: bool, as_json: bool) -> None:
    """Print the plan of a reset as JSON or as a table. Without `execute`, print how to commit it."""
    if as_json:
        RESET.print_json({"group": group, "executed": execute, "partitions": PLANNED.rows(rows)})
        return
    PLANNED.show(rows, as_json=False, empty="no offsets to reset")
    if not execute:
        errors.print("nothing was changed; to commit these offsets, add --execute", markup=False)


def planner(group: str, specification: str, value: str | int, topics: list[str] | None) -> Planner:
    """Return the request for the plan of a reset. Raise InvalidArgument if the value or a topic is malformed."""
    scope = None if topics is None else parse_scope(topics)

    def reset_to(target: client.ResetTarget, number: int | None = None) -> Planner:
        return lambda cluster: client.plan_offset_reset(cluster, group, target, number, scope)

    match specification, value:
        case "from-file", str(path):
            offsets = read_offsets(path)
            return lambda cluster: client.plan_offsets(cluster, group, offsets)
        case "to-datetime", str(text):
            return reset_to(client.ResetTarget.TIMESTAMP, parse_moment_ms(text))
        case "by-duration", str(text):
            return reset_to(client.ResetTarget.TIMESTAMP, parse_duration_ms(text))
        case "to-offset", int(offset):
            return reset_to(client.ResetTarget.OFFSET, offset)
        case "shift-by", int(number):
            return reset_to(client.ResetTarget.SHIFT, number)
        case _:
            return reset_to(client.ResetTarget[specification.removeprefix("to-").upper()])


async def plan_and_commit(cluster: Cluster, group: str, request_plan: Planner, *, execute: bool) -> list[PlannedOffset]:
    """Return the plan of a reset. With `execute`, commit its offsets."""
    plan = await request_plan(cluster)
    if execute:
        await client.commit_offsets(cluster, group, plan)
    return plan


@app.command()
@on_cluster
def delete(target: Target, group: Group, as_json: Json = False) -> None:
    """Delete a group without members, and its committed offsets.

    Example:

      odradek groups delete payments-app
    """
    run(target, lambda cluster: client.delete_group(cluster, group))
    if as_json:
        DELETED.print_json({"group": group, "deleted": True})
    else:
        print(f"deleted group {group}")
