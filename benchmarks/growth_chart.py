"""Targets, table and curves of the figures of `make growth`, by number of partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from odradek.pipeline.pictures import page
from odradek.pipeline.pictures.figure import SMALL_POINTS, TEXT_POINTS
from odradek.pipeline.pictures.palette import BLUE, INK, ORANGE, PAPER, SERIES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.recording import GrowthRun

TARGETS = {
    "create: longest callback ms": 10.0,
    "create: worst pulse / foreign load": 3.0,
    "clean stop: s": 3.0,
    "clean stop: first acknowledgment s": 5.0,
    "kill -9 of all: first acknowledgment s": 8.0,
    "kill -9 of one: gap s": 1.0,
}
"""Targets of Odradek with 10,000 partitions on an idle machine of two cores, by figure."""

COLUMNS = 3
HEIGHT_INCHES = 5.6
COLORS = {"Odradek": BLUE, "Apache Kafka": ORANGE}
HEADROOM = 1.25
"""Top of a chart, as a multiple of its greatest value or target."""


def plot_growth(figure: Any, runs: Sequence[GrowthRun]) -> None:
    """Plot one chart per figure with a target: one curve per system, and the target as a line."""
    rows = -(-len(TARGETS) // COLUMNS)
    charts = figure.subplots(rows, COLUMNS, sharex=True, squeeze=False).flat
    systems = list(dict.fromkeys(run.system for run in runs))
    sizes = sorted({run.partitions for run in runs})
    for axes, (name, target) in zip(charts, TARGETS.items(), strict=False):
        values = [target]
        for number, system in enumerate(systems):
            own = sorted((run.partitions, run.figures[name]) for run in runs
                         if run.system == system and name in run.figures)  # fmt: skip
            color = COLORS.get(system, SERIES[number % len(SERIES)])
            axes.plot(*zip(*own, strict=True), "o-", color=color, label=system) if own else None
            for partitions, value in own:
                axes.annotate(
                    f"{value:.1f}", (partitions, value), (0, 6), textcoords="offset points", ha="center",
                    fontsize=SMALL_POINTS, bbox={"facecolor": PAPER, "edgecolor": "none", "alpha": 0.85, "pad": 0.5},
                )  # fmt: skip
            values += [value for _, value in own]
        axes.axhline(target, color=INK, linewidth=1, linestyle="--", label="target of Odradek with 10,000 partitions")
        axes.set_title(name, fontsize=TEXT_POINTS)
        axes.set_ylim(0, max(values) * HEADROOM)
        axes.set_xlim(0, max(sizes, default=1) * 1.1)
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axes.grid(axis="y")
    for axes in figure.axes[-COLUMNS:]:
        axes.set_xlabel("partitions")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside upper left", ncols=len(systems) + 1)


def table(runs: Sequence[GrowthRun]) -> str:
    """Render one row per figure, and one column per run. The last column has the targets."""
    headings, rows = cells(runs)
    lines = ["| " + " | ".join(headings) + " |", "|---" * len(headings) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def html_table(runs: Sequence[GrowthRun]) -> Iterator[str]:
    """Yield the same table in HTML."""
    yield from page.table(*cells(runs))


def cells(runs: Sequence[GrowthRun]) -> tuple[list[str], list[list[str]]]:
    """Return headings and rows of the table."""
    names = list(dict.fromkeys(name for run in runs for name in run.figures))
    rows = []
    for name in names:
        values = [f"{run.figures[name]:.2f}" if name in run.figures else "" for run in runs]
        rows.append([name, *values, f"{TARGETS[name]:.0f}" if name in TARGETS else ""])
    return ["figure", *(run.title for run in runs), "target at 10,000"], rows
