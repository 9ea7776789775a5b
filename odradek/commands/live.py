"""The live view of ``status``: the same tables, drawn anew whenever there is something new to say."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from odradek import client
from odradek.commands.requests import settings
from odradek.commands.status_rows import (
    BROKER_COLUMNS,
    GROUP_COLUMNS,
    PARTITION_COLUMNS,
    TRANSACTION_COLUMNS,
    UNKNOWN,
    answer_of,
    broker_row,
    known,
    open_known,
    remarks,
)
from odradek.local.output import table_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from odradek.local.directory import ClusterDirectory, ClusterState

BROKER_SHOWN = tuple(name for name in BROKER_COLUMNS if name != "log")  # a line of a terminal has no room for it


def follow(cluster: ClusterDirectory, every_s: float, console: Console | None = None) -> None:
    """Show the status of the cluster every `every_s` seconds, until Ctrl-C."""
    state = cluster.read_state()
    assert state is not None
    screen = console or Console()
    with (
        contextlib.suppress(KeyboardInterrupt),
        Live(console=screen, screen=screen.is_terminal, auto_refresh=False, vertical_overflow="crop") as live,
    ):
        asyncio.run(_follow(cluster, state, every_s, live))


async def _follow(cluster: ClusterDirectory, state: ClusterState, every_s: float, live: Live) -> None:
    bootstrap = ",".join(state.plan.endpoint(node_id) for node_id in state.plan.node_ids)
    while True:
        try:
            async with client.Cluster(bootstrap, settings(partial=True)) as connected:
                answer = answer_of(await client.cluster_status(connected))
        except client.ClientError as error:
            answer = {"failed": str(error)}
        state = cluster.read_state() or state
        live.update(view(cluster, state, answer), refresh=True)
        await asyncio.sleep(every_s)


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
