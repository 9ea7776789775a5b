"""A browser for tests of the console: it calls the application in this process, and keeps cookies."""

from __future__ import annotations

import asyncio
import re
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http.cookies import SimpleCookie
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from odradek.console.application import application
from tests.support.command_line import TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from odradek.console.settings import Settings

HOST = "127.0.0.1:8080"
SMALL = ("transaction.state.log.num.partitions=1", "offsets.topic.num.partitions=1")
"""Properties of a broker that starts fast."""
CSRF = re.compile(r'name="csrf" (?:content|value)="([0-9a-f]+)"')


@dataclass(frozen=True, slots=True)
class Page:
    """A response: status, headers by name in lower case, and text."""

    status: int
    headers: Mapping[str, str]
    text: str


@dataclass(slots=True)
class Browser:
    """A client of one console. `headers` are sent with each request."""

    app: Any
    cookies: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=lambda: {"host": HOST, "sec-fetch-site": "same-origin"})

    async def get(self, path: str, **headers: str) -> Page:
        return await self.request("GET", path, b"", headers)

    async def post(self, path: str, fields: Mapping[str, str], **headers: str) -> Page:
        """Send a form. Header names have underscores for hyphens."""
        given = {"content_type": "application/x-www-form-urlencoded", **headers}
        return await self.request("POST", path, urlencode(fields).encode(), given)

    async def token(self, path: str) -> str:
        """Load a page, and return the token of its forms."""
        found = CSRF.search((await self.get(path)).text)
        assert found is not None
        return found[1]

    async def request(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> Page:
        messages: list[Any] = []
        requests = [{"type": "http.request", "body": body, "more_body": False}]
        ended = asyncio.Event()

        async def receive() -> Any:
            if requests:
                return requests.pop()
            await ended.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            messages.append(message)

        await self.app(self._scope(method, path, headers), receive, send)
        start = messages[0]
        found = {name.decode().lower(): value.decode() for name, value in start["headers"]}
        if "set-cookie" in found:
            self.cookies |= {name: morsel.value for name, morsel in SimpleCookie(found["set-cookie"]).items()}
        text = b"".join(message.get("body", b"") for message in messages[1:])
        return Page(start["status"], found, text.decode())

    @asynccontextmanager
    async def stream(self, path: str, **headers: str) -> AsyncIterator[EventSource]:
        """Open the stream of a page, as its script does, and close it at the end."""
        source = EventSource()
        scope = self._scope("GET", path, {"accept": "text/event-stream", **headers})
        task = asyncio.create_task(self.app(scope, source.receive, source.send))
        try:
            yield source
        finally:
            source.gone.set()
            source.reading.set()
            await task

    def _scope(self, method: str, path: str, headers: Mapping[str, str]) -> dict[str, Any]:
        sent = self.headers | {name.replace("_", "-"): value for name, value in headers.items()}
        if self.cookies:
            sent["cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        route, _, query = path.partition("?")
        return {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": route,
            "raw_path": route.encode(),
            "root_path": "",
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in sent.items()],
            "client": ("127.0.0.1", 50_000),
            "server": ("127.0.0.1", 8080),
        }


class EventSource:
    """A stream of server-sent events. `reading` is clear while the client does not read."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()
        self.reading = asyncio.Event()
        self.reading.set()
        self.headers: dict[str, str] = {}
        self.last_id = ""
        self._events: asyncio.Queue[tuple[str, str] | None] = asyncio.Queue()

    async def receive(self) -> Any:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        await self.reading.wait()
        if message["type"] == "http.response.start":
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            return
        for block in message["body"].decode().split("\n\n")[:-1]:
            fields = [line.partition(": ")[::2] for line in block.split("\n")]
            named = {name: value for name, value in fields if name != "data"}
            self.last_id = named.get("id", self.last_id)
            if "event" in named:
                text = "\n".join(value for name, value in fields if name == "data")
                self._events.put_nowait((named["event"], text))
        if not message.get("more_body"):
            self._events.put_nowait(None)

    async def next(self) -> tuple[str, str] | None:
        """Return the name and the data of the next event, or None at the end."""
        async with asyncio.timeout(TIMEOUT_S):
            return await self._events.get()

    async def next_of(self, name: str) -> str:
        """Return the data of the next event with this name."""
        while (found := await self.next()) is not None:
            if found[0] == name:
                return found[1]
        raise AssertionError(f"the stream has ended without {name}")


@asynccontextmanager
async def browser(settings: Settings) -> AsyncIterator[Browser]:
    """Run a console, and yield a client of it."""
    app = application(settings)
    async with app.router.lifespan_context(app):
        yield Browser(app)
