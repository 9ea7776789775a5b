"""Pages that stay up to date: the endpoint of a page also serves a stream of its content as server-sent events.

A script of the page requests the address of the page with the media type of a stream, so the checks of the guard apply
to both. Each event has the whole content, and replaces what the page shows.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from odradek.client.errors import AuthenticationFailed, ClientError
from odradek.console.web.events import BEGIN, ENDED, HEADERS, HEARTBEAT, MEDIA_TYPE, event, is_stream, single_event
from odradek.console.web.guard import Access, access_of, viewer_of
from odradek.console.web.streams import STREAMS_MAX, End, TooManyStreams

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from starlette.types import Receive, Scope, Send

    from odradek.console.web.sessions import Sessions
    from odradek.console.web.streams import Stream

    Page = Callable[[Request], Awaitable[Response]]
    Samples = Callable[[Request, str], tuple[str, str]]

HEARTBEAT_S: Final = 15.0
"""Seconds after which a stream without a change sends a heartbeat. Proxies close connections after about 60 s."""
REFUSED: Final = event(
    "refused", f"The console has {STREAMS_MAX} pages open, its maximum. This page is not updated; close other pages."
)


def live(page: Page, samples: Samples | None = None) -> Page:
    """Return an endpoint that serves a page, and the stream of its block `live`.

    Args:
        page: Endpoint of the page. It must not depend on headers of the request.
        samples: Return the samples after a position as JSON, and the next position. They follow each state.
    """

    async def endpoint(request: Request) -> Response:
        if not is_stream(request):
            return await page(request)
        if request.headers.get("sec-fetch-site", "same-origin") != "same-origin":
            return PlainTextResponse("The request is not from a page of this console.\n", 403)
        sessions: Sessions = request.app.state.sessions
        access, viewer = access_of(request), viewer_of(request)
        quiet = _fragment_request(request)
        key = viewer, request.url.path, request.url.query
        try:
            stream = sessions.streams.open(key, access.session_id, lambda: _read(page, quiet, sessions))
        except TooManyStreams:
            return single_event(REFUSED)
        return EventResponse(request, stream, samples)

    return endpoint


def _fragment_request(request: Request) -> Request:
    """Return a request for the block `live` alone, without the headers and the tokens of one browser."""
    access = access_of(request)
    state = {"access": Access(access.session_id, "", access.viewer, {}), "frame": "fragment.html"}
    return Request({**request.scope, "headers": [], "state": state})


async def _read(page: Page, request: Request, sessions: Sessions) -> bytes:
    """Read the state of a page as an event. If the cluster does not return it, the event has the reason."""
    try:
        response = await page(request)
    except AuthenticationFailed as error:
        sessions.end_all_of(viewer_of(request))
        return event("failed", str(error))
    except ClientError as error:
        return event("failed", str(error))
    except TimeoutError:
        return event("failed", "The cluster did not respond in time.")
    return event("state", bytes(response.body).decode())


class EventResponse(Response):
    """The response that carries a stream until it ends."""

    media_type = MEDIA_TYPE

    def __init__(self, request: Request, stream: Stream, samples: Samples | None) -> None:
        super().__init__(headers=HEADERS)
        del self.headers["content-length"]
        self._request = request
        self._stream = stream
        self._samples = samples

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the stream ends or the browser has closed the connection."""
        leaving = asyncio.create_task(self._end_when_gone(receive))
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            async for chunk in self._chunks():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            leaving.cancel()
            self._sessions.streams.close(self._stream)

    @property
    def _sessions(self) -> Sessions:
        found: Sessions = self._request.app.state.sessions
        return found

    async def _end_when_gone(self, receive: Receive) -> None:
        message: Any = None
        while message is None or message["type"] != "http.disconnect":
            message = await receive()
        self._stream.end(End.GONE)

    async def _chunks(self) -> AsyncIterator[bytes]:
        """Yield the newest state after each change, and heartbeats between them."""
        stream, feed = self._stream, self._stream.feed
        loop = asyncio.get_running_loop()
        version, readings, position = 0, 0, self._request.headers.get("last-event-id", "")
        chunk, sent = BEGIN, loop.time()
        while stream.ended is None:
            if chunk:
                yield chunk
                sent = loop.time()
            stream.wake.clear()
            # An open page counts as use of its session, up to the maximum age of the session.
            if self._sessions.viewer(stream.session_id) is None:
                break
            chunk = b"" if feed.version == version else feed.state
            version = feed.version
            if self._samples is not None and feed.readings != readings:
                data, position = self._samples(self._request, position)
                chunk += event("samples", data, position)
            readings = feed.readings
            if not chunk:
                try:
                    async with asyncio.timeout_at(sent + HEARTBEAT_S):
                        await stream.wake.wait()
                except TimeoutError:
                    chunk = HEARTBEAT
        if stream.ended is End.SESSION:
            yield ENDED
