"""`odradek health`: one exit code for the state of a cluster, and what to do."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import typer

from odradek import client
from odradek.commands.options import Json
from odradek.commands.outputs import Output, Shape
from odradek.commands.requests import attempt, settings
from odradek.commands.target import Target, find, on_cluster
from odradek.local.output import FAILED, counted, errors

if TYPE_CHECKING:
    from odradek.client import ClusterStatus

CHECKED = Output("health", more=("healthy", "problems"), shape=Shape.OBJECT)
PROBLEMS = Output("health", more=("node_id", "topic", "partition", "problem", "remedy"), within="problems")
UNREACHABLE = 2
"""Exit code if no broker responds, or if the cluster cannot be found."""
LISTED_MAX = 20
"""Maximum problems that the text names. The JSON has all."""


@on_cluster
def health(target: Target, as_json: Json = False) -> None:
    """Check the cluster, for scripts and for probes of containers.

    Exit code 0: it is healthy. 1: it is not, and each line says what is wrong and
    what to do. 2: no broker responds.

    Examples:

      odradek health

      odradek health --bootstrap kafka-1:9092 --json
    """
    try:
        found = find(target, os.environ)
        status = attempt(found.bootstrap, client.cluster_status, settings(found.command_config, partial=True))
    except (client.ClientError, OSError) as error:
        if as_json:
            problem = {"problem": str(error), "remedy": "start the brokers"}
            CHECKED.print_json({"healthy": None, "problems": PROBLEMS.rows([problem])})
        else:
            errors.print(f"unreachable: {error}", markup=False)
        raise typer.Exit(UNREACHABLE) from error
    problems = problems_of(status)
    if as_json:
        CHECKED.print_json({"healthy": not problems, "problems": PROBLEMS.rows(problems)})
    elif problems:
        for row in problems[:LISTED_MAX]:
            print(f"{row['problem']}: {row['remedy']}")
        if len(problems) > LISTED_MAX:
            print(f"{len(problems) - LISTED_MAX} more problems; all: odradek health --json")
    else:
        print(f"healthy: {counted(len(status.brokers), 'broker')}, {counted(len(status.partitions), 'partition')}")
    if problems:
        raise typer.Exit(FAILED)


def offline_problems(status: ClusterStatus) -> list[dict[str, object]]:
    """Return the log directories and the partitions that are offline on brokers that respond."""
    problems: list[dict[str, object]] = []
    for broker in status.brokers:
        remedy = f"repair its disk, then restart broker {broker.node_id}"
        for path in broker.offline_log_dirs or ():
            problem = f"broker {broker.node_id} has an offline log directory, {path}"
            problems.append({"node_id": broker.node_id, "problem": problem, "remedy": remedy})
        for name in broker.offline_partitions or ():
            topic, _, index = name.rpartition("-")
            place = {"node_id": broker.node_id, "topic": topic, "partition": int(index)}
            problem = f"partition {name} is offline on broker {broker.node_id}"
            problems.append({**place, "problem": problem, "remedy": remedy})
    return problems


def problems_of(status: ClusterStatus) -> list[dict[str, object]]:
    """Return what is wrong with a cluster, each with its remedy. Without problems, the list is empty."""
    problems: list[dict[str, object]] = []
    if status.controller is None:
        problems.append({"problem": "there is no active controller", "remedy": "start a majority of the voters"})
    down = {broker.node_id: "is fenced" for broker in status.brokers if broker.fenced}
    down |= {node_id: f"does not respond ({reason})" for node_id, reason in status.unreachable.items()}
    for node_id, reason in sorted(down.items()):
        remedy = f"start it, or remove it permanently: odradek brokers unregister {node_id}"
        problems.append({"node_id": node_id, "problem": f"broker {node_id} {reason}", "remedy": remedy})
    problems += offline_problems(status)
    listed = {broker.node_id for broker in status.brokers}
    behind = set(status.under_replicated)
    for row in status.partitions:
        name = f"{row.topic}-{row.partition}"
        place = {"topic": row.topic, "partition": row.partition}
        if row.leader < 0:
            remedy = f"start one of the brokers {', '.join(map(str, row.isr or row.replicas))}"
            problems.append({**place, "problem": f"partition {name} has no leader", "remedy": remedy})
        elif name in behind:
            missing = [node for node in row.replicas if node not in row.isr or node in down or node not in listed]
            nodes = ", ".join(map(str, missing))
            remedy = f"start broker {nodes}, or wait until it has caught up"
            if unlisted := [node for node in missing if node not in listed]:
                remedy = f"start broker {', '.join(map(str, unlisted))} with the listener that this command uses"
            problems.append({**place, "problem": f"partition {name} lacks replica {nodes}", "remedy": remedy})
    return problems
