"""Connections of browsers that do not read or send, and the stop of a console with open streams."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest
from uvicorn.server import ServerState

from odradek.console.connection import REQUEST_S, STALL_S, Connection
from odradek.console.server import HEAD_BYTES_MAX, configuration, serve
from odradek.console.settings import Settings
from tests.support.command_line import TIMEOUT_S
from tests.support.fake_kafka import virtual_loop

if TYPE_CHECKING:
    from collections.abc import Iterator

    from odradek.simulation.environment.loop import SimLoop

SETTINGS = Settings("127.0.0.1:1", port=0)
ID_BYTES_MAX = 2**15 - 1
"""Maximum bytes of a string of Kafka's protocol, such as a transactional id."""


class Transport(asyncio.Transport):
    """A transport with a number of bytes that wait."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting = 0
        self.aborts = 0
        self.written = b""

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def abort(self) -> None:
        self.aborts += 1

    def close(self) -> None:
        pass


@pytest.fixture
def loop() -> Iterator[SimLoop]:
    with virtual_loop() as found:
        yield found


async def waiting_page(scope: Any, receive: Any, send: Any) -> None:
    """Wait until the browser ends the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


EVENTS = b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n"
"""Request of a stream, without its last line."""


def connected() -> tuple[Connection, Transport]:
    connection, transport = Connection(configuration(waiting_page), ServerState(), {}), Transport()
    connection.connection_made(transport)
    return connection, transport


async def ended(connection: Connection) -> None:
    """End the connection as a browser does, and let the page end."""
    connection.connection_lost(None)
    await asyncio.sleep(1)


def test_connection_without_progress_is_aborted(loop: SimLoop) -> None:
    async def test() -> None:
        connection, transport = connected()
        connection.data_received(EVENTS + b"\r\n")
        transport.waiting = 100
        connection.pause_writing()
        for transport.waiting in (90, 80, 80):
            assert transport.aborts == 0
            await asyncio.sleep(STALL_S)
        await asyncio.sleep(0.1)
        assert transport.aborts == 1
        await ended(connection)

    loop.run_until_complete(test())


def test_connection_that_is_read_again_is_kept(loop: SimLoop) -> None:
    async def test() -> None:
        connection, transport = connected()
        connection.data_received(EVENTS + b"\r\n")
        transport.waiting = 100
        connection.pause_writing()
        connection.resume_writing()
        await asyncio.sleep(3 * STALL_S)
        assert transport.aborts == 0
        connection.pause_writing()
        connection.shutdown()
        assert transport.aborts == 1
        await ended(connection)

    loop.run_until_complete(test())


@pytest.mark.parametrize(
    "begin",
    [
        b"",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n",
        b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\na",
    ],
    ids=["nothing", "head", "body"],
)
def test_connection_whose_request_stays_incomplete_is_aborted(loop: SimLoop, begin: bytes) -> None:
    async def test() -> None:
        connection, transport = connected()
        await asyncio.sleep(REQUEST_S / 2)
        if begin:
            connection.data_received(begin)
        await asyncio.sleep(REQUEST_S / 4)
        assert transport.aborts == 0
        await asyncio.sleep(REQUEST_S)
        assert transport.aborts == 1
        await ended(connection)

    loop.run_until_complete(test())


def test_complete_request_ends_its_time_limit(loop: SimLoop) -> None:
    async def test() -> None:
        connection, transport = connected()
        connection.data_received(EVENTS)
        connection.data_received(b"\r\n")
        await asyncio.sleep(2 * REQUEST_S)
        assert transport.aborts == 0
        await ended(connection)

    loop.run_until_complete(test())


def test_address_with_the_longest_transactional_id_is_accepted_in_parts(loop: SimLoop) -> None:
    async def test() -> None:
        connection, transport = connected()
        address = b"%C3%A9" * (ID_BYTES_MAX // 2)
        for part in (b"GET /transactions/id?id=", address[:50_000], address[50_000:], b" HTTP/1.1\r\nHost: a\r\n"):
            connection.data_received(part)
        assert transport.written == b""
        await ended(connection)

    loop.run_until_complete(test())


def test_longer_head_of_a_request_is_refused(loop: SimLoop) -> None:
    async def test() -> None:
        connection, transport = connected()
        connection.data_received(b"GET /" + b"a" * HEAD_BYTES_MAX)
        assert transport.written.startswith(b"HTTP/1.1 400 ")
        await ended(connection)

    loop.run_until_complete(test())


async def test_stop_completes_the_streams() -> None:
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    running = asyncio.create_task(serve(SETTINGS, address.set_result))
    async with asyncio.timeout(TIMEOUT_S):
        port = int((await address).rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(EVENTS + b"\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readuntil(b"event: samples\n")
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            rest = await reader.read()
            writer.close()
            await running
    assert b"200 OK" in head
    assert rest.endswith(b"0\r\n\r\n")  # complete before the deadline of the stop
