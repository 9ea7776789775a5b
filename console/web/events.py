"""Server-sent events: their encoding, their headers, and the events that do not depend on a page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.responses import Response

if TYPE_CHECKING:
    from starlette.requests import Request

MEDIA_TYPE: Final = "text/event-stream"
RETRY_MS: Final = 2_000
"""Time after which a browser connects again, in ms."""
HEADERS: Final = {"Cache-Control": "no-store, no-transform", "X-Accel-Buffering": "no"}
"""Headers that keep proxies from collecting or compressing the events."""


def event(name: str, data: str, identity: str = "") -> bytes:
    """Encode an event. Each kind of line end becomes a line of the data, so that texts of clients add no fields."""
    lines = data.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    head = f"event: {name}\n" + (f"id: {identity}\n" if identity else "")
    return (head + "".join(f"data: {line}\n" for line in lines) + "\n").encode()


BEGIN: Final = f"retry: {RETRY_MS}\n\n".encode()
HEARTBEAT: Final = b": heartbeat\n" + event("alive", "1")
"""Shows that the stream is alive. Proxies need a byte; a script does not see the comment, so an event follows it."""
ENDED: Final = event("ended", "the session has ended")
"""Lets a page lead to the login."""


def is_stream(request: Request) -> bool:
    """Return True if a script requests the stream of a page instead of the page."""
    return request.method == "GET" and request.headers.get("accept", "").startswith(MEDIA_TYPE)


def single_event(content: bytes) -> Response:
    """Return a response with one event. The browser shows it, because a script cannot read the text of an error."""
    return Response(content, media_type=MEDIA_TYPE, headers=HEADERS)
