"""Authentication of a connection on which a delayed frame of a broker arrives."""

import asyncio
from typing import TYPE_CHECKING, Final

from odradek.protocol.messages.sasl_handshake import SaslHandshakeRequest
from odradek.protocol.sasl.login import AUTHENTICATE_VERSION, HANDSHAKE_VERSION
from tests.sim.cluster.node_config import cluster_secret
from tests.sim.world import INTERNAL_PORT, number_of
from tests.support.raw_client import RawClient

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from odradek.protocol.schema import Message
    from tests.sim.environment.transport import SimTransport

NAME: Final = "late frame"


def login_of(seed: int) -> "Callable[[SimTransport, str, str, int], Awaitable[None]]":
    """Return a function that authenticates a sender's new connection to a host and port, if the port is for brokers.

    The sender of the frame had authenticated, so its delayed frame arrives on an authenticated connection. Raise
    ConnectionLost if the node fails first.
    """
    secret = cluster_secret(seed, NAME)

    async def log_in(transport: "SimTransport", sender: str, host: str, port: int) -> None:
        if port != INTERNAL_PORT:
            return
        client = RawClient(NAME)
        transport.set_protocol(client)
        client.connection_made(transport)
        login = secret.login(number_of(sender), number_of(host))
        request: Message | None = login.request
        while request is not None:
            is_first = isinstance(request, SaslHandshakeRequest)
            version = HANDSHAKE_VERSION if is_first else AUTHENTICATE_VERSION
            request = login.received(await client.call(request, version))
        transport.set_protocol(asyncio.Protocol())

    return log_in
