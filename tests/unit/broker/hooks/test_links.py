from __future__ import annotations

import asyncio
from typing import Any

from odradek.broker.hooks.links import Direction, Link, LinkedConnection, LinkedDatagrams, Links

DELAY_MS = 20


class FakeTransport(asyncio.Transport):
    """Transport that records what is sent."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[bytes] = []
        self.closed = False
        self.reading = True

    def write(self, data: Any) -> None:
        self.sent.append(bytes(data))

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def is_reading(self) -> bool:
        return self.reading

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


class Inner(asyncio.BufferedProtocol):
    """Protocol of a broker, with a small receive buffer."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.received = b""
        self.lost = 0
        self._buffer = bytearray(3)

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self._buffer[:nbytes]

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost += 1


class Connected:
    """One connection over a link."""

    def __init__(self) -> None:
        self.link, self.inner, self.transport = Link(), Inner(), FakeTransport()
        self.connection = LinkedConnection(asyncio.get_running_loop(), self.link, self.inner)
        self.connection.connection_made(self.transport)

    def receive(self, data: bytes) -> None:
        self.connection.get_buffer(len(data))[: len(data)] = data
        self.connection.buffer_updated(len(data))


async def test_open_link_passes_everything_immediately() -> None:
    connected = Connected()
    connected.inner.transport.writelines([b"a", b"b"])
    connected.receive(b"12345")
    assert connected.transport.sent == [b"ab"]
    assert connected.inner.received == b"12345"
    connected.connection.connection_lost(None)
    assert connected.inner.lost == 1
    assert connected.link.connections == {}


async def test_reading_is_paused_and_resumed_as_tls_does() -> None:
    transport = Connected().inner.transport
    assert transport.is_reading()
    transport.pause_reading()
    assert not transport.is_reading()
    transport.resume_reading()
    assert transport.is_reading()


async def test_blocked_directions_hold_bytes_and_the_end_until_they_are_open() -> None:
    connected = Connected()
    connected.link.change(None, None)
    connected.inner.transport.write(b"request")
    connected.receive(b"response")
    connected.connection.connection_lost(None)
    assert connected.transport.sent == []
    assert (connected.inner.received, connected.inner.lost) == (b"", 0)
    assert not connected.link.is_open.is_set()
    connected.link.change(0.0, None)
    assert connected.transport.sent == [b"request"]
    assert (connected.inner.received, connected.inner.lost) == (b"", 0)
    connected.link.change(0.0, 0.0)
    assert (connected.inner.received, connected.inner.lost) == (b"response", 1)
    assert connected.link.is_open.is_set()


async def test_aborted_connection_over_a_blocked_link_ends_immediately_and_once() -> None:
    connected = Connected()
    connected.link.change(None, None)
    connected.receive(b"response")
    connected.inner.transport.abort()
    connected.connection.connection_lost(None)
    assert connected.transport.closed
    connected.link.change(0.0, 0.0)
    assert (connected.inner.received, connected.inner.lost) == (b"", 1)


async def test_close_comes_after_the_bytes_that_wait() -> None:
    connected = Connected()
    connected.link.change(None, 0.0)
    connected.inner.transport.write(b"last")
    connected.inner.transport.close()
    assert not connected.transport.closed
    connected.link.change(0.0, 0.0)
    assert (connected.transport.sent, connected.transport.closed) == ([b"last"], True)


async def test_slow_direction_keeps_the_order_and_delays() -> None:
    loop, received = asyncio.get_running_loop(), asyncio.Queue[tuple[float, int]]()
    direction = Direction(loop, lambda item: received.put_nowait((loop.time(), item)))
    direction.change(DELAY_MS)
    began = loop.time()
    for number in range(3):
        direction.add(number)
    items = [await received.get() for _ in range(3)]
    assert [number for _, number in items] == [0, 1, 2]
    assert items[0][0] - began >= DELAY_MS / 1_000 - 0.001


async def test_datagrams_to_a_blocked_broker_are_dropped() -> None:
    links, sent = Links(), []

    class FakeDatagrams(asyncio.DatagramTransport):
        def sendto(self, data: Any, addr: Any = None) -> None:
            sent.append((data, addr))

    datagrams = LinkedDatagrams(asyncio.get_running_loop(), links, FakeDatagrams())
    links.change([("127.0.0.1", 1, None, 0.0)])
    datagrams.sendto(b"ping", ("127.0.0.1", 1))
    datagrams.sendto(b"ping", ("127.0.0.1", 2))
    assert sent == [(b"ping", ("127.0.0.1", 2))]
