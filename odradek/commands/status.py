"""``status``: who runs, who leads, what is behind, who lags."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from odradek import client
from odradek.commands.options import DIRECTORY_DEFAULT, Directory, Json
from odradek.commands.requests import run
from odradek.commands.status_rows import (
    BROKER_COLUMNS,
    GROUP_COLUMNS,
    PARTITION_COLUMNS,
    TRANSACTION_COLUMNS,
    UNKNOWN,
    answer_of,
    broker_row,
    open_known,
    remarks,
)
from odradek.commands.up import reasons, state_of
from odradek.local.directory import ClusterDirectory, ClusterState
from odradek.local.output import FAILED, console, errors, print_json, show
from odradek.local.watch import outlook

if TYPE_CHECKING:
    from collections.abc import Mapping


def status(
    directory: Directory = DIRECTORY_DEFAULT,
    watch: Annotated[
        bool | None,
        typer.Option("--watch/--once", help="Stay and follow what changes.", show_default="on a terminal"),
    ] = None,
    every_s: Annotated[float, typer.Option("--every", help="Seconds between two looks.", min=0.1)] = 1.0,
    as_json: Json = False,
) -> None:
    """Show the brokers of a local cluster, who leads which partition, what is behind, groups, and open transactions.

    On a terminal it is a live view, until Ctrl-C; elsewhere, with --once and with --json it is shown once. Works with brokers down. The
    exit code is 0 as long as a majority of the voters runs.

    Examples:

      odradek status --dir /var/tmp/kafka

      odradek status --dir /var/tmp/kafka --json
    """
    cluster = ClusterDirectory(directory)
    with reasons():
        state = state_of(cluster)
    if not as_json and (console.is_terminal if watch is None else watch):
        from odradek.commands.live import follow

        follow(cluster, every_s)
    else:
        once(cluster, state, as_json=as_json)
    with reasons():
        state = state_of(cluster)
    alive = state.alive()
    if not state.running:
        errors.print(f"stopped; start it with: odradek up --dir {cluster.path}", markup=False)
    elif len(alive) < len(state.plan.ports):
        errors.print(outlook(cluster, state), markup=False)
    if not alive or len([voter for voter in state.plan.voters if voter in alive]) < state.plan.majority:
        raise typer.Exit(FAILED)


def once(cluster: ClusterDirectory, state: ClusterState, *, as_json: bool) -> None:
    alive = state.alive()
    bootstrap = ",".join(state.plan.endpoint(node_id) for node_id in alive)
    answer = answer_of(run(bootstrap, client.cluster_status, partial=True)) if alive else nobody_answers(state)
    rows = [broker_row(cluster, state, node_id, answer) for node_id in state.plan.node_ids]
    if as_json:
        print_json({**answer, "cluster_id": state.plan.cluster_id, "brokers": rows})
    else:
        show_tables(rows, answer)


def nobody_answers(state: ClusterState) -> dict[str, Any]:
    return {**UNKNOWN, "unanswered": state.plan.node_ids}


def show_tables(rows: list[dict[str, Any]], answer: Mapping[str, Any]) -> None:
    show(rows, {name: name for name in BROKER_COLUMNS}, as_json=False, empty="")
    print()
    if answer["partitions"] is None:
        print("partitions: unknown, no broker runs")
    else:
        rows = [row for row in answer["partitions"] if not row["internal"]]
        show(rows, {name: name for name in PARTITION_COLUMNS}, as_json=False, empty="no partitions")
    print()
    for line in remarks(answer):
        print(line)
    if answer["groups"] is None:
        print("groups: unknown, no broker runs")
    else:
        show(answer["groups"], GROUP_COLUMNS, as_json=False, empty="no groups")
    print()
    if answer["transactions"] is not None:
        columns = {name: name for name in TRANSACTION_COLUMNS}
        show(answer["transactions"], columns, as_json=False, empty="no open transactions")
    if answer["unanswered"]:
        print(f"open transactions: {open_known(answer)}")
