"""The page of metrics, and the data of its charts as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from starlette.responses import JSONResponse
from starlette.routing import Route

from odradek.console.model.charts import BROKER_CHARTS, PROTOCOL_CHARTS
from odradek.console.web.guard import viewer_of
from odradek.console.web.queries import number_of
from odradek.console.web.render import render

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.requests import Request
    from starlette.responses import Response

    from odradek.console.model.observer import Observer
    from odradek.console.model.scraper import Scraper
    from odradek.console.model.series import Chart, History


async def page(request: Request) -> Response:
    """Show the charts. A script fills them."""
    observer, scraper = _sources(request)
    return render(
        request,
        "metrics.html",
        protocol_charts=PROTOCOL_CHARTS,
        broker_charts=BROKER_CHARTS if scraper.enabled else (),
        observer=observer,
        scraper=scraper,
        latest={chart.name: observer.history.latest(chart.name) for chart in PROTOCOL_CHARTS},
    )


async def data(request: Request) -> Response:
    """Return the samples after the times `protocol` and `brokers`, in ms since 1970, as JSON."""
    observer, scraper = _sources(request)
    given = request.query_params
    return JSONResponse(
        {
            "protocol": _rows(observer.history, PROTOCOL_CHARTS, number_of(given.get("protocol"), 0)),
            "brokers": _rows(scraper.history, BROKER_CHARTS, number_of(given.get("brokers"), 0)),
        }
    )


def _sources(request: Request) -> tuple[Observer, Scraper]:
    observer = viewer_of(request).observer
    scraper: Scraper = request.app.state.scraper
    observer.start()
    return observer, scraper


def _rows(history: History, charts: Iterable[Chart], after_ms: int) -> dict[str, Any]:
    after_s = after_ms / 1000
    return {
        "times": history.times(after_s),
        "charts": {chart.name: history.rows(chart.name, after_s) for chart in charts},
    }


ROUTES: Final = (Route("/metrics", page), Route("/metrics/data", data))
