"""Draw the pictures of benchmarks in `docs/pictures` from the recorded figures: `python -m benchmarks.pictures`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.chart import TITLE, median_timelines, plotted
from benchmarks.growth_chart import HEIGHT_INCHES, plot_growth
from benchmarks.recording import RECORDED, ROOT, read_bench, read_growth
from benchmarks.report import KILLS
from odradek.pipeline.pictures.figure import new_figure, svg_file

PICTURES = ROOT / "docs" / "pictures"


def draw_all(out: Path) -> list[Path]:
    """Write all pictures as SVG, and return their paths."""
    kills = median_timelines(read_bench(RECORDED / "kills.json").parts[KILLS])
    written = [out / "kill.svg", out / "growth.svg"]
    with plotted(kills) as figure:
        svg_file(figure, written[0], TITLE)
    with new_figure(HEIGHT_INCHES) as figure:
        plot_growth(figure, read_growth(RECORDED / "growth.json").runs)
        svg_file(figure, written[1], "Figures by number of partitions")
    return written


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pictures", description=__doc__)
    parser.add_argument("--out", type=Path, default=PICTURES, help="directory (default: %(default)s)")
    for path in draw_all(parser.parse_args().out):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
