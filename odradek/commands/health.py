"""`odradek health`: one exit code for the state of a cluster, and what to do."""

from __future__ import annotations

import os
import re
import textwrap
from typing import TYPE_CHECKING

import typer

from odradek import client
from odradek.commands.options import Json
from odradek.commands.outputs import Output, Shape
from odradek.commands.requests import attempt, settings
from odradek.commands.target import Target, find, on_cluster
from odradek.local.output import FAILED, errors
from odradek.plurals import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from odradek.client import ClusterStatus, PartitionDescription

CHECKED = Output("health", more=("healthy", "problems"), shape=Shape.OBJECT)
PROBLEMS = Output("health", more=("node_id", "topic", "partition", "problem", "remedy"), within="problems")
UNREACHABLE = 2
"""Exit code if no broker responds, the login fails, or the cluster cannot be found."""
COLUMNS = 80
COMMAND = re.compile(r"odradek [^;]+")
"""A command in a remedy."""
NO_BREAK = "\0"
"""Character in place of the spaces at which a line is not divided."""
LISTED_MAX = 20
"""Maximum problems that the text names. The JSON has all."""


@on_cluster
def health(target: Target, as_json: Json = False) -> None:
    """Check the cluster, for scripts and for probes of containers.

    Exit code 0: it is healthy. 1: it is not, and the output says what is wrong
    and what to do. 2: it was not checked, for example because no broker
    responds.

    Examples:

      odradek health

      odradek health --bootstrap kafka-1:9092 --json
    """
    try:
        found = find(target, os.environ)
        status = attempt(found.bootstrap, client.cluster_status, settings(found.command_config, partial=True))
    except (client.ClientError, OSError) as error:
        if as_json:
            CHECKED.print_json({"healthy": None, "problems": PROBLEMS.rows([cause(error)])})
        else:
            unreachable = isinstance(error, client.Unreachable | client.ConnectionLost)
            errors.print(wrapped(f"unreachable: {error}" if unreachable else str(error)), markup=False)
        raise typer.Exit(UNREACHABLE) from error
    problems = problems_of(status)
    if as_json:
        CHECKED.print_json({"healthy": not problems, "problems": PROBLEMS.rows(problems)})
    elif problems:
        for row in problems[:LISTED_MAX]:
            print(wrapped(f"{row['problem']}: {row['remedy']}"))
        if len(problems) > LISTED_MAX:
            print(f"{len(problems) - LISTED_MAX} more problems; all: odradek health --json")
    else:
        print(f"healthy: {counted(len(status.brokers), 'broker')}, {counted(len(status.partitions), 'partition')}")
    if problems:
        raise typer.Exit(FAILED)


def wrapped(line: str) -> str:
    """Return a line in as many lines of at most 80 columns as it needs. The later ones are indented.

    A command is not divided, so that it can be copied. A longer word stays whole, too.
    """
    whole_commands = COMMAND.sub(lambda command: command[0].replace(" ", NO_BREAK), line)
    lines = textwrap.wrap(
        whole_commands, COLUMNS, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(lines).replace(NO_BREAK, " ")


def cause(error: client.ClientError | OSError) -> dict[str, object]:
    """Return the problem and the remedy of an error because of which the cluster was not checked."""
    if isinstance(error, client.ClientError):
        general = "odradek health --help" if isinstance(error, client.InvalidArgument) else "odradek status"
        return {"problem": error.problem, "remedy": error.remedy or f"see: {general}"}
    return {"problem": str(error), "remedy": "name a cluster with --dir or --bootstrap"}


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
    if status.voters is None:
        remedy = "start a majority of the voters, or log in as a user with DESCRIBE on the cluster"
        problems.append({"problem": "the active controller is not known", "remedy": remedy})
    elif status.controller is None:
        remedy = f"start a majority of the voters, which are {named(status.voters)}"
        problems.append({"problem": "there is no active controller", "remedy": remedy})
    for broker in status.brokers:
        node_id, reason = broker.node_id, status.unreachable.get(broker.node_id)
        if broker.fenced:
            remedy = f"start it; if it will not return: odradek brokers unregister {node_id}"
            problems.append({"node_id": node_id, "problem": f"broker {node_id} is fenced", "remedy": remedy})
        elif reason is not None:
            remedy = f"see its log, and whether this host reaches {broker.host}:{broker.port}"
            problem = f"broker {node_id} does not respond ({reason})"
            problems.append({"node_id": node_id, "problem": problem, "remedy": remedy})
    problems += offline_problems(status)
    behind = set(status.under_replicated)
    for row in status.partitions:
        name = f"{row.topic}-{row.partition}"
        place = {"topic": row.topic, "partition": row.partition}
        if row.leader < 0:
            problems.append(
                {**place, "problem": f"partition {name} has no leader", "remedy": leader_remedy(status, row)}
            )
        elif name in behind:
            missing = [node for node in row.replicas if node not in row.isr or node not in serving(status)]
            problem = f"partition {name} lacks {named(missing, 'replica')}"
            problems.append({**place, "problem": problem, "remedy": replica_remedy(status, missing)})
    return problems


def serving(status: ClusterStatus) -> set[int]:
    """Return the node ids of the brokers that are not fenced and respond."""
    return {broker.node_id for broker in status.brokers if not broker.fenced} - set(status.unreachable)


def named(nodes: Sequence[int], noun: str = "broker") -> str:
    """Return node ids as text: "broker 1", "brokers 1, 2"."""
    return f"{noun}{'s' * (len(nodes) > 1)} {', '.join(map(str, nodes))}"


def leader_remedy(status: ClusterStatus, row: PartitionDescription) -> str:
    """Return what lets a partition without a leader have one: a replica of its ISR must run."""
    candidates = row.isr or row.replicas
    if stopped := [node for node in candidates if node not in serving(status)]:
        one = named(stopped) if len(stopped) == 1 else f"one of the {named(stopped)}"
        unclean = f"odradek partitions elect {row.topic}:{row.partition} --unclean"
        return f"start {one}; if that is not possible, elect a replica that may lack records: {unclean}"
    return f"see the log of {named(candidates)} for a failed log directory"


def replica_remedy(status: ClusterStatus, missing: Sequence[int]) -> str:
    """Return what brings missing replicas into the ISR."""
    fenced = {broker.node_id for broker in status.brokers if broker.fenced}
    listed = {broker.node_id for broker in status.brokers}
    steps = []
    if unlisted := [node for node in missing if node not in listed]:
        steps.append(f"start {named(unlisted)} with the listener that this command uses")
    if stopped := [node for node in missing if node in fenced]:
        steps.append(f"start {named(stopped)}")
    if silent := [node for node in missing if node in listed - fenced - serving(status)]:
        steps.append(f"see the log of {named(silent)}")
    if late := [node for node in missing if node in serving(status)]:
        steps.append(f"wait for {named(late)} to catch up, or see the log there")
    return "; ".join(steps)
