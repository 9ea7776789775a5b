"""Event loop whose connections and datagrams to other brokers pass through `odradek.broker.hooks.links`."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import uvloop

from odradek.broker.hooks.links import LinkedConnection, LinkedDatagrams, Links

if TYPE_CHECKING:
    from asyncio import DatagramTransport


class LinkedLoop(uvloop.Loop):
    """Event loop of a broker that was started for tests."""

    links: Links

    async def create_connection(
        self, protocol_factory: Callable[[], Any], host: Any = None, port: Any = None, **options: Any
    ) -> Any:
        """Open a connection. Wait while one of its directions is blocked: the handshake of TCP needs both."""
        if host is None:
            return await super().create_connection(protocol_factory, host, port, **options)
        link = self.links.to((host, port))
        await link.is_open.wait()
        return await super().create_connection(
            lambda: LinkedConnection(self, link, protocol_factory()), host, port, **options
        )

    async def create_datagram_endpoint(self, protocol_factory: Any, *arguments: Any, **options: Any) -> Any:
        """Open a port for datagrams."""
        transport, protocol = await super().create_datagram_endpoint(protocol_factory, *arguments, **options)
        return LinkedDatagrams(self, self.links, cast("DatagramTransport", transport)), protocol


def linked_event_loop(links: Links) -> LinkedLoop:
    """Return a new event loop with these links."""
    loop = LinkedLoop()
    loop.links = links
    return loop
