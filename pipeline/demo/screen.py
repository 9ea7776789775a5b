"""Terminal output of the demo: progress bars while it runs, and tables at its end."""

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
from rich.table import Column, Table

from odradek.pipeline.eos.plan import End
from odradek.pipeline.faults.broker_kills import longest_gap
from odradek.pipeline.flights.plan import KillKind, Target
from odradek.pipeline.flights.source import ORIGINS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from types import TracebackType

    import pandas as pd

    from odradek.pipeline.demo.verification import CopiesResult, VerificationResult
    from odradek.pipeline.eos.record import Record
    from odradek.pipeline.faults.broker_kills import BrokerOutage
    from odradek.pipeline.flights.plan import BrokerKill
    from odradek.pipeline.producer.supervisor import Campaign, ProducerKill


class Screen:
    """Progress bars of a run. The methods for events may be called from any thread."""

    def __init__(
        self, console: Console, hours: int, rows: int, kills: int, driver_kills: int, broker_kills: int = 0
    ) -> None:
        self._console = console
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=None, table_column=Column(ratio=1)),
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
        self._driver_kills = self._bar("driver of the copies killed", driver_kills)
        self._broker_kills = self._bar("brokers killed, in sync again", broker_kills) if broker_kills else None
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

    def print(self, text: str) -> None:
        """Print a line above the progress bars."""
        self._console.print(text, highlight=False)

    def producer_event(self, event: dict[str, Any]) -> None:
        """Show an event of the producer or of its supervisor."""
        match event["event"]:
            case "resumed":
                self._progress.update(self._hours, completed=event["hour"])
            case "committed":
                self._progress.update(self._hours, completed=event["hour"] + 1)
            case "aborted":
                self._aborts += 1
                self._progress.update(self._hours, note=f"{self._aborts} aborted")
            case "killed":
                self._progress.advance(self._kills)
                self.print(f"  [red]killed[/] {kill_line(event['kill'])}")

    def broker_event(self, event: dict[str, Any]) -> None:
        """Show an event of `BrokerKiller`."""
        match event["event"]:
            case "broker killed":
                kill: BrokerKill = event["kill"]
                self.print(f"  [red]killed[/] broker {event['node_id']}, {target_description(kill)}")
            case "broker in sync":
                assert self._broker_kills is not None
                outage: BrokerOutage = event["outage"]
                self._progress.advance(self._broker_kills)
                seconds = outage.in_sync_at - outage.killed_at
                self.print(f"  broker {outage.node_id} runs and is in sync {seconds:.1f} s after its kill")

    def copier_event(self, line: str, kills: int) -> None:
        """Show a line of the runs of the driver, and the number of its kills."""
        self._progress.update(self._driver_kills, completed=kills)
        self.print(f"  copies: {line}")

    def batch(self, query: str, rows: int) -> None:
        """Advance the bar of a query by the rows of one micro-batch."""
        self._progress.advance(self._rows if query == "rows" else self._groups, rows)


def kill_line(kill: ProducerKill) -> str:
    """Return one line that describes a kill of the producer."""
    attempt = f" [dim]{kill.attempt}[/]" if kill.attempt else ""
    text = f"run {kill.run} of the producer, last event {kill.last_event}{attempt}"
    held = kill.held_commit
    if kill.plan.kind is KillKind.TIMED:
        return f"{text}, {kill.plan.delay_seconds * 1e3:.1f} ms after a commit"
    if held is None or held.killed_at is None:
        return f"{text}, no EndTxn response was withheld"
    text += f", {(held.killed_at - held.sent_at) * 1e3:.2f} ms after its EndTxn"
    if held.response_at is None:
        return f"{text}; the broker sent no response"
    outcome = "success" if held.error == 0 else f"error {held.error}"
    return f"{text}; response '{outcome}' after {(held.response_at - held.sent_at) * 1e3:.2f} ms withheld"


def target_description(kill: BrokerKill) -> str:
    if kill.target is Target.LEADER:
        return f"leader of partition {kill.partition} of the flights topic"
    return "coordinator of the producer's transactional id"


def gap_lines(campaign: Campaign) -> list[str]:
    """Return lines with the longest time without a commit, after each broker kill and in the whole run."""
    lines = [
        f"{outage.gap(campaign.commits):.2f} s: longest time without a commit after the kill of broker "
        f"{outage.node_id}, {target_description(outage.kill)}"
        for outage in campaign.broker_outages or ()
    ]
    return [
        *lines,
        f"{longest_gap(campaign.commits):.2f} s: longest time without a commit in the run, including producer kills",
    ]


def delays_table(delays: pd.DataFrame, names: Mapping[str, str]) -> Table:
    """Return a table with one line per carrier and three columns per origin, in descending order of the percentile."""
    title = "Departure delay in minutes: flights, mean, 95th percentile"
    table = Table(title=title, header_style="bold", title_style="", box=None, padding=(0, 2, 0, 0))
    table.add_column("airline", no_wrap=True)
    for origin in ORIGINS:
        for head in (origin, "mean", "p95"):
            table.add_column(head, justify="right")
    groups = {(row.carrier, row.origin): row for row in delays.itertuples()}
    worst = delays.groupby("carrier")["p95"].max().sort_values(ascending=False)
    for carrier in worst.index:
        cells = [names.get(carrier, carrier)]
        for origin in ORIGINS:
            row = groups.get((carrier, origin))
            cells += ["", "", ""] if row is None else [f"{row.flights:,}", f"{row.mean:.1f}", f"[bold]{row.p95:.0f}[/]"]
        table.add_row(*cells)
    return table


def kills_table(kills: list[ProducerKill], committed: Collection[str]) -> Table:
    """Return a table of the producer kills. `committed` has the names of the committed attempts."""
    table = Table(title="Kills of the producer", header_style="bold", title_style="")
    for head in ("kill", "time of the kill", "outcome of the transaction"):
        table.add_column(head)
    for kill in kills:
        outcome = "committed" if kill.attempt in committed else "not committed" if kill.attempt else "-"
        table.add_row(f"{kill.plan.number} {kill.plan.kind}", kill_line(kill), outcome)
    return table


def driver_kills_table(record: Record) -> Table:
    """Return a table of the kills of the driver that copies the flights."""
    table = Table(title="Kills of the driver of the exactly-once sink", header_style="bold", title_style="")
    for head in ("kill", "time of the kill", "last batch", "outcome of the batch"):
        table.add_column(head)
    writers = {times.batch: times.run for times in record.batches if times.written}
    for number, (_, run) in enumerate(record.times, 1):
        step = run.end_at.step if run.end is End.STEP and run.end_at is not None else ""
        batches = record.batches_of(run.number)
        last = batches[-1].batch if batches else None
        table.add_row(str(number), f"{run.end} {step}", *batch_outcome(last, run.number, writers))
    return table


def batch_outcome(batch: int | None, run: int, writers: Mapping[int, int]) -> tuple[str, str]:
    """Return the last batch of a killed run, and its outcome. `writers` has the last run that wrote each batch."""
    if batch is None:
        return "", "no batch had begun"
    return str(batch), "visible" if writers.get(batch) == run else "aborted, then written by the next run"


def result_panel(
    result: VerificationResult, copies: CopiesResult, passed: bool, uncommitted: int, missing_faults: list[str]
) -> Panel:
    """Return a panel with the counts of the verification, its findings, and the missing faults."""
    table = Table.grid(padding=(0, 3))
    table.add_column(justify="right")
    table.add_column()

    def line(count: int, text: str, *, must_be_zero: bool = True) -> None:
        color = "" if not must_be_zero else "bold green" if count == 0 else "bold red"
        table.add_row(f"[{color}]{count:,}[/]" if color else f"{count:,}", text)

    line(result.expected, "rows expected", must_be_zero=False)
    line(result.seen, "rows seen", must_be_zero=False)
    line(result.lost, "rows lost")
    line(result.duplicated, "rows duplicated")
    line(result.aborted, f"aborted rows seen (the log contains {uncommitted:,})")
    line(result.altered, "rows altered")
    line(result.wrong_groups, "carrier and origin groups that differ from the source")
    line(result.wrong_hours, "transactions not committed exactly once")
    line(result.lost_commits, "acknowledged commits lost")
    line(copies.rows.seen, f"rows copied by the exactly-once sink, in {copies.batches} batches", must_be_zero=False)
    line(copies.rows.lost, "copies lost")
    line(copies.rows.duplicated, "copies duplicated")
    line(copies.rows.aborted, "copies of aborted rows")
    line(copies.rows.altered, "copies altered")
    line(copies.mixed, "batches with copies of several runs of the driver")
    title = "[bold green]PASSED[/]" if passed else "[bold red]FAILED[/]"
    findings = [f"[red]{text}[/]" for text in (*result.findings, *copies.rows.findings, *missing_faults)]
    return Panel(Group(table, *findings), title=title, expand=False, padding=(1, 3))
