"""``down``, ``restart``, ``broker``: brokers of this machine."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

import typer

from odradek import run_module
from odradek.commands.options import DIRECTORY_DEFAULT, Directory
from odradek.commands.up import NodeIds, add, reasons, state_of
from odradek.local.directory import ClusterDirectory, ClusterState
from odradek.local.launch import forget, forget_all
from odradek.local.output import errors
from odradek.local.processes import STOP_TIMEOUT_S, USAGE, BrokerFailed
from odradek.local.readiness import await_in_sync
from odradek.local.startup import stop_identities


def down(directory: Directory = DIRECTORY_DEFAULT) -> None:
    """Stop a local cluster cleanly.

    Example:

      odradek down --dir /var/tmp/kafka
    """
    cluster = ClusterDirectory(directory)
    with reasons():
        state = state_of(cluster)
        running = forget_all(cluster)
    tell_killed(stop_identities(running))
    print(f"stopped {len(running)} of {len(state.plan.ports)} brokers")


def tell_killed(node_ids: list[int]) -> None:
    for node_id in node_ids:
        errors.print(f"broker {node_id} did not stop within {STOP_TIMEOUT_S:.0f} s: killed", markup=False)


def restart(
    nodes: NodeIds = None,
    rolling: Annotated[bool, typer.Option("--rolling", help="All brokers.")] = False,
    directory: Directory = DIRECTORY_DEFAULT,
) -> None:
    """Restart brokers of a local cluster one at a time, without an error that clients do not retry by themselves.

    Each hands over what it leads, stops, starts, and is in sync again with everything it holds a replica of before the next one
    stops; the active controller comes last.

    Examples:

      odradek restart --rolling --dir /var/tmp/kafka

      odradek restart 2 --dir /var/tmp/kafka
    """
    cluster = ClusterDirectory(directory)
    with reasons():
        if rolling == bool(nodes):
            raise BrokerFailed("name the brokers to restart, or say --rolling for all of them", USAGE)
        state = state_of(cluster)
        if missing := [node_id for node_id in state.plan.node_ids if node_id not in state.alive()]:
            raise BrokerFailed(
                f"broker {missing[0]} does not run; first bring it back: odradek start {missing[0]} --dir {cluster.path}"
            )
        wanted = nodes or state.plan.node_ids
        if unknown := [node_id for node_id in wanted if node_id not in state.plan.node_ids]:
            raise BrokerFailed(f"{cluster.path} has no broker {unknown[0]}; it has {state.plan.node_ids}")
        controller = in_sync(state, state.plan.node_ids[0])
        for node_id in sorted(wanted, key=lambda node_id: node_id == controller):
            restart_one(cluster, node_id)


def restart_one(cluster: ClusterDirectory, node_id: int) -> None:
    began = time.monotonic()
    try:
        tell_killed(stop_identities(forget(cluster, [node_id])))
        stopped = time.monotonic()
        state = state_of(cluster)
        add(cluster, state, [node_id])
    except KeyboardInterrupt:
        errors.print(
            f"broker {node_id} is stopped; start it with: odradek start {node_id} --dir {cluster.path}", markup=False
        )
        raise
    ready = time.monotonic()
    in_sync(state, node_id)
    print(
        f"broker {node_id}: stopped in {stopped - began:.1f} s, ready after {ready - stopped:.1f} s, "
        f"in sync after {time.monotonic() - ready:.1f} s",
        flush=True,
    )


def in_sync(state: ClusterState, first: int) -> int | None:
    """Wait until every replica of every partition is in sync, as broker `first` sees it. Returns the active controller.

    The one that was started last is asked: it has caught up with the metadata, whereas another may not have heard yet that
    anything was out of sync.
    """
    others = [node_id for node_id in state.plan.node_ids if node_id != first]
    bootstrap = ",".join(state.plan.endpoint(node_id) for node_id in (first, *others))
    return await_in_sync(bootstrap, len(state.plan.ports))


def broker(
    config: Annotated[
        Path | None, typer.Option(help="Kafka-style .properties file.", exists=True, dir_okay=False)
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="A property that overrides the file.", metavar="NAME=VALUE")
    ] = None,
    profile: Annotated[
        Path | None,
        typer.Option(
            help="Write a profile to this file when the broker stops: flame graph (.svg), speedscope (.json) or folded stacks (.folded).",
            dir_okay=False,
        ),
    ] = None,
) -> None:
    """Run one broker in the foreground, for containers and real hosts.

    Properties come from the file, then from the environment (ODRADEK_LOG_DIRS=/data), then from --set.

    Examples:

      odradek broker --config server.properties --set log.dirs=/data

      ODRADEK_LOG_DIRS=/data ODRADEK_LISTENERS=PLAINTEXT://:9092 odradek broker

      odradek broker --config server.properties --profile broker.svg
    """
    argv = run_module.command("odradek.broker")
    if config is not None:
        argv += ["--config", str(config)]
    for setting in settings or []:
        argv += ["--set", setting]
    if profile is not None:
        argv += ["--profile", str(profile)]
    os.execve(argv[0], argv, run_module.environment())
