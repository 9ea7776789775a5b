"""`odradek status`: brokers, partitions, groups and open transactions of a local cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from odradek import client
from odradek.commands.options import DIRECTORY_DEFAULT, CommandConfig, Directory, Json
from odradek.commands.requests import attempt, exit_on_client_error, settings
from odradek.commands.status_rows import (
    BROKER_COLUMNS,
    GROUP_COLUMNS,
    PARTITION_COLUMNS,
    TRANSACTION_COLUMNS,
    UNKNOWN,
    broker_row,
    open_transactions_text,
    status_values,
    warnings,
)
from odradek.commands.up import exit_on_failure, require_state
from odradek.local.directory import ClusterDirectory, ClusterState
from odradek.local.output import FAILED, console, errors, print_json, show
from odradek.local.watch import recovery_hint

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def status(
    directory: Directory = DIRECTORY_DEFAULT,
    watch: Annotated[
        bool | None,
        typer.Option(
            "--watch/--once", help="Refresh until Ctrl-C, or print once.", show_default="--watch on a terminal"
        ),
    ] = None,
    interval_s: Annotated[float, typer.Option("--every", help="Seconds between two refreshes.", min=0.1)] = 1.0,
    command_config: CommandConfig = None,
    as_json: Json = False,
) -> None:
    """Show the brokers, partitions, groups and open transactions of a local cluster.

    On a terminal it is a live view until Ctrl-C. Otherwise, or with --once or
    --json, the status is printed once. Brokers may be down. The exit code is 1 if
    no majority of the voters runs.

    Examples:

      odradek status --dir /var/tmp/kafka

      odradek status --dir /var/tmp/kafka --json
    """
    cluster = ClusterDirectory(directory)
    with exit_on_failure():
        state = require_state(cluster)
    config = command_config or cluster.own_client_config(state.plan)
    if not as_json and (console.is_terminal if watch is None else watch):
        from odradek.commands.live import follow

        follow(cluster, config, interval_s)
    else:
        print_once(cluster, state, config, as_json=as_json)
    with exit_on_failure():
        state = require_state(cluster)
    alive = state.alive()
    if stopping := state.alive_stopping():
        names = ", ".join(f"broker {node_id} (pid {identity.pid})" for node_id, identity in stopping.items())
        errors.print(f"still stopping: {names}; end it with: odradek down --dir {cluster.path}", markup=False)
    elif not state.running:
        errors.print(f"stopped; start it with: odradek up --dir {cluster.path}", markup=False)
    elif len(alive) < len(state.plan.ports):
        errors.print(recovery_hint(cluster, state), markup=False)
    if not alive or len([voter for voter in state.plan.voters if voter in alive]) < state.plan.majority:
        raise typer.Exit(FAILED)


def print_once(cluster: ClusterDirectory, state: ClusterState, command_config: Path | None, *, as_json: bool) -> None:
    """Print the status as JSON or as tables. If no broker responds, print what is known, and raise typer.Exit."""
    alive = state.alive()
    bootstrap = ",".join(state.plan.endpoint(node_id) for node_id in alive)
    values, failure = unknown_values(state), None
    if alive:
        with exit_on_client_error():
            with_settings = settings(command_config, partial=True)
        try:
            values = status_values(attempt(bootstrap, client.cluster_status, with_settings))
        except client.ClientError as error:  # brokers that recover their logs respond after that only
            failure = error
    rows = [broker_row(cluster, state, node_id, values) for node_id in state.plan.node_ids]
    if as_json:
        print_json({**values, "cluster_id": state.plan.cluster_id, "brokers": rows})
    else:
        show_tables(rows, values)
    if failure is not None:
        errors.print(str(failure), markup=False)
        raise typer.Exit(FAILED)


def unknown_values(state: ClusterState) -> dict[str, Any]:
    """Return the values of a cluster without a broker that responds."""
    return {**UNKNOWN, "unreachable": state.plan.node_ids}


def show_tables(rows: list[dict[str, Any]], values: Mapping[str, Any]) -> None:
    """Print tables of brokers, partitions, groups and open transactions, and the warnings."""
    show(rows, {name: name for name in BROKER_COLUMNS}, as_json=False, empty="")
    print()
    if values["partitions"] is None:
        print("partitions: unknown, no broker responds")
    else:
        rows = [row for row in values["partitions"] if not row["internal"]]
        show(rows, {name: name for name in PARTITION_COLUMNS}, as_json=False, empty="no partitions")
    print()
    for line in warnings(values):
        print(line)
    if values["groups"] is None:
        print("groups: unknown, no broker responds")
    else:
        show(values["groups"], GROUP_COLUMNS, as_json=False, empty="no groups")
    print()
    if values["transactions"] is not None:
        columns = {name: name for name in TRANSACTION_COLUMNS}
        show(values["transactions"], columns, as_json=False, empty="no open transactions")
    if values["unreachable"]:
        print(f"open transactions: {open_transactions_text(values)}")
