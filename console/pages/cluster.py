"""The page of the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.responses import RedirectResponse
from starlette.routing import Route

from odradek.console.model.cluster import read_cluster
from odradek.console.web.guard import viewer_of
from odradek.console.web.live import live
from odradek.console.web.render import render

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response


async def first(request: Request) -> Response:
    """Lead to the page of the cluster."""
    return RedirectResponse("/cluster", 303)


async def page(request: Request) -> Response:
    """Show the cluster."""
    viewer = viewer_of(request)
    return render(request, "cluster.html", cluster=await read_cluster(viewer.cluster, viewer.all_topics()))


ROUTES: Final = (Route("/", first), Route("/cluster", live(page)))
