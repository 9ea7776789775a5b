"""Picture of a demo run: flights over time with all kills, and the delays that the job computed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from odradek.pipeline.flights.source import ORIGINS
from odradek.pipeline.pictures.figure import SMALL_POINTS, TEXT_POINTS, new_figure, save
from odradek.pipeline.pictures.palette import BLUE, FAINT, GREEN, INK, LINE, ORANGE, PAPER, PURPLE, VERMILION

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pandas as pd

    from odradek.pipeline.demo.run import JobResults
    from odradek.pipeline.eos.record import Record
    from odradek.pipeline.producer.supervisor import Campaign, ProducerKill

HEIGHT_INCHES: Final = 10.0
HEADROOM: Final = 1.3
"""Top of the timeline, as a multiple of the greatest number of flights. Numbers of kills are above the curves."""
MARKERS: Final = 0.2
"""Height of the rows of markers below the curves, relative to the greatest number of flights."""
BAND_ALPHA: Final = 0.3
LABEL_MINUTES: Final = 4.0
"""Distance of a number from its dot."""
DOT_MINUTES: Final = 3.0
"""Distance of a dot from the border, so that the whole dot is visible."""
LIST_LINE: Final = 0.05
"""Height of a line of a list, relative to the axes."""
Series = list[tuple[float, int]]


def cumulative(steps: Series, start: float) -> tuple[list[float], list[float]]:
    """Convert (time, rows) pairs to two lists: seconds since `start`, and the running total in thousands of rows."""
    seconds, totals, total = [0.0], [0.0], 0
    for time, rows in steps:
        total += rows
        seconds.append(time - start)
        totals.append(total / 1000)
    return seconds, totals


def write_plot(
    path: Path, campaign: Campaign, copies: Record, results: JobResults, headline: str, airlines: Mapping[str, str]
) -> None:
    """Write the picture as SVG and as PNG. `airlines` has the names of the airlines by carrier code."""
    assert results.delays is not None
    with new_figure(HEIGHT_INCHES) as figure:
        upper, lower = figure.subfigures(2, 1, height_ratios=(1.0, 1.0))
        timeline(upper, campaign, copies, results)
        delays(lower, results.delays, airlines)
        figure.suptitle(headline, x=0.01, ha="left")
        save(figure, path, headline)


def copied(copies: Record, results: JobResults) -> Series:
    """Return (seconds of time.monotonic, rows) of each batch of the exactly-once sink, when it became visible."""
    assert results.copies is not None
    rows = results.copies.groupby("batch").size()
    ends = {times.batch: times.ended_at for times in reversed(copies.batches) if times.ended_at is not None}
    return sorted((ended_at, int(rows.get(batch, 0))) for batch, ended_at in ends.items())


def timeline(figure: Any, campaign: Campaign, copies: Record, results: JobResults) -> None:
    """Plot the committed rows, the rows that Spark has read, and the copies over time.

    A legend names each line, band and marker. Two lists describe the numbered kills of the producer, and the bands of
    killed brokers.
    """
    axes, side = figure.subplots(1, 2, width_ratios=(1.0, 0.42))
    start = campaign.began
    written, read = cumulative(campaign.commits, start), cumulative(results.batches, start)
    top = max(written[1][-1], read[1][-1], 0.001)
    for color, label, curve in (
        (BLUE, "committed by the producer", written),
        (ORANGE, "read by Spark (read_committed)", read),
        (GREEN, "copied by the exactly-once sink", cumulative(copied(copies, results), start)),
    ):
        axes.step(*curve, where="post", color=color, label=label)
    for number, outage in enumerate(campaign.broker_outages or ()):
        begin, end = outage.killed_at - start, outage.in_sync_at - start
        label = "broker killed, until in sync again" if number == 0 else ""
        axes.axvspan(begin, end, color=PURPLE, alpha=BAND_ALPHA, linewidth=0, label=label)
        axes.text((begin + end) / 2, top * 1.08, outage_name(number), ha="center", va="center", fontweight="bold")
    for number, kill in enumerate(campaign.kills):
        x, label = kill.at - start, "producer killed" if number == 0 else ""
        axes.plot([x, x], [0, top * 1.16], color=VERMILION, linewidth=1.2, label=label)
        badge = {"boxstyle": "circle,pad=0.25", "facecolor": VERMILION, "edgecolor": "none"}
        axes.text(
            x, top * 1.21, kill.plan.number, color=PAPER, ha="center", va="center", fontsize=SMALL_POINTS,
            fontweight="bold", bbox=badge,
        )  # fmt: skip
    driver_kills = [at - start for at, _ in copies.times]
    axes.plot(driver_kills, [-top * MARKERS / 3] * len(driver_kills), "^", color=VERMILION, markersize=8,
              label="driver of the copies killed")  # fmt: skip
    aborts = [at - start for at in campaign.aborts]
    axes.plot(aborts, [-top * MARKERS * 0.75] * len(aborts), "|", color=FAINT, markersize=7, alpha=0.5,
              label=f"transaction aborted ({len(aborts):,})")  # fmt: skip
    axes.axhline(0, color=FAINT, linewidth=0.8)
    axes.set(xlabel="seconds", ylabel="thousand flights", ylim=(-top * MARKERS, top * HEADROOM), xlim=(0, None))
    axes.set_yticks([tick for tick in axes.get_yticks() if 0 <= tick <= top * 1.05])
    axes.spines["bottom"].set_visible(False)
    axes.set_title("Flights over time")
    side.axis("off")
    side.legend(*axes.get_legend_handles_labels(), loc="upper left", borderpad=0, borderaxespad=0)
    kills = [f"{kill.plan.number}  {kill_description(kill)}" for kill in campaign.kills]
    gaps = [
        f"{outage_name(number)}  {outage.kill.target}: {outage.gap(campaign.commits):.2f} s"
        for number, outage in enumerate(campaign.broker_outages or ())
    ]
    write_lists(side, {"Producer kills": kills, "Broker kills, and the longest time without a commit": gaps})


def write_lists(axes: Any, lists: Mapping[str, list[str]]) -> None:
    """Write lists from the bottom to the top. A list without lines is left out."""
    height = 0.0
    for heading, texts in reversed(list(lists.items())):
        for text in reversed([heading, *texts] if texts else []):
            weight = "bold" if text is heading else "normal"
            axes.text(0.0, height, text, va="bottom", fontsize=SMALL_POINTS, fontweight=weight)
            height += LIST_LINE
        height += LIST_LINE / 2 if texts else 0.0


def outage_name(number: int) -> str:
    """Return the letter of the outage of a broker."""
    return chr(ord("A") + number)


def kill_description(kill: ProducerKill) -> str:
    return "between EndTxn and its response" if kill.in_window else f"last event: {kill.last_event}"


def delays(figure: Any, found: pd.DataFrame, airlines: Mapping[str, str]) -> None:
    """Plot mean and 95th percentile of the departure delay: one chart per origin, one row per carrier."""
    order = found.groupby("carrier")["p95"].max().sort_values()
    rows = {carrier: row for row, carrier in enumerate(order.index)}
    charts = figure.subplots(1, len(ORIGINS), sharex=True, sharey=True)
    for axes, origin in zip(charts, ORIGINS, strict=True):
        own = found[found["origin"] == origin]
        positions = [rows[carrier] for carrier in own["carrier"]]
        axes.hlines(positions, own["mean"], own["p95"], color=FAINT, linewidth=1.2)
        axes.plot(own["mean"], positions, "o", color=BLUE, label="mean")
        axes.plot(own["p95"], positions, "D", color=ORANGE, label="95th percentile")
        for position, value in zip(positions, own["p95"], strict=True):
            axes.text(value + LABEL_MINUTES, position, f"{value:.0f}", va="center", fontsize=SMALL_POINTS, color=INK)
        axes.set_title(f"from {origin}", fontsize=TEXT_POINTS)
        axes.set_xlabel("minutes")
        axes.set_ylim(-0.7, len(rows) - 0.3)
        axes.set_yticks(list(rows.values()), [airlines.get(carrier, carrier) for carrier in rows])
        axes.grid(axis="y", color=LINE)
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
    charts[0].set_xlim(min(0.0, found["mean"].min()) - DOT_MINUTES, order.max() * 1.12 + LABEL_MINUTES)
    figure.suptitle("Departure delay by airline, as the Spark job computed it", x=0.01, ha="left")
    figure.legend(*charts[0].get_legend_handles_labels(), loc="outside upper right", ncols=2)
