"""The page of metrics, and the samples of its charts as JSON."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Final

from starlette.routing import Route

from odradek.console.model.charts import BROKER_CHARTS, PROTOCOL_CHARTS
from odradek.console.web.guard import viewer_of
from odradek.console.web.live import live
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


def samples(request: Request, position: str) -> tuple[str, str]:
    """Return the samples after a position as JSON, and the position of the next ones.

    A position has the times of the last samples of the cluster and of the brokers, in ms since 1970. A browser returns
    it when it connects again. An invalid one stands for the begin.
    """
    observer, scraper = _sources(request)
    first, _, second = position.partition("-")
    after = number_of(first, 0), number_of(second, 0)
    histories = observer.history, scraper.history
    content = {
        "whole": after == (0, 0),
        "protocol": _rows(observer.history, PROTOCOL_CHARTS, after[0]),
        "brokers": _rows(scraper.history, BROKER_CHARTS, after[1]),
    }
    reached = (
        max(before, *(math.ceil(time * 1000) for time in history.times(before / 1000)), 0)
        for before, history in zip(after, histories, strict=True)
    )
    return json.dumps(content), "-".join(map(str, reached))


def _sources(request: Request) -> tuple[Observer, Scraper]:
    observer = viewer_of(request).observer
    scraper: Scraper = request.app.state.scraper
    return observer, scraper


def _rows(history: History, charts: Iterable[Chart], after_ms: int) -> dict[str, Any]:
    after_s = after_ms / 1000
    return {
        "times": history.times(after_s),
        "charts": {chart.name: history.rows(chart.name, after_s) for chart in charts},
    }


ROUTES: Final = (Route("/metrics", live(page, samples)),)
