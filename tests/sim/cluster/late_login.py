"""Authentication of a connection on which a delayed frame arrives."""

import asyncio
import struct
from typing import TYPE_CHECKING, Final

from odradek.protocol.sasl.login import Login
from tests.sim.cluster.node_config import cluster_secret
from tests.sim.cluster.users import Credentials, exchange, user_of
from tests.sim.world import INTERNAL_PORT, number_of
from tests.support.raw_client import RawClient

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from odradek.simulation.environment.transport import SimTransport
    from tests.sim.options.run_options import Options

NAME: Final = "late frame"
CLIENT_ID_SIZE: Final = struct.Struct(">h")
CLIENT_ID_AT: Final = 12
"""Position of the size of the client id in a frame: after its own size and three other fields of the header."""


def login_of(options: "Options") -> "Callable[[SimTransport, str, tuple[str, int], bytes], Awaitable[None]]":
    """Return a function that authenticates a sender's new connection, if the listener requires that.

    The sender of the frame had authenticated, so its delayed frame arrives on an authenticated connection. Raise
    ConnectionLost if the node fails first.
    """
    secret = cluster_secret(options.seed, NAME)

    def new_login(sender: str, address: tuple[str, int], frame: bytes) -> Login | None:
        host, port = address
        if port == INTERNAL_PORT:
            return secret.login(number_of(sender), number_of(host))
        return None if options.security is None else Login(Credentials(_user(frame), NAME, options.seed).client())

    async def authenticate(transport: "SimTransport", sender: str, address: tuple[str, int], frame: bytes) -> None:
        login = new_login(sender, address, frame)
        if login is None:
            return
        client = RawClient(NAME)
        transport.set_protocol(client)
        client.connection_made(transport)
        await exchange(client, login)
        transport.set_protocol(asyncio.Protocol())

    return authenticate


def _user(frame: bytes) -> str:
    """Return the user that the client id in the header of a request names."""
    (size,) = CLIENT_ID_SIZE.unpack_from(frame, CLIENT_ID_AT)
    start = CLIENT_ID_AT + CLIENT_ID_SIZE.size
    return user_of(frame[start : start + size].decode())
