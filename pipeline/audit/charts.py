"""Charts of an audit, as SVG."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from odradek.pipeline.audit.judgment import COMPLETING, HANGING, IN_DOUBT, OPEN, UNKNOWN
from odradek.pipeline.audit.statistics import PERCENTILES
from odradek.pipeline.pictures.figure import SMALL_POINTS, new_figure, svg
from odradek.pipeline.pictures.palette import BLUE, FAINT, GREEN, INK, PURPLE, SERIES, VERMILION

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from odradek.pipeline.audit.statistics import Churn, Holder, Latency, OpenTransaction, Rate, Statistics

COMMIT, ABORT = BLUE, VERMILION
STATES: Final = {
    OPEN: BLUE,
    IN_DOUBT: PURPLE,
    COMPLETING: GREEN,
    HANGING: VERMILION,
    UNKNOWN: FAINT,
}
ROW_INCHES: Final = 0.32
BARS_MAX: Final = 20
"""Maximum bars of a chart. The tables of the report have more rows."""
LABEL_END: Final = 24
"""Characters that the label of a long name has from each of its ends. Longer labels leave no space for bars."""


class Chart(NamedTuple):
    """A chart: `draw` adds it to axes of the given height."""

    title: str
    text: str
    height_inches: float
    draw: Callable[[Any], None]

    def svg(self) -> str:
        """Return the chart as SVG."""
        with new_figure(self.height_inches) as figure:
            self.draw(figure.subplots())
            return svg(figure, self.title.lower().replace(" ", "-"), self.title)


def charts(statistics: Statistics) -> list[Chart]:
    """Return the charts that have data."""
    found: list[Chart] = []
    if statistics.rates:
        found.append(_rates(statistics.rates, statistics.bin_ms))
    if statistics.latencies:
        found.append(_latencies(statistics.latencies))
    if statistics.open:
        found += [_open(statistics.open[:BARS_MAX]), _holders(statistics.holders)]
    if statistics.churn:
        found.append(_churn(statistics.churn))
    if statistics.coordinators:
        found.append(_coordinators(statistics.coordinators))
    return found


def _rates(rates: Sequence[Rate], bin_ms: int) -> Chart:
    starts = sorted({rate.at_ms for rate in rates})
    begin = datetime.fromtimestamp(starts[0] / 1000, UTC)
    width_s = bin_ms / 1000

    def draw(axes: Any) -> None:
        above, below = dict.fromkeys(starts, 0.0), dict.fromkeys(starts, 0.0)
        for number, prefix in enumerate(sorted({rate.prefix for rate in rates})):
            own = [rate for rate in rates if rate.prefix == prefix]
            x = [(rate.at_ms - starts[0]) / 1000 + width_s / 2 for rate in own]
            color = SERIES[number % len(SERIES)]
            commits = [rate.commits * 60 / width_s for rate in own]
            aborts = [-rate.aborts * 60 / width_s for rate in own]
            bottoms = [[level[rate.at_ms] for rate in own] for level in (above, below)]
            axes.bar(x, commits, width_s * 0.92, bottoms[0], color=color, label=_label(prefix))
            axes.bar(x, aborts, width_s * 0.92, bottoms[1], color=color, alpha=0.6)
            for rate, up, down in zip(own, commits, aborts, strict=True):
                above[rate.at_ms] += up
                below[rate.at_ms] += down
        axes.axhline(0, color=INK, linewidth=0.8)
        axes.yaxis.set_major_formatter(lambda value, _: f"{abs(value):,.0f}")
        axes.set(xlabel=f"seconds since {begin:%Y-%m-%d %H:%M:%S} UTC", ylabel="decisions per minute")
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))

    text = f"By prefix of the transactional id, in intervals of {width_s:,.0f} s. Above 0: commits. Below 0: aborts."
    return Chart("Decisions per minute", text, 3.2, draw)


def _latencies(latencies: Sequence[Latency]) -> Chart:
    def draw(axes: Any) -> None:
        labels = []
        for row, latency in enumerate(latencies):
            color = COMMIT if latency.commit else ABORT
            for offset, marker, values in ((-0.18, "o", latency.application), (0.18, "s", latency.markers)):
                shown = [max(value, 1.0) for value in values]  # the axis is logarithmic
                axes.hlines(row + offset, shown[0], shown[-1], color=color, linewidth=1, alpha=0.5)
                for value, alpha in zip(shown, (1.0, 0.7, 0.45), strict=True):
                    axes.plot(value, row + offset, marker, color=color, alpha=alpha, markersize=6)
            decisions = f"{latency.decisions:,} {'commits' if latency.commit else 'aborts'}"
            labels.append(f"{_label(latency.prefix)}\n{decisions}")
        axes.set_xscale("log")
        axes.grid(axis="x", color=FAINT, alpha=0.25)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        _label_rows(
            axes, labels, f"ms ({', '.join(f'p{share * 100:.0f}' for share in PERCENTILES)}, from left to right)"
        )

    text = (
        "Circles: from the first partition to the Prepare record (application). "
        "Squares: from the Prepare to the Complete record (markers). Blue: commits. Vermilion: aborts."
    )
    return Chart("Latency", text, 1.0 + 2 * ROW_INCHES * len(latencies), draw)


def _open(found: Sequence[OpenTransaction]) -> Chart:
    def draw(axes: Any) -> None:
        colors = [STATES[each.state] for each in found]
        bars = axes.barh(range(len(found)), [each.age_ms / 1000 for each in found], color=colors)
        axes.bar_label(
            bars, [f"{each.state}, partitions: {each.partitions}" for each in found], padding=3, fontsize=SMALL_POINTS
        )
        _label_rows(axes, [_name(each) for each in found], "seconds")

    text = "Age of the oldest data of each transaction without a marker, at the end of the logs."
    return Chart("Open and in-doubt transactions", text, 1.0 + ROW_INCHES * len(found), draw)


def _holders(holders: Sequence[Holder]) -> Chart:
    found = sorted(holders, key=lambda each: -each.behind)[:BARS_MAX]

    def draw(axes: Any) -> None:
        bars = axes.barh(
            range(len(found)), [each.behind for each in found], color=[STATES[each.state] for each in found]
        )
        axes.bar_label(bars, [f"{_name(each)}, {each.state}" for each in found], padding=3, fontsize=SMALL_POINTS)
        _label_rows(axes, [_label(f"{each.topic}-{each.partition}") for each in found], "offsets")

    text = "Offsets from the last stable offset to the end of the log, and the transaction that holds it back."
    return Chart("Partitions that are held back", text, 1.0 + ROW_INCHES * len(found), draw)


def _churn(churn: Sequence[Churn]) -> Chart:
    def draw(axes: Any) -> None:
        for offset, color, values, label in (
            (-0.2, SERIES[1], [each.initializations for each in churn], "initializations"),
            (0.2, SERIES[0], [each.identities for each in churn], "identities"),
        ):
            axes.barh([row + offset for row in range(len(churn))], values, 0.36, color=color, label=label)
        axes.legend(loc="lower right")
        _label_rows(axes, [_label(each.transactional_id) for each in churn], "number")

    text = (
        "Initializations (InitProducerId) and identities (producer id and epoch) "
        "of the transactional ids with the most initializations."
    )
    return Chart("Epoch churn", text, 1.0 + 1.2 * ROW_INCHES * len(churn), draw)


def _coordinators(counts: Mapping[int, int]) -> Chart:
    last = max(counts)

    def draw(axes: Any) -> None:
        axes.bar(range(last + 1), [counts.get(index, 0) for index in range(last + 1)], color=SERIES[0])
        axes.set(xlabel="partition of __transaction_state", ylabel="decisions", xlim=(-0.6, last + 0.6))

    text = "Decisions by partition of __transaction_state, which the hash of the transactional id selects."
    return Chart("Coordinator partitions", text, 2.4, draw)


def _name(each: OpenTransaction | Holder) -> str:
    return _label(each.transactional_id) if each.transactional_id else f"producer {each.producer_id}"


def _label(name: str) -> str:
    """Return the label of a name that a client chose. Characters that cannot be printed are replaced.

    matplotlib takes text between dollar signs for a formula, unless they are escaped. It leaves a label out of the
    legend that begins with an underscore.
    """
    short = name if len(name) <= 2 * LABEL_END else f"{name[:LABEL_END]}\N{HORIZONTAL ELLIPSIS}{name[-LABEL_END:]}"
    printable = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in short)
    escaped = printable.replace("$", r"\$")
    return f" {escaped}" if escaped.startswith("_") else escaped


def _label_rows(axes: Any, labels: Sequence[str], unit: str) -> None:
    """Label rows from the top to the bottom, and leave space for labels at the right."""
    axes.set_yticks(range(len(labels)), labels)
    axes.set_xlabel(unit)
    axes.margins(x=0.25)
    axes.set_ylim(len(labels) - 0.4, -0.6)
