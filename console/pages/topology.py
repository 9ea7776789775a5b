"""The picture of the topology."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from starlette.routing import Route

from odradek.client.admin.status import describe_brokers, describe_quorum
from odradek.console.model.parts import Part, read_part
from odradek.console.model.topology import BOX_WIDTH, Topology, topology_of
from odradek.console.web.guard import viewer_of
from odradek.console.web.live import live
from odradek.console.web.render import render

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response


async def page(request: Request) -> Response:
    """Show the brokers by rack with their replicas, of all topics or of one."""
    viewer = viewer_of(request)
    name = request.query_params.get("topic", "").strip()
    described, quorum, metadata = await asyncio.gather(
        read_part(describe_brokers(viewer.cluster)),
        read_part(describe_quorum(viewer.cluster)),
        read_part(viewer.all_topics()),
    )
    picture: Part[Topology] = Part(error=described.error or metadata.error)
    if described.value is not None and metadata.value is not None:
        topics = [topic for topic in metadata.value.topics.values() if name in {"", topic.name}]
        controller = None if quorum.value is None else quorum.value.leader
        picture = Part(topology_of(described.value[1], topics, controller))
    return render(request, "topology.html", picture=picture, topic=name, box_width=BOX_WIDTH)


ROUTES: Final = (Route("/topology", live(page)),)
