"""Render acknowledgments over time around a kill -9, with both systems over the same time: as picture and as text."""

from __future__ import annotations

from contextlib import contextmanager
from math import floor
from typing import TYPE_CHECKING, Any

from odradek.pipeline.pictures.figure import SMALL_POINTS, TITLE_POINTS, new_figure, save
from odradek.pipeline.pictures.palette import BLUE, FAINT, INK, LINE, ORANGE, PAPER, VERMILION

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.failover import Timeline
    from benchmarks.report import Results

TITLE = "Acknowledgments around kill -9 of a broker"
BUCKET_SECONDS = 0.2
BEFORE_SECONDS = 2.0
AFTER_SECONDS_MIN = 6.0
TOP_PERCENT = 190
"""Top of a strip, in percent of the rate before the kill.

After a gap, the delayed acknowledgments arrive together: the strip shows that they are more, not how many.
"""
WIDE_SECONDS = 3.0
"""Minimum length of a gap that has its label inside."""
STRIP_INCHES = 1.25
LEVELS = " ▁▂▃▄▅▆▇█"
COLORS = (ORANGE, BLUE)

Kills = dict[str, dict[str, "Timeline"]]
"""Killed role -> system -> timeline."""


def median_timelines(results: Results) -> Kills:
    """Return, for each killed role and system, the round with the median gap."""
    kills: Kills = {}
    for name, rounds in results.items():
        for what in rounds[0].timelines:
            timelines = sorted((one.timelines[what] for one in rounds), key=lambda timeline: timeline.gap_s)
            kills.setdefault(what, {})[name] = timelines[len(timelines) // 2]
    return kills


def span(kills: Kills) -> float:
    """Return the number of seconds after the kill to show: all gaps, and three seconds more."""
    ends = [timeline.gap[1] for timelines in kills.values() for timeline in timelines.values()]
    return max(AFTER_SECONDS_MIN, max(ends, default=0.0) + 3.0)


def buckets(timeline: Timeline, after: float) -> list[int]:
    """Count the acknowledgments in each BUCKET_SECONDS, until `after` or until the end of the load."""
    last = max(timeline.acknowledged, default=0.0)
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
    """Write the picture as SVG and as PNG."""
    with plotted(kills) as figure:
        save(figure, path, TITLE)


@contextmanager
def plotted(kills: Kills) -> Iterator[Any]:
    """Yield a figure with all strips."""
    with new_figure(0.8 + STRIP_INCHES * sum(map(len, kills.values()))) as figure:
        plot(figure, kills)
        yield figure


def plot(figure: Any, kills: Kills) -> None:
    """Plot one strip per killed role and system. All strips have one axis of time."""
    after = span(kills)
    strips = iter(figure.subplots(sum(map(len, kills.values())), 1, sharex=True, squeeze=False)[:, 0])
    axes = None
    for what, timelines in kills.items():
        for number, (color, (system, timeline)) in enumerate(zip(COLORS, timelines.items(), strict=False)):
            axes = next(strips)
            if number == 0:
                axes.set_title(f"kill -9 of {what}: acknowledgments, in percent of the rate before")
            strip(axes, system, timeline, color, after)
    if axes is not None:
        axes.tick_params(labelbottom=True)
        axes.set_xlabel("seconds after the kill")


def strip(axes: Any, system: str, timeline: Timeline, color: str, after: float) -> None:
    """Plot the rate of one system, its longest gap, and the kill."""
    counts = buckets(timeline, after)
    before = counts[: round(BEFORE_SECONDS / BUCKET_SECONDS)]
    rate = max(sum(before) / len(before), 1.0) if before else 1.0
    edges = [number * BUCKET_SECONDS - BEFORE_SECONDS for number in range(len(counts) + 1)]
    percents = [100 * count / rate for count in counts]
    axes.stairs(percents, edges, color=color, fill=True, alpha=0.35, linewidth=0)
    axes.stairs(percents, edges, color=color, linewidth=1.5)
    begin, end = timeline.gap
    axes.axvspan(begin, end, color=VERMILION, alpha=0.18, linewidth=0)
    is_wide = end - begin >= WIDE_SECONDS
    text = f"{timeline.gap_s:.1f} s without an acknowledgment" if timeline.gap_s else "no gap"
    place = {"x": (begin + end) / 2, "ha": "center"} if is_wide else {"x": max(end, 0.0) + 0.15, "ha": "left"}
    background = {"facecolor": PAPER, "edgecolor": "none", "alpha": 0.85, "pad": 1.5}
    axes.text(y=TOP_PERCENT * 0.8, s=text, va="center", fontweight="bold", fontsize=TITLE_POINTS, bbox=background,
              **place)  # fmt: skip
    axes.axvline(0.0, color=INK, linewidth=1.5)
    if edges[-1] < after - BUCKET_SECONDS:
        axes.axvspan(edges[-1], after, color=LINE, alpha=0.6, linewidth=0)
        axes.text(after, 50, "not measured ", ha="right", va="center", color=FAINT, fontsize=SMALL_POINTS)
    axes.set(xlim=(-BEFORE_SECONDS, after), ylim=(0, TOP_PERCENT), yticks=(0, 100))
    axes.set_ylabel(system, rotation=0, ha="right", va="center", fontweight="bold")
    axes.tick_params(labelbottom=False)
