"""Render acknowledgments over time around a kill -9, with both systems in one chart: as PNG and as text."""

from __future__ import annotations

from math import floor
from typing import TYPE_CHECKING

import matplotlib as mpl

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.failover import Timeline

BUCKET_SECONDS = 0.2
BEFORE_SECONDS = 2.0
AFTER_SECONDS_MIN = 6.0
HEADROOM = 1.6
"""Top of the chart, as a multiple of the rate before the kill.

After a gap, the delayed acknowledgments arrive together.
"""
LEVELS = " ▁▂▃▄▅▆▇█"
COLORS = ("tab:red", "tab:blue")

Kills = dict[str, dict[str, "Timeline"]]
"""Killed role -> system -> timeline."""


def span(kills: Kills) -> float:
    """Return the number of seconds after the kill to show: all gaps, and three seconds more."""
    gaps = [timeline.gap_s for timelines in kills.values() for timeline in timelines.values()]
    return max(AFTER_SECONDS_MIN, max(gaps, default=0.0) + 3.0)


def buckets(timeline: Timeline, after: float) -> list[int]:
    """Count the acknowledgments in each BUCKET_SECONDS."""
    last = max(timeline.acknowledged, default=0.0)  # the load ends soon after the gap
    counts = [0] * (int((BEFORE_SECONDS + min(after, last)) / BUCKET_SECONDS) + 1)
    for at in timeline.acknowledged:
        index = floor((at + BEFORE_SECONDS) / BUCKET_SECONDS)
        if 0 <= index < len(counts):
            counts[index] += 1
    return counts


def as_text(kills: Kills) -> str:
    """Render one line per system, with one character per bucket. Each line has its own scale."""
    after = span(kills)
    width = max(len(system) for timelines in kills.values() for system in timelines)
    lines = []
    for what, timelines in kills.items():
        lines.append(f"acknowledgments around kill -9 of {what}; one character is {BUCKET_SECONDS:g} s, | is the kill")
        for system, timeline in timelines.items():
            counts = buckets(timeline, after)
            top = max(counts, default=0) or 1
            bars = [LEVELS[-(-count * (len(LEVELS) - 1) // top)] for count in counts]
            bars.insert(round(BEFORE_SECONDS / BUCKET_SECONDS), "|")
            lines.append(f"  {system:<{width}} {''.join(bars)}  longest gap {timeline.gap_s:.2f} s")
    return "\n".join(lines)


def draw(kills: Kills, path: Path) -> None:
    """Write the chart as PNG."""
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    after = span(kills)
    figure, axes = plt.subplots(len(kills), 1, figsize=(11, 3.4 * len(kills)), squeeze=False)
    for axis, (what, timelines) in zip(axes[:, 0], kills.items(), strict=True):
        top = 1.0
        for color, (system, timeline) in zip(COLORS, timelines.items(), strict=False):
            counts = buckets(timeline, after)
            times = [number * BUCKET_SECONDS - BEFORE_SECONDS for number in range(len(counts))]
            rates = [count / BUCKET_SECONDS for count in counts]
            top = max(top, *rates[: round(BEFORE_SECONDS / BUCKET_SECONDS)])
            label = f"{system}: longest gap {timeline.gap_s:.2f} s"
            axis.step(times, rates, where="post", color=color, label=label)
            axis.fill_between(times, rates, step="post", color=color, alpha=0.15)
        axis.set_ylim(0, top * HEADROOM)
        axis.axvline(0.0, color="black", linestyle="--", linewidth=1)
        axis.set_title(f"kill -9 of {what}")
        axis.set_xlabel("seconds from the kill")
        axis.set_ylabel("acknowledgments / s")
        axis.legend()
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)
