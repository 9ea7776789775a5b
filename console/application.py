"""The ASGI application of the console."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from odradek.console.model.memory_limit import MemoryLimit
from odradek.console.model.registry import SchemaRegistry
from odradek.console.model.scraper import Scraper
from odradek.console.pages import cluster, errors, groups, login, metrics, records, topics, topology, transactions
from odradek.console.web.guard import Guard
from odradek.console.web.headers import SecurityHeaders
from odradek.console.web.render import STATIC
from odradek.console.web.sessions import Sessions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.routing import BaseRoute

    from odradek.console.settings import Settings

PAGES: Final = (login, cluster, topics, records, topology, transactions, groups, metrics)
"""Modules of the pages. Each has ROUTES, and may have ACTIONS: routes that change the cluster."""


def application(settings: Settings) -> Starlette:
    """Return the console. Routes that change the cluster exist only with `allow_actions`.

    Raise InvalidArgument if an address of the schema registry or of metrics is malformed.
    """
    routes: list[BaseRoute] = [Mount("/static", StaticFiles(directory=STATIC), name="static")]
    for page in PAGES:
        routes += page.ROUTES
        if settings.allow_actions:
            routes += getattr(page, "ACTIONS", ())
    sessions = Sessions(settings)
    scraper = Scraper(settings.prometheus)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        scraper.start()
        sessions.start()
        yield
        sessions.close()
        scraper.close()

    app = Starlette(
        routes=routes,
        middleware=[Middleware(SecurityHeaders), Middleware(Guard, settings=settings, sessions=sessions)],
        exception_handlers=errors.HANDLERS,
        lifespan=lifespan,
    )
    app.state.settings = settings
    app.state.sessions = sessions
    app.state.scraper = scraper
    app.state.memory = MemoryLimit()
    app.state.registry = None if settings.schema_registry is None else SchemaRegistry(settings.schema_registry)
    return app
