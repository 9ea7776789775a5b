"""One HTML page with the results of `make bench`, and with the growth curves of `make growth`. It needs no other file.

Draw the page again from recorded results: `python -m benchmarks.page build/bench/bench.json`.
"""

from __future__ import annotations

import argparse
import sys
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.chart import TITLE, TOP_PERCENT, median_timelines, plotted
from benchmarks.growth_chart import HEIGHT_INCHES, html_table, plot_growth
from benchmarks.recording import GROWTH, RECORDED, Bench, read_bench, read_growth
from benchmarks.report import HEADINGS, PARTS, lines, table_title
from odradek.pipeline.pictures.figure import new_figure, svg
from odradek.pipeline.pictures.page import page, picture, table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.report import Part, Results

PAGE = "report.html"
"""Name of the page, which is beside the results."""
RECORDED_GROWTH = RECORDED / "growth.json"


def write_page(path: Path, bench: Bench, growth: Path = GROWTH) -> Path:
    """Write the page, and return its path. `growth` has the results of `make growth`, if that has run."""
    content = [
        "<h1>Odradek compared with Apache Kafka</h1>",
        f"<p>{escape(bench.about.describe())}, by <code>make bench</code>.</p>",
        *(text for name, results in bench.parts.items() for text in _part(PARTS[name], results)),
        *_growth(growth),
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page("Benchmark", content), encoding="utf-8")
    return path


def _part(part: Part, results: Results) -> Iterator[str]:
    found = lines(part.rows, results)
    missed = sum(not line.met for line in found)
    yield f"<h2>{escape(part.title)}</h2>"
    yield f"<p>{escape(table_title(part, results))}. Targets missed: {missed}.</p>"
    classes = {"met": "ok", "missed": "violated"}
    yield from table(HEADINGS, [(*line.cells(), line.result()) for line in found], classes)
    if kills := median_timelines(results):
        with plotted(kills) as figure:
            yield picture(svg(figure, "kills", TITLE))
        yield f"<p>One round per system: the one with the median gap. A strip ends at {TOP_PERCENT} percent.</p>"


def _growth(path: Path) -> Iterator[str]:
    yield "<h2>Growth: three brokers with more and more partitions</h2>"
    measured = path.exists()
    growth = read_growth(path if measured else RECORDED_GROWTH)
    origin = growth.about.describe()
    if measured:
        yield f"<p>{escape(origin)}, by <code>make growth</code>.</p>"
    else:
        yield (
            f"<p><b>Recorded figures, not of this machine today:</b> {escape(origin)}. "
            "<code>make growth</code> measures them here, and the next page shows them.</p>"
        )
    with new_figure(HEIGHT_INCHES) as figure:
        plot_growth(figure, growth.runs)
        yield picture(svg(figure, "growth", "Figures by number of partitions"))
    yield from html_table(growth.runs)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.page", description=__doc__)
    parser.add_argument("results", type=Path, help="results of make bench, as JSON")
    parser.add_argument("--growth", type=Path, default=GROWTH, help="results of make growth (default: %(default)s)")
    parser.add_argument("--out", type=Path, help=f"page to write (default: {PAGE} beside the results)")
    options = parser.parse_args()
    print(write_page(options.out or options.results.with_name(PAGE), read_bench(options.results), options.growth))
    return 0


if __name__ == "__main__":
    sys.exit(main())
