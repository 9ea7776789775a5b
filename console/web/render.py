"""Templates of the pages, and the formats of numbers, sizes and times in them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse

from odradek.console.model.content import visible
from odradek.console.web.guard import access_of
from odradek.console.web.navigation import NAVIGATION
from odradek.console.web.queries import address
from odradek.version import __version__

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

STATIC: Final = Path(__file__).parent.parent / "static"
TEMPLATES: Final = Path(__file__).parent.parent / "templates"
UNKNOWN: Final = "\u2013"
"""Text of a value that is not known."""
SIZES: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
THEMES: Final = ("light", "dark")
NAME_CHARACTERS_MAX: Final = 250
"""Maximum characters of a name in a table or a heading. A topic has at most 249; a client id may have 32,767."""
THEME_COOKIE: Final = "odradek_console_theme"


def render(request: Request, template: str, *, status: int = 200, **values: Any) -> Response:
    """Render a template in the frame of the console, or its block `live` alone for a stream."""
    access = access_of(request)
    settings = request.app.state.settings
    theme = request.cookies.get(THEME_COOKIE, "")
    text = ENVIRONMENT.get_template(template).render(
        frame=getattr(request.state, "frame", "base.html"),
        path=request.url.path,
        navigation=NAVIGATION,
        csrf=access.token,
        user=None if access.viewer is None else access.viewer.user,
        needs_login=settings.needs_login,
        allow_actions=settings.allow_actions,
        bootstrap=settings.bootstrap,
        theme=theme if theme in THEMES else "",
        version=__version__,
        **values,
    )
    return HTMLResponse(text, status)


def count(number: int | None) -> str:
    """Return a number with thousands separated."""
    return UNKNOWN if number is None else f"{number:,}"


def size(number: int | None) -> str:
    """Return a number of bytes with three digits and a unit."""
    if number is None:
        return UNKNOWN
    value, unit = float(number), SIZES[0]
    for unit in SIZES:
        if value < 1024 or unit == SIZES[-1]:
            break
        value /= 1024
    return f"{number} B" if unit == "B" else f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f} {unit}"


def moment(milliseconds: int | None) -> str:
    """Return a time in ms since 1970 as text in UTC."""
    if milliseconds is None or milliseconds < 0:
        return UNKNOWN
    try:
        found = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{milliseconds} ms"
    return found.strftime("%Y-%m-%d %H:%M:%S.") + f"{milliseconds % 1000:03d}"


def duration(milliseconds: float | None) -> str:
    """Return a duration in its two largest units."""
    if milliseconds is None:
        return UNKNOWN
    if milliseconds < 1000:
        return f"{milliseconds:.0f} ms"
    seconds = int(milliseconds // 1000)
    for unit, length, smaller, part in (("d", 86_400, "h", 3_600), ("h", 3_600, "min", 60), ("min", 60, "s", 1)):
        if seconds >= length:
            return f"{seconds // length} {unit} {seconds % length // part} {smaller}"
    return f"{seconds} s"


def percent(part: float, whole: float) -> int:
    """Return a part in percent, from 0 to 100."""
    return 0 if whole <= 0 else max(0, min(100, round(100 * part / whole)))


def short(name: str | None) -> str:
    """Return the begin of a name, and the number of its characters if it is too long for a table."""
    if not name:
        return UNKNOWN
    return name if len(name) <= NAME_CHARACTERS_MAX else f"{name[:NAME_CHARACTERS_MAX]}… ({len(name):,} characters)"


def _printable(value: object) -> object:
    """Return the output of an expression of a template. Names that clients choose must not change the text around them.

    The results of macros are unchanged: their own expressions have been replaced. So are those of the filter `e`: the
    value of a field has it, because the browser sends the value again.
    """
    return visible(value) if type(value) is str else value


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters |= {"count": count, "size": size, "moment": moment, "duration": duration, "short": short}
    environment.globals |= {"address": address, "percent": percent, "UNKNOWN": UNKNOWN}
    return environment


ENVIRONMENT: Final = _environment()
