"""The list of topics, and the pages of one topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.routing import Route

from odradek.console.model.parts import read_part
from odradek.console.model.topics import TopicOrder, read_configs, read_topic, read_topics
from odradek.console.web.guard import viewer_of
from odradek.console.web.live import live
from odradek.console.web.queries import choice_of, number_of
from odradek.console.web.render import render

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response


async def topics(request: Request) -> Response:
    """Show a page of the list of topics."""
    viewer = viewer_of(request)
    given = request.query_params
    search, internal = given.get("q", "").strip(), given.get("internal") == "1"
    order = choice_of(TopicOrder, given.get("order"), TopicOrder.NAME)
    metadata = await viewer.all_topics()
    page = await read_topics(
        viewer.cluster, metadata, search, internal=internal, order=order, page=number_of(given.get("page"), 1)
    )
    return render(request, "topics.html", topics=page, search=search, internal=internal, order=order.value)


async def topic(request: Request) -> Response:
    """Show a topic with a page of its partitions."""
    name = request.path_params["topic"]
    page = await read_topic(viewer_of(request).cluster, name, number_of(request.query_params.get("page"), 1))
    return render(request, "topic.html", name=name, topic=page)


async def configs(request: Request) -> Response:
    """Show the configurations of a topic."""
    name = request.path_params["topic"]
    entries = await read_part(read_configs(viewer_of(request).cluster, name))
    return render(request, "topic_configs.html", name=name, configs=entries)


ROUTES: Final = (
    Route("/topics", live(topics)),
    Route("/topics/{topic}", live(topic)),
    Route("/topics/{topic}/configs", configs),
)
