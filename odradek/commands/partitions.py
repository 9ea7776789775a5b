"""`odradek partitions`: add partitions, move their replicas, elect their leaders."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from odradek import client
from odradek.commands import completion
from odradek.commands.offset_targets import parse_number, parse_scope
from odradek.commands.options import INT32_MAX, Json
from odradek.commands.outputs import Output, Shape
from odradek.commands.requests import exit_on_client_error, run
from odradek.commands.rows import row_of
from odradek.commands.target import Target, on_cluster
from odradek.local.output import errors, usage_error
from odradek.plurals import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from odradek.client import Cluster, TopicPartition

    Plan = dict[TopicPartition, Sequence[int] | None]
    """Replicas by partition. None cancels the reassignment of a partition."""

app = typer.Typer(
    help="Partitions: add, move replicas to other brokers, elect leaders.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

PROGRESS_INTERVAL_S = 0.5
"""Seconds between two requests for the reassignments that are not complete."""
ADDED = Output("partitions add", more=("topic", "partition_count", "validate_only"), shape=Shape.OBJECT)
ELECTED = Output("partitions elect", ("topic", "partition"))
REASSIGNED = Output("partitions reassign", ("topic", "partition", "replicas", "adding_replicas", "removing_replicas"))
PLAN_COLUMNS = REASSIGNED.table[:3]
"""Columns of a plan, which has no replicas to add or to remove yet."""

Scope = Annotated[
    list[str] | None,
    typer.Argument(
        help="Topics, or some of their partitions.",
        metavar="[TOPIC[:PARTITION,...]]...",
        autocompletion=completion.topics,
    ),
]


@app.command()
@on_cluster
def add(
    target: Target,
    topic: Annotated[str, typer.Argument(help="Name of the topic.", autocompletion=completion.topics)],
    count: Annotated[int, typer.Argument(help="Number of partitions that the topic has then.", min=1, max=INT32_MAX)],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Validate the change only.")] = False,
    as_json: Json = False,
) -> None:
    """Increase the number of partitions of a topic. Keys may map to other partitions then.

    Examples:

      odradek partitions add payments 12

      odradek partitions add payments 12 --dry-run
    """
    run(target, lambda cluster: client.add_partitions(cluster, topic, count, validate_only=dry_run))
    if as_json:
        ADDED.print_json({"topic": topic, "partition_count": count, "validate_only": dry_run})
    else:
        print(f"{topic} {'would have' if dry_run else 'has'} {counted(count, 'partition')}")


@app.command()
@on_cluster
def elect(
    target: Target,
    scope: Scope = None,
    unclean: Annotated[
        bool, typer.Option("--unclean", help="Elect replicas that are not in sync. Committed records may be lost.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Make the preferred replicas the leaders: of all partitions, or of those given.

    Examples:

      odradek partitions elect

      odradek partitions elect payments:0,3 --unclean
    """
    if unclean and not scope:
        usage_error("--unclean can lose records: specify the partitions, as TOPIC:PARTITION")
    with exit_on_client_error():
        wanted = parse_scope(scope) if scope else None
    election = client.ElectionType.UNCLEAN if unclean else client.ElectionType.PREFERRED

    async def elected(cluster: Cluster) -> list[TopicPartition]:
        partitions = None if wanted is None else await client.partitions_of(cluster, wanted)
        return await client.elect_leaders(cluster, partitions, election)

    found = run(target, elected)
    rows = [{"topic": key.topic, "partition": key.partition} for key in found]
    ELECTED.show(rows, as_json=as_json, empty="no leader changed: the preferred replicas lead already")


@app.command()
@on_cluster
def reassign(
    target: Target,
    scope: Scope = None,
    replicas: Annotated[
        str | None, typer.Option(help="Replicas of each partition; the first is preferred.", metavar="NODE,...")
    ] = None,
    brokers: Annotated[
        str | None, typer.Option(help="Distribute the replicas over these brokers.", metavar="NODE,...")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--from-file", help="Plan in the format of Kafka's tool.", metavar="FILE")
    ] = None,
    cancel: Annotated[bool, typer.Option("--cancel", help="Return to the replicas before a reassignment.")] = False,
    list_only: Annotated[bool, typer.Option("--list", help="List the reassignments that are not complete.")] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the replicas are in sync.")] = True,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan only.")] = False,
    as_json: Json = False,
) -> None:
    """Move replicas of partitions to other brokers, and show the progress.

    Ctrl-C ends the wait only: the reassignment continues.

    Examples:

      odradek partitions reassign payments:0 --replicas 3,1,2

      odradek partitions reassign payments orders --brokers 1,2,3,4 --dry-run

      odradek partitions reassign --list
    """
    given = [name for name, value in {"replicas": replicas, "brokers": brokers, "from-file": file}.items() if value]
    if len(given) + cancel + list_only != 1:
        usage_error("specify exactly one of: --replicas, --brokers, --from-file, --cancel, --list")
    if bool(scope) == bool(file or list_only):
        usage_error("specify topics, except with --from-file and --list")
    if list_only and (dry_run or not wait):
        usage_error("--list changes nothing: remove --dry-run and --no-wait")
    if list_only:
        moved = run(target, client.list_reassignments)
        REASSIGNED.show(map(row_of, moved), as_json=as_json, empty="no reassignments")
        return
    with exit_on_client_error():
        wanted = parse_scope(scope or [])
        option = "--brokers" if replicas is None else "--replicas"
        listed = (replicas or brokers or "").split(",")
        nodes = [parse_number(text, option, 0, INT32_MAX) for text in listed if text]
        from_file = None if file is None else read_plan(file)

    async def move(cluster: Cluster) -> Plan:
        plan = from_file or await planned(cluster, wanted, nodes, spread=brokers is not None, cancel=cancel)
        if not dry_run:
            await client.reassign_partitions(cluster, plan)
            if wait and not cancel:
                await wait_until_moved(cluster, plan)
        return plan

    plan = run(target, move)
    rows = [{"topic": key.topic, "partition": key.partition, "replicas": nodes} for key, nodes in plan.items()]
    REASSIGNED.show(rows, as_json=as_json, empty="no partitions", columns=PLAN_COLUMNS)
    if dry_run:
        errors.print("nothing was changed; to move the replicas, leave out --dry-run", markup=False)


async def planned(
    cluster: Cluster, scope: dict[str, list[int]], nodes: list[int], *, spread: bool, cancel: bool
) -> Plan:
    """Return the replicas of the partitions in the scope: the given ones, or of a rotation over brokers.

    With `spread`, each partition keeps its number of replicas, and the nth partition begins at the nth broker.
    """
    partitions = await client.partitions_of(cluster, scope)
    if cancel:
        return dict.fromkeys(partitions)
    if not spread:
        return dict.fromkeys(partitions, nodes)
    plan: Plan = {}
    for number, key in enumerate(partitions):
        count = len((await cluster.topic(key.topic)).partition(key.partition).replicas)
        if count > len(nodes):
            raise client.InvalidArgument(f"{key} has {count} replicas, more than the {len(nodes)} brokers of --brokers")
        plan[key] = [nodes[(number + offset) % len(nodes)] for offset in range(count)]
    return plan


async def wait_until_moved(cluster: Cluster, plan: Plan) -> None:
    """Wait until no partition of the plan is being reassigned. Print each change of their number."""
    shown = -1
    while True:
        moving = [row for row in await client.list_reassignments(cluster) if (row.topic, row.partition) in plan]
        if len(moving) != shown:
            errors.print(f"{len(plan) - len(moving)} of {len(plan)} partitions are moved", markup=False)
        shown = len(moving)
        if not moving:
            return
        await asyncio.sleep(PROGRESS_INTERVAL_S)


def read_plan(path: Path) -> Plan:
    """Read a plan in the format of kafka-reassign-partitions. Raise InvalidArgument."""
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))["partitions"]
        return {
            client.TopicPartition(
                str(row["topic"]), parse_number(row["partition"], f"{path}: partition", 0, INT32_MAX)
            ): [parse_number(node, f"{path}: replica", 0, INT32_MAX) for node in row["replicas"]]
            for row in rows
        }
    except OSError as error:
        raise client.InvalidArgument(f"{path}: {error.strerror}") from error
    except client.InvalidArgument:
        raise
    except (ValueError, KeyError, TypeError) as error:
        raise client.InvalidArgument(
            f'{path}: expected {{"partitions": [{{"topic": ..., "partition": ..., "replicas": [...]}}]}}'
        ) from error
