"""Checks of each request before a page sees it: host, origin, token, session.

A page cannot forget a check, because all routes are behind the guard.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, quote, urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from odradek.console.web.events import ENDED, is_stream, single_event
from odradek.console.web.sessions import ID_CHARACTERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from odradek.console.settings import Settings
    from odradek.console.web.sessions import Sessions, Viewer

COOKIE: Final = "odradek_console"
"""Start of the name of the session cookie. The port follows, because ports of a host share their cookies."""
TOKEN_FIELD: Final = "csrf"  # noqa: S105  the name of a field
TOKEN_HEADER: Final = "x-csrf-token"  # noqa: S105  the name of a header
FORM_BYTES_MAX: Final = 64 * 1024
"""Maximum size of the body of a request, in bytes."""
FORM_FIELDS_MAX: Final = 100
FORM_TYPE: Final = "application/x-www-form-urlencoded"
LOGIN_PATH: Final = "/login"
STATIC_PATHS: Final = "/static/"
"""Start of the paths of files that need no login."""
READING_METHODS: Final = ("GET", "HEAD")


@dataclass(frozen=True, slots=True)
class Access:
    """Findings of the guard about a request.

    Attributes:
        session_id: Id of the session.
        token: Token that forms of the session must send.
        viewer: The cluster as the principal sees it. None: not logged in, on a page that needs no login.
        form: Fields of the body.
    """

    session_id: str
    token: str
    viewer: Viewer | None
    form: Mapping[str, str]


def access_of(request: Request) -> Access:
    """Return what the guard has found about a request."""
    found = request.state.access
    assert isinstance(found, Access)
    return found


def viewer_of(request: Request) -> Viewer:
    """Return the viewer of a request to a page that needs a login if the cluster does."""
    viewer = access_of(request).viewer
    assert viewer is not None
    return viewer


class Guard:
    """ASGI middleware with the checks. It sets `access` in the state of a request."""

    def __init__(self, app: ASGIApp, settings: Settings, sessions: Sessions) -> None:
        self._app = app
        self._settings = settings
        self._sessions = sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        host = request.headers.get("host", "")
        if not is_allowed_host(host, self._settings.allowed_hosts):
            text = "The name in the header Host is not one of this console. Name it with --allow-host.\n"
            await PlainTextResponse(text, 421)(scope, receive, send)
            return
        if is_first_page_from_elsewhere(request):
            await _same_site_reload(request)(scope, receive, send)
            return
        given = request.cookies.get(cookie_name(request), "")
        session_id = given if len(given) == ID_CHARACTERS else self._sessions.new_id()
        form: Mapping[str, str] = {}
        if request.method not in READING_METHODS:
            checked = await self._checked_form(request, session_id)
            if isinstance(checked, Response):
                await checked(scope, receive, send)
                return
            form = checked
        viewer = self._sessions.viewer(session_id)
        path = request.url.path
        if viewer is None and path != LOGIN_PATH and not path.startswith(STATIC_PATHS):
            await _to_login(request)(scope, receive, send)
            return
        access = Access(session_id, self._sessions.token(session_id), viewer, form)
        scope.setdefault("state", {})["access"] = access

        async def send_with_cookie(message: Message) -> None:
            if message["type"] == "http.response.start" and session_id != given:
                headers = MutableHeaders(scope=message)
                if "set-cookie" not in headers:
                    headers["set-cookie"] = session_cookie(request, session_id)
            await send(message)

        await self._app(scope, receive, send_with_cookie)

    async def _checked_form(self, request: Request, session_id: str) -> Mapping[str, str] | Response:
        """Return the fields of a form, or the refusal."""
        if not is_same_origin(request.headers.get("origin"), request.headers.get("sec-fetch-site"), request):
            return PlainTextResponse("The request is not from a page of this console.\n", 403)
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() not in {"", FORM_TYPE}:
            return PlainTextResponse(f"Send {FORM_TYPE}.\n", 415)
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > FORM_BYTES_MAX:
                return PlainTextResponse(f"The body is longer than {FORM_BYTES_MAX} bytes.\n", 413)
        try:
            form = dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=FORM_FIELDS_MAX))
        except ValueError:
            return PlainTextResponse("The body is not a form.\n", 400)
        token = request.headers.get(TOKEN_HEADER) or form.pop(TOKEN_FIELD, "")
        if not self._sessions.is_token(session_id, token):
            return PlainTextResponse("The form has expired. Load the page again.\n", 403)
        return form


def cookie_name(request: Request) -> str:
    """Return the name of the session cookie at the port of a request."""
    _, port = request.scope.get("server") or ("", 0)
    return f"{COOKIE}_{port}"


def session_cookie(request: Request, session_id: str) -> str:
    """Return the value of Set-Cookie for a session. It ends with the browser's session.

    The console has no TLS. A proxy with TLS adds `Secure` (docs/how-to/proxy.md).
    """
    return f"{cookie_name(request)}={session_id}; Path=/; HttpOnly; SameSite=Strict"


def is_allowed_host(host: str, allowed: Iterable[str]) -> bool:
    """Return True if Host has an IP address, localhost, or a name of the settings.

    A page of another site can make its own name resolve to the console's address (DNS rebinding), but it cannot change
    the header, which has that name.
    """
    try:
        name = (urlsplit(f"//{host}").hostname or "") if not set(host) & set("/?#@\\") else ""
        if name == "localhost" or name in {each.lower() for each in allowed}:
            return True
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_same_origin(origin: str | None, fetch_site: str | None, request: Request) -> bool:
    """Return True if a browser says that a page of this console sent the request.

    A request with neither header is refused. Behind a proxy with TLS the scheme differs, so only the host is compared.
    """
    if origin is None and fetch_site is None:
        return False
    if fetch_site is not None and fetch_site != "same-origin":
        return False
    return origin is None or urlsplit(origin).netloc == request.headers.get("host")


def is_first_page_from_elsewhere(request: Request) -> bool:
    """Return True if a link of another site leads to a page. The browser omits the cookie, because it is strict."""
    return (
        request.method == "GET"
        and request.headers.get("sec-fetch-site") == "cross-site"
        and request.headers.get("sec-fetch-mode") == "navigate"
    )


def _same_site_reload(request: Request) -> Response:
    """Let the browser load the same page from the console itself, with the cookie. A new cookie would end a login."""
    target = quote(_own_address(request), safe="/?&=%")
    return Response(status_code=200, headers={"Refresh": f"0; url={target}"}, media_type="text/html")


def _to_login(request: Request) -> Response:
    if is_stream(request):
        return single_event(ENDED)
    return RedirectResponse(f"{LOGIN_PATH}?next={quote(_own_address(request), safe='')}", 303)


def _own_address(request: Request) -> str:
    """Return path and query. The path has one slash at its begin, so that it names no other host."""
    path = "/" + request.url.path.lstrip("/\\")
    return f"{path}?{request.url.query}" if request.url.query else path
