"""The demo's picture: how the run went, and what the job found."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

    from odradek.pipeline.producer.supervisor import Campaign, Death

INK, FAINT, COMMITTED, SEEN, KILL = "#22303c", "#8a97a3", "#2a7fb8", "#e08a1e", "#c62f3b"
ORIGINS = ("EWR", "JFK", "LGA")
Series = list[tuple[float, int]]


def cumulative(steps: Series, start: float) -> tuple[list[float], list[float]]:
    """(time, rows) pairs -> seconds since start, thousands of rows so far."""
    seconds, totals, total = [0.0], [0.0], 0
    for at, rows in steps:
        total += rows
        seconds.append(at - start)
        totals.append(total / 1000)
    return seconds, totals


def draw(path: Path, campaign: Campaign, seen: Series, delays: pd.DataFrame, start: float, headline: str) -> None:
    """Write the picture as PNG. ``seen`` are Spark's batches: time of day as in the campaign, rows."""
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
        timeline(figure.add_subplot(top[0]), figure.add_subplot(top[1]), campaign, seen, start)
        heat_map(figure.add_subplot(grid[1, 0]), delays)
        dumbbells(figure.add_subplot(grid[1, 1]), delays)
        figure.suptitle(headline, fontsize=15, fontweight="bold", x=0.01, ha="left")
        figure.savefig(path)
        plt.close(figure)


def timeline(axes: Any, legend: Any, campaign: Campaign, seen: Series, start: float) -> None:
    """Committed and seen over time; kills as lines, aborted transactions as ticks; in words beside it."""
    written = cumulative(campaign.commits, start)
    read = cumulative(seen, start)
    axes.fill_between(*written, step="post", color=COMMITTED, alpha=0.15, linewidth=0)
    axes.step(*written, where="post", color=COMMITTED, linewidth=2, label="committed by the producer")
    axes.step(*read, where="post", color=SEEN, linewidth=2, label="read by Spark, read_committed")
    top = max(written[1][-1], read[1][-1], 0.001)
    for death in campaign.deaths:
        at = death.at - start
        axes.axvline(
            at, color=KILL, linewidth=1.8 if death.in_window else 1.0, linestyle="-" if death.in_window else "--"
        )
        badge = {"boxstyle": "circle,pad=0.25", "color": KILL}
        axes.text(at, top * 1.17, death.kill.number, color="white", ha="center", va="center", fontsize=9, bbox=badge)
    what = [f"{death.kill.number}  {kill_words(death)}" for death in campaign.deaths]
    for broker_death in campaign.broker_deaths or ():
        at = broker_death.at - start
        axes.axvspan(at, broker_death.back_at - start, color=KILL, alpha=0.12, linewidth=0)
        axes.text(at, top * 1.06, f" {broker_death.kill.target}", color=KILL, va="center", fontsize=9)
        what.append(f"{broker_death.gap(campaign.commits):.2f} s without a commit: {broker_death.kill.target} killed")
    legend.axis("off")
    legend.text(0.0, 0.62, "\n".join(["SIGKILL to the producer", *what]), color=KILL, va="top", linespacing=1.6)
    ticks = [at - start for at in campaign.aborts]
    label = f"aborted transactions ({len(ticks):,})"
    axes.plot(ticks, [-top * 0.035] * len(ticks), "|", color=INK, markersize=7, alpha=0.35, label=label)
    axes.set(xlabel="seconds", ylabel="thousand flights", ylim=(-top * 0.07, top * 1.26), xlim=(0, None))
    legend.legend(*axes.get_legend_handles_labels(), loc="upper left", frameon=False, borderpad=0, borderaxespad=0)
    bare(axes)


def kill_words(death: Death) -> str:
    return "between EndTxn and its answer" if death.in_window else f"while {death.doing}"


def heat_map(axes: Any, delays: pd.DataFrame) -> None:
    table = delays.pivot_table(index="carrier", columns="origin", values="p95").reindex(columns=list(ORIGINS))
    table = table.loc[table.max(axis=1).sort_values(ascending=False).index]
    axes.imshow(table.to_numpy(), cmap="YlOrRd", aspect="auto", vmin=0)
    axes.set_xticks(range(len(ORIGINS)), ORIGINS)
    axes.set_yticks(range(len(table)), table.index)
    middle = table.max().max() * 0.62
    for row, carrier in enumerate(table.index):
        for column, origin in enumerate(ORIGINS):
            value = table.loc[carrier, origin]
            if not math.isnan(value):  # NaN: this carrier does not fly from there
                colour = "white" if value > middle else INK
                axes.text(column, row, f"{value:.0f}", ha="center", va="center", color=colour, fontsize=9)
    axes.set_title("95th percentile of the departure delay, minutes", loc="left", fontsize=11)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def dumbbells(axes: Any, delays: pd.DataFrame) -> None:
    """Mean and 95th percentile of every group; the dot is as large as the group."""
    table = delays.sort_values("p95").reset_index(drop=True)
    places = list(range(len(table)))
    axes.hlines(places, table["mean"], table["p95"], color=FAINT, linewidth=1.2, alpha=0.7)
    sizes = 12 + 260 * table["flights"] / max(table["flights"].max(), 1)
    axes.scatter(table["mean"], places, s=26, color=COMMITTED, zorder=3, label="mean")
    axes.scatter(
        table["p95"], places, s=sizes, color=SEEN, alpha=0.85, zorder=3, label="95th percentile (area: flights)"
    )
    axes.set_yticks(places, [f"{row.carrier} {row.origin}" for row in table.itertuples()], fontsize=7.5)
    axes.set_title("Departure delay by carrier and origin, minutes", loc="left", fontsize=11)
    axes.grid(axis="x", color=FAINT, alpha=0.25)
    axes.set_ylim(-0.8, len(table) - 0.2)
    axes.legend(loc="lower right", frameon=False)
    bare(axes)


def bare(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)
