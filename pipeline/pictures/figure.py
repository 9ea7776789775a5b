"""Figures of matplotlib in the style of the project, as SVG for both color schemes and as PNG."""

from __future__ import annotations

import io
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from xml.sax.saxutils import escape

import matplotlib as mpl
from cycler import cycler

from odradek.pipeline.pictures.palette import DARK, FAINT, INK, LINE, PAPER, SERIES

mpl.use("Agg")
from matplotlib import pyplot as plt

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WIDTH_INCHES: Final = 11.0
"""Width of all pictures. At the width of a text column, about 800 pixels, the smallest text has 9 pixels."""
TEXT_POINTS: Final = 10
SMALL_POINTS: Final = 9
TITLE_POINTS: Final = 12
LINE_POINTS: Final = 2.0
PNG_DOTS_PER_INCH: Final = 130
FONTS: Final = ("DejaVu Sans", "Verdana", "sans-serif")
"""Fonts in order of preference. matplotlib contains the first one. Verdana has nearly the same widths."""
STYLE: Final[dict[Any, Any]] = {
    "font.family": FONTS[:1],
    "font.size": TEXT_POINTS,
    "axes.titlesize": TITLE_POINTS,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.titlecolor": INK,
    "figure.titlesize": TITLE_POINTS,
    "figure.titleweight": "bold",
    "legend.fontsize": TEXT_POINTS,
    "legend.frameon": False,
    "lines.linewidth": LINE_POINTS,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "axes.facecolor": PAPER,
    "figure.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "axes.prop_cycle": cycler(color=SERIES),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": LINE,
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "svg.fonttype": "none",
    "svg.hashsalt": "odradek",
    "savefig.dpi": PNG_DOTS_PER_INCH,
}
IDENTIFIER: Final = re.compile(r'(?<=\bid=")|(?<=url\(#)|(?<=href="#)')


@contextmanager
def new_figure(height_inches: float, width_inches: float = WIDTH_INCHES) -> Iterator[Any]:
    """Yield a new figure with the style. The style is in effect until the end of the block."""
    with plt.rc_context(STYLE):
        figure = plt.figure(figsize=(width_inches, height_inches), layout="constrained")
        try:
            yield figure
        finally:
            plt.close(figure)


def svg(figure: Any, name: str, title: str) -> str:
    """Return a figure as an SVG element without its style sheet. `name` makes its identifiers unique on a page."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    _, start, content = buffer.getvalue().partition("<svg ")
    attributes, end, content = content.partition(">")
    content = IDENTIFIER.sub(f"{name}-", content)
    content = content.replace(f"'{FONTS[0]}'", ", ".join(f"'{font}'" if " " in font else font for font in FONTS))
    return f'{start}role="img" {attributes}{end}\n<title>{escape(title)}</title>{content}'


def save(figure: Any, path: Path, title: str) -> None:
    """Write `path` as SVG, which follows the color scheme of the viewer, and as PNG on a white background beside it."""
    svg_file(figure, path, title)
    figure.savefig(path.with_suffix(".png"))


def svg_file(figure: Any, path: Path, title: str) -> None:
    """Write `path` as SVG with its style sheet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    start, end, content = svg(figure, path.stem, title).partition(">")
    path.write_text(f"{start}{end}\n<style>{dark_scheme()}</style>{content}", encoding="utf-8")


def dark_scheme() -> str:
    """Return CSS that replaces the colors of pictures if the color scheme is dark.

    A viewer without support for it shows the colors for a light background.
    """
    rules = [
        f'[style*="{attribute}: {light}"] {{ {attribute}: {dark} !important }}'
        for light, dark in DARK.items()
        for attribute in ("fill", "stroke")
    ]
    return "\n@media (prefers-color-scheme: dark) {\n" + "\n".join(rules) + "\n}\n"
