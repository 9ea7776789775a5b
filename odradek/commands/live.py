"""Live view of `odradek status`: its tables, refreshed at an interval, in a window that scrolls."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
import termios
import tty
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.segment import Segment
from rich.text import Text

from odradek import client
from odradek.commands.requests import exit_on_client_error, settings
from odradek.commands.status_rows import (
    BROKERS,
    GROUPS,
    PARTITIONS,
    TRANSACTIONS,
    UNKNOWN,
    Local,
    broker_rows,
    count_text,
    open_transactions_text,
    status_values,
    warnings,
)
from odradek.local.output import fitting_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from odradek.client import Settings
    from odradek.commands.target import Found

COLUMNS_SHOWN = tuple(name for name in BROKERS.table if name != "log")
"""Columns of the brokers. The path of the log is left out, because it would not fit on a line."""
OPTIONAL = (
    "pid", "metrics", "log_bytes", "rack", "under_replicated", "log_start_offset", "log_end_offset", "producer_epoch",
    "replicas", "producer_id", "type",
)  # fmt: skip
"""Columns that are left out, in this order, if a table is wider than the terminal."""
LINES_BY_KEY = {"j": 1, "\x1b[B": 1, "\x1bOB": 1, "k": -1, "\x1b[A": -1, "\x1bOA": -1}
PAGES_BY_KEY = {" ": 1, "\x1b[6~": 1, "b": -1, "\x1b[5~": -1}
QUIT_KEY = "q"
KEYS_HINT = "arrow keys, space and b scroll, q ends"
ENDED_HINT = "all: odradek status --once"
KEYS_BYTES_MAX = 64
"""Maximum bytes of keys per read."""
KEY = re.compile(r"\x1b[\[O][0-9;]*[A-Za-z~]|.", re.DOTALL)
"""One key of a terminal. A read returns several keys if a key is held down, or while the view is rendered."""


class Window:
    """The lines of a view that fit on the screen. The last line says how many more there are.

    Attributes:
        content: The whole view.
        first: First line that is shown.
        page: Lines that the screen showed last.
        hint: What to do for more lines.
    """

    def __init__(self, content: RenderableType = "") -> None:
        self.content = content
        self.first = 0
        self.page = 1
        self.hint = KEYS_HINT

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(self.content, options.update(height=None), pad=False)
        height = console.height
        self.page = height - 1
        fits = len(lines) <= height - 1
        self.first = 0 if fits else max(0, min(self.first, len(lines) - self.page))
        shown = lines[self.first : self.first + self.page]
        for line in shown:
            yield from line
            yield Segment.line()
        if not fits:
            more = len(lines) - self.first - len(shown)
            yield Text(f"{more} more lines; {self.hint}", style="dim", end="")

    def press(self, key: str) -> None:
        """Scroll by a key, within the view. Other keys have no effect."""
        self.first = max(0, self.first + LINES_BY_KEY.get(key, 0) + PAGES_BY_KEY.get(key, 0) * self.page)


def follow(found: Found, local: Local | None, interval_s: float, console: Console | None = None) -> None:
    """Show the status of the cluster until Ctrl-C, and refresh it every `interval_s` seconds.

    The last view stays on the terminal.
    """
    screen = console or Console()
    with exit_on_client_error():
        with_settings = settings(found.command_config, partial=True)
    window = Window()
    with (
        contextlib.suppress(KeyboardInterrupt),
        Live(window, console=screen, screen=screen.is_terminal, auto_refresh=False, vertical_overflow="crop") as live,
        single_keys() as keys,
    ):
        asyncio.run(_follow(found, local, with_settings, interval_s, live, window, keys=keys))
    window.hint = ENDED_HINT
    if screen.is_terminal:
        screen.print(window)


@contextlib.contextmanager
def single_keys() -> Iterator[int | None]:
    """Let standard input deliver each key without a line end. Yield its descriptor, or None if it is not a terminal."""
    if sys.stdin is None or not sys.stdin.isatty():
        yield None
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield descriptor
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


async def _follow(
    found: Found,
    local: Local | None,
    with_settings: Settings,
    interval_s: float,
    live: Live,
    window: Window,
    *,
    keys: int | None,
) -> None:
    ended = asyncio.Event()
    if keys is not None:

        def pressed() -> None:
            read = keys_of(os.read(keys, KEYS_BYTES_MAX))
            if not read or QUIT_KEY in read:
                ended.set()
            for key in read:
                window.press(key)
            live.refresh()

        asyncio.get_running_loop().add_reader(keys, pressed)
    while not ended.is_set():
        bootstrap = found.bootstrap if local is None else local.state.plan.bootstrap
        try:
            async with client.Cluster(bootstrap, with_settings) as connected:
                values = status_values(await client.cluster_status(connected))
        except client.ClientError as error:
            values = {"failed": str(error)}
        local = None if local is None else local.read_again()
        window.content = view(local, values, live.console.width)
        live.refresh()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), interval_s)


def keys_of(data: bytes) -> list[str]:
    """Return the keys that a terminal has sent, in their order."""
    return KEY.findall(data.decode(errors="replace"))


def view(local: Local | None, values: Mapping[str, Any], width: int) -> RenderableType:
    """Return the view of a cluster. Partitions are last, because they may not fit on the screen.

    `values` is a result of `status_values`, or has the reason why no broker responded as `failed`.
    """
    failed = values.get("failed")
    shown = UNKNOWN if failed else values
    now = datetime.now(UTC).isoformat(sep=" ", timespec="seconds")
    cluster_id = shown["cluster_id"] if local is None else local.state.plan.cluster_id
    parts: list[RenderableType] = [
        Text(f"{cluster_id or 'cluster'}  {now}  Ctrl-C ends", style="dim"),
        fitting_table(broker_rows(local, shown), COLUMNS_SHOWN, OPTIONAL, width),
        *(Text(line, style="bold yellow") for line in warnings(shown)),
    ]
    if failed:
        parts.append(Text(str(failed), style="bold red"))
    partitions = None if shown["partitions"] is None else [row for row in shown["partitions"] if not row["is_internal"]]
    sections = (
        (
            "open transactions",
            open_transactions_text(shown),
            shown["transactions"],
            TRANSACTIONS.table,
        ),
        ("groups", count_text(shown["groups"]), shown["groups"], GROUPS.table),
        ("partitions", count_text(partitions), partitions, PARTITIONS.table),
    )
    for title, count, section, columns in sections:
        parts += [Text(), Text(f"{title}: {count}", style="bold")]
        if section:
            parts.append(fitting_table(section, columns, OPTIONAL, width))
    return Group(*parts)
