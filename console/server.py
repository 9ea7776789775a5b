"""Serve the console over HTTP until a signal ends it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from typing import TYPE_CHECKING, Final

import uvicorn

from odradek.console.application import application
from odradek.console.connection import Connection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from starlette.types import ASGIApp

    from odradek.console.settings import Settings
    from odradek.console.web.streams import Streams

CONNECTIONS_MAX: Final = 200
"""Maximum connections and tasks, streams of open pages included. Further requests are refused with 503."""
HEAD_BYTES_MAX: Final = 128 * 1024
"""Maximum bytes of the address and the headers of a request.

The longest transactional id or group id has 32,767 bytes, and three times as many in an address. All connections
together hold up to 25 MiB.
"""
KEEP_ALIVE_S: Final = 15
END_S: Final = 2
"""Seconds for which the end of the console waits for open requests."""


class _Server(uvicorn.Server):
    """Server that leaves signals to its caller, and ends the streams of open pages before it waits for requests."""

    def __init__(self, config: uvicorn.Config, streams: Streams) -> None:
        super().__init__(config)
        self._streams = streams

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams, and then the server."""
        self._streams.stop()
        await super().shutdown(sockets)


def configuration(app: ASGIApp) -> uvicorn.Config:
    """Return the configuration of the server."""
    return uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=CONNECTIONS_MAX,
        h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=END_S,
    )


async def serve(settings: Settings, ready: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM. Call `ready` with the address when the console accepts connections.

    Raise OSError if the address is in use.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.create_server((settings.host, settings.port), family=family, backlog=CONNECTIONS_MAX) as listening:
        app = application(settings)
        server = _Server(configuration(app), app.state.sessions.streams)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, setattr, server, "should_exit", True)
        host = f"[{settings.host}]" if family == socket.AF_INET6 else settings.host
        ready(f"http://{host}:{listening.getsockname()[1]}")
        await server.serve(sockets=[listening])
