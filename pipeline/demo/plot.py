"""Plot a demo run: commits and reads over time with all kills, and the delays that the job computed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import matplotlib as mpl

from odradek.pipeline.flights.source import ORIGINS

mpl.use("Agg")
from matplotlib import pyplot as plt

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

    from odradek.pipeline.demo.run import JobResults
    from odradek.pipeline.eos.record import Record
    from odradek.pipeline.producer.supervisor import Campaign, ProducerKill

INK, FAINT, COMMITTED, SEEN, KILL = "#22303c", "#8a97a3", "#2a7fb8", "#e08a1e", "#c62f3b"
COPIED = "#3f8f4f"
Series = list[tuple[float, int]]


def cumulative(steps: Series, start: float) -> tuple[list[float], list[float]]:
    """Convert (time, rows) pairs to two lists: seconds since `start`, and the running total in thousands of rows."""
    seconds, totals, total = [0.0], [0.0], 0
    for time, rows in steps:
        total += rows
        seconds.append(time - start)
        totals.append(total / 1000)
    return seconds, totals


def write_plot(path: Path, campaign: Campaign, copies: Record, results: JobResults, headline: str) -> None:
    """Write the plot as PNG."""
    delays = results.delays
    assert delays is not None
    style: dict[Any, Any] = {
        "font.size": 10,
        "text.color": INK,
        "axes.labelcolor": INK,
        "xtick.color": INK,
        "ytick.color": INK,
    }
    with plt.rc_context(style):
        figure = plt.figure(figsize=(15, 10), dpi=130, layout="constrained")
        grid = figure.add_gridspec(2, 2, height_ratios=(1.0, 1.15), width_ratios=(1.0, 1.25))
        top = grid[0, :].subgridspec(1, 2, width_ratios=(1.0, 0.24), wspace=0.02)
        timeline(figure.add_subplot(top[0]), figure.add_subplot(top[1]), campaign, copies, results)
        heat_map(figure.add_subplot(grid[1, 0]), delays)
        dumbbells(figure.add_subplot(grid[1, 1]), delays)
        figure.suptitle(headline, fontsize=15, fontweight="bold", x=0.01, ha="left")
        figure.savefig(path)
        plt.close(figure)


def copied(copies: Record, results: JobResults) -> Series:
    """Return (seconds of time.monotonic, rows) of each batch of the exactly-once sink, when it became visible."""
    assert results.copies is not None
    rows = results.copies.groupby("batch").size()
    ends = {times.batch: times.ended_at for times in reversed(copies.batches) if times.ended_at is not None}
    return sorted((ended_at, int(rows.get(batch, 0))) for batch, ended_at in ends.items())


def timeline(axes: Any, legend: Any, campaign: Campaign, copies: Record, results: JobResults) -> None:
    """Plot the committed rows, the rows that Spark has read, and the copies over time.

    Producer kills are lines, driver kills are triangles, broker outages are areas, aborted transactions are ticks.
    `legend` lists the kills.
    """
    start = campaign.began
    written = cumulative(campaign.commits, start)
    read = cumulative(results.batches, start)
    axes.fill_between(*written, step="post", color=COMMITTED, alpha=0.15, linewidth=0)
    axes.step(*written, where="post", color=COMMITTED, linewidth=2, label="committed by the producer")
    axes.step(*read, where="post", color=SEEN, linewidth=2, label="read by Spark, read_committed")
    axes.step(*cumulative(copied(copies, results), start), where="post", color=COPIED, linewidth=2, label="copied")
    kills = [at - start for at, _ in copies.times]
    axes.plot(kills, [0.0] * len(kills), "^", color=KILL, markersize=9, clip_on=False, label="driver killed")
    top = max(written[1][-1], read[1][-1], 0.001)
    for kill in campaign.kills:
        x = kill.at - start
        axes.axvline(x, color=KILL, linewidth=1.8 if kill.in_window else 1.0, linestyle="-" if kill.in_window else "--")
        badge = {"boxstyle": "circle,pad=0.25", "color": KILL}
        axes.text(x, top * 1.17, kill.plan.number, color="white", ha="center", va="center", fontsize=9, bbox=badge)
    kill_lines = [f"{kill.plan.number}  {kill_description(kill)}" for kill in campaign.kills]
    for outage in campaign.broker_outages or ():
        x = outage.killed_at - start
        axes.axvspan(x, outage.in_sync_at - start, color=KILL, alpha=0.12, linewidth=0)
        axes.text(x, top * 1.06, f" {outage.kill.target}", color=KILL, va="center", fontsize=9)
        kill_lines.append(f"{outage.gap(campaign.commits):.2f} s without a commit: {outage.kill.target} killed")
    legend.axis("off")
    legend.text(0.0, 0.62, "\n".join(["SIGKILL to the producer", *kill_lines]), color=KILL, va="top", linespacing=1.6)
    ticks = [time_of_abort - start for time_of_abort in campaign.aborts]
    label = f"aborted transactions ({len(ticks):,})"
    axes.plot(ticks, [-top * 0.035] * len(ticks), "|", color=INK, markersize=7, alpha=0.35, label=label)
    axes.set(xlabel="seconds", ylabel="thousand flights", ylim=(-top * 0.07, top * 1.26), xlim=(0, None))
    legend.legend(*axes.get_legend_handles_labels(), loc="upper left", frameon=False, borderpad=0, borderaxespad=0)
    hide_frame(axes)


def kill_description(kill: ProducerKill) -> str:
    return "between EndTxn and its response" if kill.in_window else f"last event: {kill.last_event}"


def heat_map(axes: Any, delays: pd.DataFrame) -> None:
    """Plot the 95th percentile of each carrier and origin as a colored cell."""
    table = delays.pivot_table(index="carrier", columns="origin", values="p95").reindex(columns=list(ORIGINS))
    table = table.loc[table.max(axis=1).sort_values(ascending=False).index]
    axes.imshow(table.to_numpy(), cmap="YlOrRd", aspect="auto", vmin=0)
    axes.set_xticks(range(len(ORIGINS)), ORIGINS)
    axes.set_yticks(range(len(table)), table.index)
    middle = table.max().max() * 0.62
    for row, carrier in enumerate(table.index):
        for column, origin in enumerate(ORIGINS):
            value = table.loc[carrier, origin]
            if not math.isnan(value):  # NaN: the carrier has no flights from this origin
                color = "white" if value > middle else INK
                axes.text(column, row, f"{value:.0f}", ha="center", va="center", color=color, fontsize=9)
    axes.set_title("95th percentile of the departure delay, minutes", loc="left", fontsize=11)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def dumbbells(axes: Any, delays: pd.DataFrame) -> None:
    """Plot mean and 95th percentile of each carrier and origin. The area of a dot is the number of flights."""
    table = delays.sort_values("p95").reset_index(drop=True)
    positions = list(range(len(table)))
    axes.hlines(positions, table["mean"], table["p95"], color=FAINT, linewidth=1.2, alpha=0.7)
    sizes = 12 + 260 * table["flights"] / max(table["flights"].max(), 1)
    axes.scatter(table["mean"], positions, s=26, color=COMMITTED, zorder=3, label="mean")
    axes.scatter(
        table["p95"], positions, s=sizes, color=SEEN, alpha=0.85, zorder=3, label="95th percentile (area: flights)"
    )
    axes.set_yticks(positions, [f"{row.carrier} {row.origin}" for row in table.itertuples()], fontsize=7.5)
    axes.set_title("Departure delay by carrier and origin, minutes", loc="left", fontsize=11)
    axes.grid(axis="x", color=FAINT, alpha=0.25)
    axes.set_ylim(-0.8, len(table) - 0.2)
    axes.legend(loc="lower right", frameon=False)
    hide_frame(axes)


def hide_frame(axes: Any) -> None:
    """Hide the upper and right border of a plot."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)
