"""The list of groups, and the page of one group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.routing import Route

from odradek.console.model.groups import ALL, GroupSelection, read_group, read_groups
from odradek.console.model.parts import read_part
from odradek.console.web.guard import viewer_of
from odradek.console.web.live import live
from odradek.console.web.queries import number_of
from odradek.console.web.render import render

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response


async def groups(request: Request) -> Response:
    """Show a page of the groups, with their lag."""
    viewer = viewer_of(request)
    given = request.query_params
    selection = GroupSelection(
        given.get("q", ""), given.get("state", ALL), given.get("type", ALL), number_of(given.get("page"), 1)
    )
    listed = await read_part(viewer.cache.get(selection, lambda: read_groups(viewer.cluster, selection)))
    return render(request, "groups.html", listed=listed, selection=selection)


async def group(request: Request) -> Response:
    """Show a group: members, assignment, lag, and the changes that the console has observed."""
    viewer = viewer_of(request)
    name = request.query_params.get("id", "")
    found = await read_part(viewer.cache.get(("group", name), lambda: read_group(viewer.cluster, name)))
    observer = viewer.observer
    return render(
        request,
        "group.html",
        name=name,
        found=found,
        changes=observer.groups.changes(name),
        is_observed=observer.groups.is_observed(name),
        since_ms=observer.since_ms,
    )


ROUTES: Final = (Route("/groups", live(groups)), Route("/groups/id", live(group)))
