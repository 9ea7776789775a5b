"""HTTP endpoint of the metrics: the part of HTTP/1.1 that Prometheus, curl and browsers need for GET /metrics."""

from asyncio import AbstractServer, BaseTransport, Protocol, TimerHandle, Transport, get_running_loop
from typing import TYPE_CHECKING, Final, cast

from prometheus_client import CONTENT_TYPE_LATEST

from odradek.broker.metrics.loop_lag import LoopLag
from odradek.broker.metrics.scrape import Source, exposition
from odradek.broker.network.listeners import cannot_listen

if TYPE_CHECKING:
    from odradek.runtime.tasks import Tasks

PATH: Final = b"/metrics"
REQUEST_BYTES_MAX: Final = 8_192
"""Maximum bytes of a request's line and headers. Those of Prometheus have a few hundred."""
CONNECTIONS_MAX: Final = 16
"""Maximum open connections per node, and length of their queue in the kernel."""
TIMEOUT_S: Final = 10.0
"""Maximum seconds of a connection, from its start to the end of the response.

Prometheus waits as long by default (scrape_timeout).
"""
HEAD_END: Final = b"\r\n\r\n"
TEXT: Final = "text/plain; charset=utf-8"
REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    500: "Internal Server Error",
}


class Endpoint:
    """The listener for scrapes, and the open connections. It listens from `open` to `close`."""

    def __init__(self, tasks: "Tasks") -> None:
        self.tasks = tasks
        self.sources: list[Source] = []
        """The parts of the node that are scraped. The node adds each part when it is complete."""
        self.lag = LoopLag()
        self.connections: dict[ScrapeConnection, None] = {}
        self._server: AbstractServer | None = None
        self.port = 0

    async def open(self, host: str, port: int) -> None:
        """Listen on `host`:`port`. Raise CannotListenError."""
        try:
            self._server = await get_running_loop().create_server(
                lambda: ScrapeConnection(self), host, port, backlog=CONNECTIONS_MAX
            )
        except OSError as error:
            remedy = "; set odradek.metrics.listener to another address, or leave it unset"
            raise cannot_listen(error, host, port, "metrics", remedy) from error
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        self.lag.close()
        for connection in list(self.connections):
            connection.abort()
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
            self._server = None


class ScrapeConnection(Protocol):
    """One connection with one request and one response."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._transport: Transport | None = None
        self._received = b""
        self._request_complete = False
        self._deadline: TimerHandle | None = None

    def connection_made(self, transport: BaseTransport) -> None:
        self._transport = cast("Transport", transport)
        if len(self._endpoint.connections) >= CONNECTIONS_MAX:
            self._transport.abort()
            return
        self._endpoint.connections[self] = None
        self._deadline = get_running_loop().call_later(TIMEOUT_S, self.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._endpoint.connections.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()

    def abort(self) -> None:
        assert self._transport is not None
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._request_complete:
            return
        self._received += data
        if HEAD_END in self._received:
            self._request_complete = True
            self._respond()
        elif len(self._received) > REQUEST_BYTES_MAX:
            self._request_complete = True
            self._send(400, b"the request is too large\n")

    def _respond(self) -> None:
        words = self._received.partition(b"\r\n")[0].split()
        if len(words) != 3:
            self._send(400, b"malformed request line\n")
        elif words[0] != b"GET":
            self._send(405, b"the only method is GET\n")
        elif words[1].partition(b"?")[0] != PATH:
            self._send(404, b"the only path is /metrics\n")
        else:
            self._endpoint.tasks.spawn(self._scrape(), "metrics")

    async def _scrape(self) -> None:
        try:
            text = await exposition(self._endpoint.sources)
        except Exception:
            self._send(500, b"the scrape failed; the log of the broker has the reason\n")
            raise  # `Tasks` logs it
        self._send(200, text, CONTENT_TYPE_LATEST)

    def _send(self, status: int, body: bytes, content_type: str = TEXT) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        head = (
            f"HTTP/1.1 {status} {REASONS[status]}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
            "Connection: close\r\n\r\n"
        )
        transport.write(head.encode() + body)
        transport.close()
