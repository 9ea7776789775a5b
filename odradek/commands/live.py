"""Live view of `odradek status`: its tables, refreshed at an interval."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from odradek import client
from odradek.commands.requests import exit_on_client_error, settings
from odradek.commands.status_rows import (
    BROKER_COLUMNS,
    GROUP_COLUMNS,
    PARTITION_COLUMNS,
    TRANSACTION_COLUMNS,
    UNKNOWN,
    broker_row,
    count_text,
    open_transactions_text,
    status_values,
    warnings,
)
from odradek.local.output import table_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from odradek.client import Settings
    from odradek.local.directory import ClusterDirectory, ClusterState

COLUMNS_SHOWN = tuple(name for name in BROKER_COLUMNS if name != "log")
"""Columns of the brokers. The path of the log is left out, because it would not fit on a line."""


def follow(
    cluster: ClusterDirectory, command_config: Path | None, interval_s: float, console: Console | None = None
) -> None:
    """Show the status of the cluster until Ctrl-C, and refresh it every `interval_s` seconds."""
    state = cluster.read_state()
    assert state is not None
    screen = console or Console()
    with exit_on_client_error():
        with_settings = settings(command_config, partial=True)
    with (
        contextlib.suppress(KeyboardInterrupt),
        Live(console=screen, screen=screen.is_terminal, auto_refresh=False, vertical_overflow="crop") as live,
    ):
        asyncio.run(_follow(cluster, state, with_settings, interval_s, live))


async def _follow(
    cluster: ClusterDirectory, state: ClusterState, with_settings: Settings, interval_s: float, live: Live
) -> None:
    bootstrap = ",".join(state.plan.endpoint(node_id) for node_id in state.plan.node_ids)
    while True:
        try:
            async with client.Cluster(bootstrap, with_settings) as connected:
                values = status_values(await client.cluster_status(connected))
        except client.ClientError as error:
            values = {"failed": str(error)}
        state = cluster.read_state() or state
        live.update(view(cluster, state, values), refresh=True)
        await asyncio.sleep(interval_s)


def view(cluster: ClusterDirectory, state: ClusterState, values: Mapping[str, Any]) -> RenderableType:
    """Return the view of a cluster. Partitions are last, because they may not fit on the screen.

    `values` is a result of `status_values`, or has the reason why no broker responded as `failed`.
    """
    failed = values.get("failed")
    shown = UNKNOWN if failed else values
    now = datetime.now(UTC).isoformat(sep=" ", timespec="seconds")
    rows = [broker_row(cluster, state, node_id, shown) for node_id in state.plan.node_ids]
    parts: list[RenderableType] = [
        Text(f"{state.plan.cluster_id}  {now}  Ctrl-C ends", style="dim"),
        table_of(rows, {name: name for name in COLUMNS_SHOWN}),
        *(Text(line, style="bold yellow") for line in warnings(shown)),
    ]
    if failed:
        parts.append(Text(str(failed), style="bold red"))
    partitions = None if shown["partitions"] is None else [row for row in shown["partitions"] if not row["internal"]]
    sections = (
        (
            "open transactions",
            open_transactions_text(shown),
            shown["transactions"],
            {name: name for name in TRANSACTION_COLUMNS},
        ),
        ("groups", count_text(shown["groups"]), shown["groups"], GROUP_COLUMNS),
        ("partitions", count_text(partitions), partitions, {name: name for name in PARTITION_COLUMNS}),
    )
    for title, count, section, columns in sections:
        parts += [Text(), Text(f"{title}: {count}", style="bold")]
        if section:
            parts.append(table_of(section, columns))
    return Group(*parts)
