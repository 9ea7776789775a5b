"""`odradek status`: brokers, partitions, groups and open transactions of a cluster."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odradek import client
from odradek.commands.directories import exit_on_failure, require_state
from odradek.commands.options import Json
from odradek.commands.requests import attempt, exit_on_client_error, settings
from odradek.commands.status_rows import (
    BROKERS,
    GROUPS,
    PARTITIONS,
    STATUS,
    TRANSACTIONS,
    UNKNOWN,
    Local,
    broker_rows,
    open_transactions_text,
    status_values,
    warnings,
)
from odradek.commands.target import Found, Target, find, on_cluster
from odradek.local.directory import ClusterDirectory
from odradek.local.output import FAILED, console, errors, usage_error

if TYPE_CHECKING:
    from collections.abc import Mapping


@on_cluster
def status(
    target: Target,
    watch: Annotated[
        bool | None,
        typer.Option(
            "--watch/--once", help="Refresh until Ctrl-C, or print once.", show_default="--watch on a terminal"
        ),
    ] = None,
    interval_s: Annotated[float, typer.Option("--every", help="Seconds between two refreshes.", min=0.1)] = 1.0,
    as_json: Json = False,
) -> None:
    """Show the brokers, partitions, groups and open transactions of a cluster.

    On a terminal it is a live view until Ctrl-C. Otherwise, or with --once or
    --json, the status is printed once. Brokers may be down. Of a local cluster,
    the command also shows processes and logs, and the exit code is 1 if no
    majority of the voters runs.

    Examples:

      odradek status --dir /var/tmp/kafka

      odradek status --bootstrap kafka-1:9092 --json
    """
    if watch and as_json:
        usage_error("--watch and --json exclude each other: specify one of them")
    with exit_on_client_error():
        found = find(target, os.environ)
    local = None
    if found.directory is not None:
        with exit_on_failure():
            cluster = ClusterDirectory(found.directory)
            local = Local(cluster, require_state(cluster))
    if not as_json and (console.is_terminal if watch is None else watch):
        from odradek.commands.live import follow

        follow(found, local, interval_s)
    else:
        print_once(found, local, as_json=as_json)
    if local is not None:
        with exit_on_failure():
            finish(local.read_again())


def finish(local: Local) -> None:
    """Print what is down of a local cluster. Raise typer.Exit if no majority of the voters runs."""
    cluster, state = local.cluster, local.state
    alive = state.alive()
    if stopping := state.alive_stopping():
        names = ", ".join(f"broker {node_id} (pid {identity.pid})" for node_id, identity in stopping.items())
        errors.print(f"still stopping: {names}; end it with: odradek down --dir {cluster.path}", markup=False)
    elif not state.running:
        errors.print(f"stopped; start it with: odradek up --dir {cluster.path}", markup=False)
    elif len(alive) < len(state.plan.ports):
        from odradek.local.watch import recovery_hint

        errors.print(recovery_hint(cluster, state), markup=False)
    if not alive or len([voter for voter in state.plan.voters if voter in alive]) < state.plan.majority:
        raise typer.Exit(FAILED)


def print_once(found: Found, local: Local | None, *, as_json: bool) -> None:
    """Print the status as JSON or as tables. If no broker responds, print what is known, and raise typer.Exit."""
    values, failure = unknown_values(local), None
    if local is None or local.state.alive():
        with exit_on_client_error():
            with_settings = settings(found.command_config, partial=True)
        try:
            values = status_values(attempt(found.bootstrap, client.cluster_status, with_settings))
        except client.ClientError as error:  # brokers that recover their logs respond after that only
            failure = error
    rows = broker_rows(local, values)
    if as_json:
        STATUS.print_json({**values, "brokers": BROKERS.rows(rows)})
    elif local is not None or failure is None:
        show_tables(rows, values)
    if failure is not None:
        errors.print(str(failure), markup=False)
        raise typer.Exit(FAILED)


def unknown_values(local: Local | None) -> dict[str, Any]:
    """Return the values of a cluster without a broker that responds."""
    if local is None:
        return dict(UNKNOWN)
    return {**UNKNOWN, "cluster_id": local.state.plan.cluster_id, "unreachable": local.state.plan.node_ids}


def show_tables(rows: list[dict[str, Any]], values: Mapping[str, Any]) -> None:
    """Print tables of brokers, partitions, groups and open transactions, and the warnings."""
    BROKERS.show(rows, as_json=False, empty="")
    print()
    if values["partitions"] is None:
        print("partitions: unknown, no broker responds")
    else:
        rows = [row for row in values["partitions"] if not row["is_internal"]]
        PARTITIONS.show(rows, as_json=False, empty="no partitions")
    print()
    for line in warnings(values):
        print(line)
    if values["groups"] is None:
        print("groups: unknown, no broker responds")
    else:
        GROUPS.show(values["groups"], as_json=False, empty="no groups")
    print()
    if values["transactions"] is not None:
        TRANSACTIONS.show(values["transactions"], as_json=False, empty="no open transactions")
    if values["unreachable"]:
        print(f"open transactions: {open_transactions_text(values)}")
