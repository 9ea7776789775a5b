"""HTML pages with results. A page needs no other file and no network, and follows the color scheme of the browser."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

from odradek.pipeline.pictures.figure import FONTS, dark_scheme
from odradek.pipeline.pictures.palette import DARK, FAINT, GREEN, INK, LINE, PAPER, VERMILION

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

COLORS: Final = {"ink": INK, "faint": FAINT, "line": LINE, "paper": PAPER, "good": GREEN, "bad": VERMILION}
STYLE: Final = """
body { font: 15px/1.5 FONTS; color: var(--ink); background: var(--paper); margin: 2rem auto; max-width: 66rem;
  padding: 0 1rem; }
h1 { font-size: 1.6rem; margin: 0; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .3rem; }
p { margin: .3rem 0 .8rem; color: var(--faint); } b { color: var(--ink); }
.ok, .violated { font-weight: bold; } .ok::before { content: "\\2713\\A0"; color: var(--good); }
.violated::before { content: "\\2717\\A0"; color: var(--bad); }
.counts { display: flex; flex-wrap: wrap; gap: .8rem; margin: 1.2rem 0; }
.counts div { border: 1px solid var(--line); border-radius: 8px; padding: .6rem 1rem; min-width: 7rem; }
.counts b { display: block; font-size: 1.5rem; font-variant-numeric: tabular-nums; }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: .86rem; }
th, td { text-align: left; padding: .3rem .6rem .3rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th.number, td.number {  text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
figure { margin: 1rem 0; } svg { max-width: 100%; height: auto; }
"""


def page(title: str, parts: Iterable[str]) -> str:
    """Return a page. `parts` are elements of HTML."""
    light = " ".join(f"--{name}: {color};" for name, color in COLORS.items())
    dark = " ".join(f"--{name}: {DARK[color]};" for name, color in COLORS.items())
    scheme = (
        f":root {{ color-scheme: light dark; {light} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}"
    )
    style = STYLE.replace("FONTS", ", ".join(f'"{font}"' if " " in font else font for font in FONTS))
    head = (
        "<meta charset=utf-8><meta name=viewport content='width=device-width, initial-scale=1'>"
        f"<title>{escape(title)}</title><style>{scheme}{style}{dark_scheme()}</style>"
    )
    return "\n".join(["<!doctype html>", "<html lang=en>", head, *parts, "</html>", ""])


def picture(svg: str) -> str:
    """Return the element of a picture. The page has its style sheet."""
    return f"<figure>{svg}</figure>"


def table(
    headings: Sequence[str], rows: Iterable[Iterable[str | int]], classes: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Yield a table. Integers and texts that begin with a digit are numbers. `classes` has classes of texts."""
    found = [list(row) for row in rows]
    yield "<div class=wide><table><tr>"
    for column, heading in enumerate(headings):
        values = [row[column] for row in found if row[column] != ""]
        mark = " class=number" if values and all(map(_is_number, values)) else ""
        yield f"<th{mark}>{escape(heading)}</th>"
    yield "</tr>"
    for row in found:
        yield "<tr>" + "".join(_cell(value, classes or {}) for value in row) + "</tr>"
    yield "</table></div>"


def _cell(value: str | int, classes: Mapping[str, str]) -> str:
    if value in classes:
        return f"<td><span class={classes[str(value)]}>{escape(str(value))}</span></td>"
    text = f"{value:,}" if isinstance(value, int) else escape(value)
    return f"<td class=number>{text}</td>" if _is_number(value) else f"<td>{text}</td>"


def _is_number(value: str | int) -> bool:
    return isinstance(value, int) or value[:1].isdigit()
