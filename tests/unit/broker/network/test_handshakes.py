"""Order and bounds of the handshakes of a node."""

import asyncio
import socket
import ssl
from itertools import count
from typing import Any

from odradek.broker.network.handshakes import TURN_US_MAX, Handshakes
from tests.support.tls_rig import TlsServer, client_side

CLIENT_HELLO = bytes.fromhex("1603010200010001fc0303")
"""Begin of a first message, after which the server waits for more."""


class FakeTransport:
    def __init__(self, host: str = "10.0.0.1") -> None:
        self.host = host
        self.steps = 0
        self.refused: str | None = None
        self.handshakes: Handshakes | None = None

    def get_extra_info(self, name: str) -> tuple[str, int]:
        return self.host, 1

    def continue_handshake(self) -> None:
        self.steps += 1

    def refuse_handshake(self, reason: str) -> None:
        self.refused = reason
        assert self.handshakes is not None
        self.handshakes.ended(self)  # type: ignore[arg-type]


def add(handshakes: Handshakes, *transports: Any) -> None:
    for transport in transports:
        transport.handshakes = handshakes
        handshakes.ready(transport)


async def test_turn_ends_after_its_time_and_continues_after_other_callbacks() -> None:
    time = count(0, TURN_US_MAX // 4)
    handshakes = Handshakes(lambda: next(time))
    transports = [FakeTransport() for _ in range(10)]
    add(handshakes, *transports)
    others = 0
    turns: list[int] = []
    while sum(transport.steps for transport in transports) < 10:
        await asyncio.sleep(0)
        others += 1
        turns.append(sum(transport.steps for transport in transports))
    assert turns == [4, 8, 10]
    assert [transport.steps for transport in transports] == [1] * 10
    assert others == 3


async def test_handshake_above_the_limit_ends_the_oldest_one_of_the_address_with_most() -> None:
    handshakes = Handshakes(lambda: 0, under_way_max=3)
    hostile = [FakeTransport("10.0.0.1") for _ in range(3)]
    other = FakeTransport("10.0.0.2")
    add(handshakes, other, *hostile)
    assert [transport.refused is not None for transport in hostile] == [True, False, False]
    assert other.refused is None
    assert len(handshakes) == 3


async def test_many_handshakes_that_do_not_end_do_not_delay_others() -> None:
    """Clients complete their handshakes beside 1,000 connections that began one, with fewer turns than connections."""
    async with TlsServer(handshakes=Handshakes(lambda: 0, under_way_max=100)) as server:
        stalled = []
        for _ in range(1_000):
            _, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(CLIENT_HELLO)
            stalled.append(writer)
        turns = 0
        for _ in range(5):
            client = await server.connect(client_side())
            while not client.done.done():
                await asyncio.sleep(0)
                turns += 1
        assert turns < len(stalled)
        assert len(server.handshakes) <= 100
        assert sum(end.failure is not None for end in server.accepted) >= 900
        assert all(end.failure == "too many handshakes are under way" for end in server.accepted if end.failure)
        for writer in stalled:
            writer.transport.abort()


def connect_again(context: ssl.SSLContext, port: int, session: ssl.SSLSession | None) -> tuple[Any, bool]:
    """Receive one byte in a connection that offers `session`. Return its session, and True if it resumed the other."""
    with (
        socket.create_connection(("127.0.0.1", port)) as plain,
        context.wrap_socket(plain, server_hostname="localhost", session=session) as connection,
    ):
        assert connection.recv(1) == b"x"
        return connection.session, bool(connection.session_reused)


async def test_session_of_an_earlier_connection_can_be_resumed() -> None:
    async with TlsServer(on_made=lambda end: end.transport.write(b"x")) as server:
        context = client_side()
        session, _ = await asyncio.to_thread(connect_again, context, server.port, None)
        _, is_resumed = await asyncio.to_thread(connect_again, context, server.port, session)
        assert is_resumed


async def test_exception_of_one_handshake_does_not_stop_the_following_ones() -> None:
    class Broken(FakeTransport):
        def continue_handshake(self) -> None:
            raise RuntimeError("broken")

    handshakes = Handshakes(lambda: 0)
    following = FakeTransport()
    reported: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))
    add(handshakes, Broken(), following)
    while not following.steps:
        await asyncio.sleep(0)
    assert [str(error) for error in reported] == ["broken"]
