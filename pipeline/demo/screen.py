"""What the demo shows while it runs, and its tables at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from rich.console import Console, Group
from rich.panel import Panel
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from odradek.pipeline.faults.broker_kills import longest_gap
from odradek.pipeline.flights.plan import KillKind, Target

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from types import TracebackType

    import pandas as pd

    from odradek.pipeline.demo.verification import Verdict
    from odradek.pipeline.faults.broker_kills import BrokerDeath
    from odradek.pipeline.flights.plan import BrokerKill
    from odradek.pipeline.producer.supervisor import Campaign, Death

ORIGINS = ("EWR", "JFK", "LGA")


class Screen:
    """Progress bars; `producer_event` and `batch` may be called from any thread."""

    def __init__(self, console: Console, hours: int, rows: int, kills: int, broker_kills: int = 0) -> None:
        self._console = console
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TaskProgressColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            console=console,
            expand=True,
        )
        self._hours = self._bar("transactions committed", hours)
        self._rows = self._bar("rows read by Spark (Parquet)", rows)
        self._groups = self._bar("rows read by Spark (delays)", rows)
        self._kills = self._bar("producer killed", kills)
        self._broker_kills = self._bar("brokers killed and back", broker_kills) if broker_kills else None
        self._life = 0
        self._aborts = 0

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def _bar(self, description: str, total: int) -> Any:
        return self._progress.add_task(description, total=total, note="")

    def say(self, text: str) -> None:
        self._console.print(text, highlight=False)

    def producer_event(self, event: dict[str, Any]) -> None:
        match event["event"]:
            case "resumed":
                self._life += 1
                self._progress.update(self._hours, completed=event["hour"])
            case "committed":
                self._progress.update(self._hours, completed=event["hour"] + 1)
            case "aborted":
                self._aborts += 1
                self._progress.update(self._hours, note=f"{self._aborts} aborted first")
            case "killed":
                self._progress.advance(self._kills)
                self.say(f"  [red]killed[/] {death_line(event['death'])}")

    def broker_event(self, event: dict[str, Any]) -> None:
        match event["event"]:
            case "broker killed":
                kill: BrokerKill = event["kill"]
                self.say(f"  [red]killed[/] broker {event['node_id']}, {target_words(kill)}")
            case "broker back":
                assert self._broker_kills is not None
                death: BrokerDeath = event["death"]
                self._progress.advance(self._broker_kills)
                self.say(
                    f"  broker {death.node_id} is back and in sync {death.back_at - death.at:.1f} s after its kill"
                )

    def batch(self, query: str, rows: int) -> None:
        """A micro-batch of one of the two queries is done."""
        self._progress.advance(self._rows if query == "rows" else self._groups, rows)


def death_line(death: Death) -> str:
    """One kill in one line."""
    text = f"life {death.life} while {death.doing}" + (f" [dim]{death.attempt}[/]" if death.attempt else "")
    caught = death.caught
    if death.kill.kind is KillKind.TIMED:
        return f"{text}, {death.kill.delay_seconds * 1e3:.1f} ms after a commit"
    if caught is None or caught.killed_at is None:
        return f"{text}, no EndTxn was caught"
    text += f", {(caught.killed_at - caught.sent_at) * 1e3:.2f} ms after its EndTxn"
    if caught.answered_at is None:
        return f"{text}; never answered"
    outcome = "done" if caught.error == 0 else f"error {caught.error}"
    return f"{text}; '{outcome}' at {(caught.answered_at - caught.sent_at) * 1e3:.2f} ms withheld"


def target_words(kill: BrokerKill) -> str:
    if kill.target is Target.LEADER:
        return f"leader of partition {kill.partition} of the flights"
    return "coordinator of the producer's transactions"


def gap_lines(campaign: Campaign) -> list[str]:
    """How long nothing could be committed, in words."""
    lines = [
        f"{death.gap(campaign.commits):.2f} s was the longest wait for a commit after broker {death.node_id}, "
        f"{target_words(death.kill)}, was killed"
        for death in campaign.broker_deaths or ()
    ]
    return [
        *lines,
        f"{longest_gap(campaign.commits):.2f} s was the longest of the whole run, the producer's own deaths included",
    ]


def delays_table(delays: pd.DataFrame, names: Mapping[str, str]) -> Table:
    """One line a carrier, three columns an origin; worst 95th percentile first."""
    table = Table(
        title="Departure delay in minutes: flights, mean, 95th percentile", header_style="bold", title_style=""
    )
    table.add_column("carrier")
    for origin in ORIGINS:
        for head in (origin, "mean", "p95"):
            table.add_column(head, justify="right")
    groups = {(row.carrier, row.origin): row for row in delays.itertuples()}
    worst = delays.groupby("carrier")["p95"].max().sort_values(ascending=False)
    for carrier in worst.index:
        cells = [f"{carrier} [dim]{names.get(carrier, '')}[/]"]
        for origin in ORIGINS:
            row = groups.get((carrier, origin))
            cells += ["", "", ""] if row is None else [f"{row.flights:,}", f"{row.mean:.1f}", f"[bold]{row.p95:.0f}[/]"]
        table.add_row(*cells)
    return table


def kills_table(deaths: list[Death], committed: Collection[str]) -> Table:
    """What each kill hit, and what had become of that transaction when the next producer looked."""
    table = Table(title="The producer's deaths", header_style="bold", title_style="")
    for head in ("kill", "what happened", "that transaction was found"):
        table.add_column(head)
    for death in deaths:
        found = "committed" if death.attempt in committed else "not committed" if death.attempt else "-"
        table.add_row(f"{death.kill.number} {death.kill.kind}", death_line(death), found)
    return table


def verdict_panel(verdict: Verdict, passed: bool, hidden: int, notes: list[str]) -> Panel:
    """The counts. Zero is green only where zero is what must be."""
    table = Table.grid(padding=(0, 3))
    table.add_column(justify="right")
    table.add_column()

    def line(count: int, text: str, *, must_be_zero: bool = True) -> None:
        colour = "" if not must_be_zero else "bold green" if count == 0 else "bold red"
        table.add_row(f"[{colour}]{count:,}[/]" if colour else f"{count:,}", text)

    line(verdict.expected, "rows expected", must_be_zero=False)
    line(verdict.seen, "rows seen", must_be_zero=False)
    line(verdict.lost, "lost")
    line(verdict.duplicated, "duplicated")
    line(verdict.aborted, f"aborted rows seen ({hidden:,} lie in the log)")
    line(verdict.altered, "altered")
    line(verdict.wrong_groups, "carrier and origin groups that differ from the source")
    line(verdict.wrong_hours, "transactions not committed exactly once")
    line(verdict.forgotten, "acknowledged commits forgotten")
    title = "[bold green]PASSED[/]" if passed else "[bold red]FAILED[/]"
    faults = [f"[red]{text}[/]" for text in (*verdict.faults, *notes)]
    return Panel(Group(table, *faults), title=title, expand=False, padding=(1, 3))
