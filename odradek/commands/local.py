"""`odradek down`, `odradek restart` and `odradek broker`."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

import typer

from odradek import run_module
from odradek.commands.directories import NodeIds, exit_on_failure, require_brokers, require_state
from odradek.commands.options import Directory
from odradek.commands.target import DIRECTORY_DEFAULT
from odradek.commands.up import start_brokers
from odradek.local.directory import ClusterDirectory, ClusterState
from odradek.local.launch import mark_all_stopped, mark_stopped, refuse_lost_disks
from odradek.local.output import FAILED, errors
from odradek.local.processes import STOP_TIMEOUT_S, USAGE, BrokerFailed
from odradek.local.progress import print_failures, status_line
from odradek.local.readiness import await_in_sync
from odradek.local.stopping import Outcome, stop_identities

StopTimeout = Annotated[
    float,
    typer.Option(
        "--timeout", help="Seconds without progress after which a stopping broker is killed (SIGKILL).", min=0
    ),
]


def down(directory: Directory = DIRECTORY_DEFAULT, timeout_s: StopTimeout = STOP_TIMEOUT_S) -> None:
    """Stop all brokers of a local cluster with a controlled shutdown.

    A broker whose stop makes no progress for --timeout seconds is killed. Its
    next start recovers its logs. Exit code 1: a broker still runs.

    Example:

      odradek down --dir /var/tmp/kafka
    """
    cluster = ClusterDirectory(directory)
    with exit_on_failure():
        state = require_state(cluster)
        identities = mark_all_stopped(cluster)
    with status_line(f"stopping {len(identities)} brokers"):
        outcomes = stop_identities(identities, timeout_s)
    for node_id, outcome in outcomes.items():
        if outcome is Outcome.STOPPED:
            print(f"broker {node_id} stopped")
    ended = print_failures(identities, outcomes, timeout_s)
    stopped = sum(outcome is not Outcome.RUNNING for outcome in outcomes.values())
    print(f"stopped {stopped} of {len(state.plan.ports)} brokers")
    if not ended:
        raise typer.Exit(FAILED)


def restart(
    nodes: NodeIds = None,
    rolling: Annotated[bool, typer.Option("--rolling", help="Restart all brokers.")] = False,
    directory: Directory = DIRECTORY_DEFAULT,
    timeout_s: StopTimeout = STOP_TIMEOUT_S,
) -> None:
    """Restart brokers of a local cluster, one after the other. Clients receive only retriable errors.

    Each broker moves its leaders to other brokers, stops, and starts. The next
    broker is restarted when all replicas are in sync. The active controller is
    the last one.

    Examples:

      odradek restart --rolling --dir /var/tmp/kafka

      odradek restart 2 --dir /var/tmp/kafka
    """
    cluster = ClusterDirectory(directory)
    with exit_on_failure():
        if rolling == bool(nodes):
            raise BrokerFailed(
                "specify either the node ids of the brokers to restart, or --rolling for all brokers", USAGE
            )
        state = require_state(cluster)
        if missing := [node_id for node_id in state.plan.node_ids if node_id not in state.alive()]:
            raise BrokerFailed(
                f"broker {missing[0]} is not running; start it first: odradek start {missing[0]} --dir {cluster.path}"
            )
        selected = nodes or state.plan.node_ids
        require_brokers(cluster, state, selected)
        refuse_lost_disks(cluster, state, selected, empty=False)
        controller = wait_in_sync(cluster, state, state.plan.node_ids[0])
        for node_id in sorted(selected, key=lambda node_id: node_id == controller):
            restart_one(cluster, node_id, timeout_s)


def restart_one(cluster: ClusterDirectory, node_id: int, timeout_s: float) -> None:
    """Restart a broker, wait until all replicas are in sync, and print how long each step took."""
    began = time.monotonic()
    try:
        with status_line(f"stopping broker {node_id}"):
            identities = mark_stopped(cluster, [node_id])
            outcomes = stop_identities(identities, timeout_s)
        if not print_failures(identities, outcomes, timeout_s):
            raise typer.Exit(FAILED)
        stopped = time.monotonic()
        state = require_state(cluster)
        start_brokers(cluster, state, [node_id])
    except KeyboardInterrupt:
        errors.print(
            f"broker {node_id} is stopped; start it with: odradek start {node_id} --dir {cluster.path}", markup=False
        )
        raise
    ready = time.monotonic()
    wait_in_sync(cluster, state, node_id)
    print(
        f"broker {node_id}: stopped in {stopped - began:.1f} s, ready after {ready - stopped:.1f} s, "
        f"in sync after {time.monotonic() - ready:.1f} s",
        flush=True,
    )


def wait_in_sync(cluster: ClusterDirectory, state: ClusterState, first: int) -> int | None:
    """Wait until every replica is in sync in the metadata of broker `first`.

    Return the node id of the active controller.

    `first` should be the broker that was started last, because it has caught up with the metadata log. Another broker
    may not yet have applied the records that removed replicas from ISRs.
    """
    others = [node_id for node_id in state.plan.node_ids if node_id != first]
    bootstrap = ",".join(state.plan.endpoint(node_id) for node_id in (first, *others))
    with status_line("waiting until all replicas are in sync"):
        return await_in_sync(bootstrap, len(state.plan.ports), cluster.own_client_config(state.plan))


def broker(
    config: Annotated[
        Path | None, typer.Option(help="Properties file in Kafka's format.", exists=True, dir_okay=False)
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Set a property. It overrides the file and the environment.", metavar="NAME=VALUE"),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse unknown names in the file, which are warnings otherwise.")
    ] = False,
    profile: Annotated[
        Path | None,
        typer.Option(
            help="Write a profile to this file when the broker stops: flame graph (.svg), speedscope (.json) or "
            "folded stacks (.folded).",
            dir_okay=False,
        ),
    ] = None,
) -> None:
    """Run one broker in the foreground, for containers and for clusters of several hosts.

    The environment overrides the file: ODRADEK_LOG_DIRS sets log.dirs. --set
    overrides both.

    Examples:

      odradek broker --config server.properties --set log.dirs=/data

      odradek broker --config server.properties --strict

      ODRADEK_LOG_DIRS=/data odradek broker --config server.properties

      odradek broker --config server.properties --profile broker.svg
    """
    argv = run_module.command("odradek.broker")
    if config is not None:
        argv += ["--config", str(config)]
    for setting in settings or []:
        argv += ["--set", setting]
    if strict:
        argv.append("--strict")
    if profile is not None:
        argv += ["--profile", str(profile)]
    os.execve(argv[0], argv, run_module.environment())
