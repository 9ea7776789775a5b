"""GET over HTTP with one deadline and a maximum size. No redirect is followed, and no proxy is used."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import h11

from odradek.version import __version__

if TYPE_CHECKING:
    from urllib.parse import SplitResult

READ_BYTES: Final = 64 * 1024
"""Maximum bytes of one read. Headers of a response are limited to 16 KiB by h11."""
PORTS: Final = {"http": 80, "https": 443}


class HttpFailed(Exception):
    """A server did not return what was requested. The message has the reason."""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A response: its status and its body."""

    status: int
    body: bytes


async def http_get(
    server: SplitResult, target: str, *, deadline_s: float, bytes_max: int, accept: str = "*/*"
) -> HttpResponse:
    """Request a path with its query from a server. The deadline includes the connection and the whole body.

    A redirect is returned as any other response, so that a server cannot make the console contact another host.

    Raises:
        HttpFailed: The server does not respond with HTTP, the body is longer than `bytes_max`, or time is up.
    """
    try:
        async with asyncio.timeout(deadline_s):
            return await _exchange(server, target, bytes_max, accept)
    except TimeoutError:
        raise HttpFailed(f"no response within {deadline_s:g} s") from None
    except (OSError, asyncio.IncompleteReadError, h11.ProtocolError, UnicodeError) as error:
        raise HttpFailed(str(error) or type(error).__name__) from error


async def _exchange(server: SplitResult, target: str, bytes_max: int, accept: str) -> HttpResponse:
    context = ssl.create_default_context() if server.scheme == "https" else None
    port = PORTS[server.scheme] if server.port is None else server.port
    reader, writer = await asyncio.open_connection(server.hostname, port, ssl=context)
    try:
        connection = h11.Connection(h11.CLIENT)
        headers = [
            ("Host", server.netloc),
            ("Accept", accept),
            ("User-Agent", f"odradek-console/{__version__}"),
            ("Connection", "close"),
        ]
        request = h11.Request(method="GET", target=target, headers=headers)
        writer.write((connection.send(request) or b"") + (connection.send(h11.EndOfMessage()) or b""))
        status, body = 0, bytearray()
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                connection.receive_data(await reader.read(READ_BYTES))
            elif isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > bytes_max:
                    raise HttpFailed(f"the response is longer than {bytes_max} bytes")
            elif isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
                return HttpResponse(status, bytes(body))
    finally:
        writer.transport.abort()
