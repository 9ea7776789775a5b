"""The form of the login, and the logout. Each session logs in to the brokers with its own user."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from odradek.client.errors import AuthenticationFailed, ClientError
from odradek.client.security.credentials import UserPassword
from odradek.console.settings import MECHANISMS
from odradek.console.web.guard import access_of, session_cookie
from odradek.console.web.render import render

if TYPE_CHECKING:
    from starlette.requests import Request

    from odradek.console.web.sessions import Sessions

FIRST_PAGE: Final = "/cluster"


async def form(request: Request) -> Response:
    """Show the form."""
    if access_of(request).viewer is not None:
        return RedirectResponse(FIRST_PAGE, 303)
    return _form(request, next_of(request.query_params.get("next", "")))


async def log_in(request: Request) -> Response:
    """Log in to the brokers, and lead to the page that was requested first. Without SASL, there is no login."""
    if not request.app.state.settings.needs_login:
        return RedirectResponse(FIRST_PAGE, 303)
    given = access_of(request).form
    target = next_of(given.get("next", ""))
    mechanism, user, password = (given.get(name, "") for name in ("mechanism", "user", "password"))
    if mechanism not in MECHANISMS or not user or not password:
        return _form(request, target, user=user, problem="Enter a user and a password.", status=400)
    sessions: Sessions = request.app.state.sessions
    try:
        session_id = await sessions.log_in(UserPassword(mechanism, user, password))
    except AuthenticationFailed:
        problem = f"The brokers refused the user or the password, by {mechanism}."
        return _form(request, target, user=user, problem=problem, status=403)
    except ClientError as error:
        return _form(request, target, user=user, problem=f"No broker accepted the login: {error}", status=502)
    sessions.end(access_of(request).session_id)
    return RedirectResponse(target, 303, headers={"Set-Cookie": session_cookie(request, session_id)})


async def log_out(request: Request) -> Response:
    """End the session."""
    sessions: Sessions = request.app.state.sessions
    sessions.end(access_of(request).session_id)
    return RedirectResponse("/login", 303, headers={"Set-Cookie": session_cookie(request, sessions.new_id())})


def next_of(target: str) -> str:
    """Return the page after the login: only a path of this console."""
    if not target.startswith("/") or target.startswith(("//", "/\\", "/login")) or not target.isprintable():
        return FIRST_PAGE
    return target


def _form(request: Request, target: str, *, user: str = "", problem: str = "", status: int = 200) -> Response:
    first = request.app.state.settings.mechanism
    mechanisms = [first, *(name for name in MECHANISMS if name != first)]
    values = {"target": target, "given_user": user, "problem": problem, "mechanisms": mechanisms}
    return render(request, "login.html", status=status, **values)


ROUTES: Final = (
    Route("/login", form),
    Route("/login", log_in, methods=["POST"]),
    Route("/logout", log_out, methods=["POST"]),
)
