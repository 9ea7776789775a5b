"""The live view of ``status``: the same tables, drawn anew whenever there is something new to say."""

from __future__ import annotations

import contextlib
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from odradek.commands.status import (
    BROKER_COLUMNS,
    GROUP_COLUMNS,
    PARTITION_COLUMNS,
    TRANSACTION_COLUMNS,
    UNKNOWN,
    broker_row,
    known,
    open_known,
    remarks,
)
from odradek.local.output import table_of
from odradek.local.questions import answer_lines

if TYPE_CHECKING:
    from collections.abc import Mapping

    from odradek.local.directory import ClusterDirectory, ClusterState

BROKER_SHOWN = tuple(name for name in BROKER_COLUMNS if name != "log")  # a line of a terminal has no room for it


def follow(cluster: ClusterDirectory, every_s: float, console: Console | None = None) -> None:
    """Until Ctrl-C. Raises Unanswered."""
    state = cluster.read_state()
    assert state is not None
    bootstrap = ",".join(state.plan.endpoint(node_id) for node_id in state.plan.node_ids)
    screen = console or Console()
    with (
        contextlib.suppress(KeyboardInterrupt),
        Live(console=screen, screen=screen.is_terminal, auto_refresh=False, vertical_overflow="crop") as live,
    ):
        for line in answer_lines("status", "--bootstrap", bootstrap, "--every-s", str(every_s)):
            state = cluster.read_state() or state
            live.update(view(cluster, state, json.loads(line)), refresh=True)


def view(cluster: ClusterDirectory, state: ClusterState, answer: Mapping[str, Any]) -> RenderableType:
    """What matters most comes first: partitions may be more than fit."""
    failed = answer.get("failed")
    told = UNKNOWN if failed else answer
    now = datetime.now(UTC).isoformat(sep=" ", timespec="seconds")
    rows = [broker_row(cluster, state, node_id, told) for node_id in state.plan.node_ids]
    parts: list[RenderableType] = [
        Text(f"{state.plan.cluster_id}  {now}  Ctrl-C ends", style="dim"),
        table_of(rows, {name: name for name in BROKER_SHOWN}),
        *(Text(line, style="bold yellow") for line in remarks(told)),
    ]
    if failed:
        parts.append(Text(str(failed), style="bold red"))
    partitions = None if told["partitions"] is None else [row for row in told["partitions"] if not row["internal"]]
    sections = (
        ("open transactions", open_known(told), told["transactions"], {name: name for name in TRANSACTION_COLUMNS}),
        ("groups", known(told["groups"]), told["groups"], GROUP_COLUMNS),
        ("partitions", known(partitions), partitions, {name: name for name in PARTITION_COLUMNS}),
    )
    for title, count, found, columns in sections:
        parts += [Text(), Text(f"{title}: {count}", style="bold")]
        if found:
            parts.append(table_of(found, columns))
    return Group(*parts)
