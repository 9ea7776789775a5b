"""Pages of errors: an unknown address, and a cluster that does not respond."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from starlette.exceptions import HTTPException

from odradek.client.errors import AuthenticationFailed, ClientError, InvalidArgument, NotFound
from odradek.console.model.memory_limit import MemoryBusy
from odradek.console.web.guard import access_of
from odradek.console.web.render import render, size

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from odradek.console.model.memory_limit import MemoryLimit

RETRY_AFTER_S: Final = 5
"""Seconds after which a browser may load a page again that was refused because of its memory."""


async def not_served(request: Request, error: Exception) -> Response:
    """Show that an address does not exist, or does not accept the method."""
    assert isinstance(error, HTTPException)
    title = "Page not found" if error.status_code == 404 else error.detail
    return render(request, "error.html", status=error.status_code, title=title, problem="", remedy="")


async def invalid(request: Request, error: Exception) -> Response:
    """Show that an address or a form has a value that no cluster accepts."""
    assert isinstance(error, InvalidArgument)
    title = "The address is not valid"
    return render(request, "error.html", status=400, title=title, problem=error.problem, remedy=error.remedy)


async def logged_out(request: Request, error: Exception) -> Response:
    """End the sessions whose user or password the brokers do not accept any more."""
    viewer = access_of(request).viewer
    if viewer is not None:
        request.app.state.sessions.end_all_of(viewer)
    return await cluster_failed(request, error)


async def cluster_failed(request: Request, error: Exception) -> Response:
    """Show that the cluster refused or did not respond, where a page has no other content."""
    assert isinstance(error, ClientError)
    found = not isinstance(error, NotFound)
    return render(
        request,
        "error.html",
        status=502 if found else 404,
        title="The cluster did not return this" if found else "Not found",
        problem=error.problem,
        remedy=error.remedy,
    )


async def too_late(request: Request, error: Exception) -> Response:
    """Show that the cluster did not respond in time."""
    problem = "The cluster did not respond in time."
    return render(
        request, "error.html", status=504, title="No response", problem=problem, remedy="Load the page again."
    )


async def busy(request: Request, error: Exception) -> Response:
    """Show that other pages of records hold the memory of the console."""
    memory: MemoryLimit = request.app.state.memory
    response = render(
        request,
        "error.html",
        status=503,
        title="The console is busy",
        problem=f"Other pages of records hold the memory that they may take together, {size(memory.bytes_max)}.",
        remedy=f"Load the page again in {RETRY_AFTER_S} seconds, or select one partition.",
    )
    response.headers["Retry-After"] = str(RETRY_AFTER_S)
    return response


HANDLERS: Final[Mapping[Any, Callable[[Request, Exception], Any]]] = {
    HTTPException: not_served,
    AuthenticationFailed: logged_out,
    InvalidArgument: invalid,
    ClientError: cluster_failed,
    TimeoutError: too_late,
    MemoryBusy: busy,
}
