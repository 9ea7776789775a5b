"""Binds the listeners of a node, and ends their connections when it stops."""

from asyncio import AbstractServer, get_running_loop
from collections.abc import Sequence
from typing import TYPE_CHECKING

from odradek.broker.network.addresses import ListenerAddress, parse_metrics_listener
from odradek.broker.network.connection import Connection
from odradek.broker.network.server_state import Shared
from odradek.broker.network.session import Listener

if TYPE_CHECKING:
    from odradek.broker.metrics.endpoint import Endpoint


def _reason(error: OSError) -> str:
    """Without the address, which the event loop says again, as Python writes it."""
    return (error.strerror or str(error)).rpartition("): ")[2]


class CannotListenError(OSError):
    """An address is taken or does not exist; the message is the one line a person gets to read."""


class Acceptor:
    """Listens from `bind` on, so that a taken port is known before anything is opened; serves from `open` and `ready` on."""

    def __init__(self, backlog: int) -> None:
        self._backlog = backlog
        self._servers: list[AbstractServer] = []
        self._shared: Shared | None = None
        self._early: list[Connection] = []
        self._metrics: Endpoint | None = None
        self.listeners: list[Listener] = []

    async def bind(self, addresses: Sequence[ListenerAddress], shared: Shared) -> None:
        """Raises `CannotListenError`."""
        self._shared = shared
        for position, address in enumerate(addresses):
            await self._bind_one(address, position, shared)
        if shared.config.odradek_metrics_listener:
            await self._offer_metrics(shared, *parse_metrics_listener(shared.config.odradek_metrics_listener))

    async def _offer_metrics(self, shared: Shared, host: str, port: int) -> None:
        from odradek.broker.metrics.endpoint import Endpoint  # a node that offers none does without the library

        self._metrics = Endpoint(shared)
        try:
            await self._metrics.open(host, port)
        except OSError as error:
            remedy = "choose another address with odradek.metrics.listener, or none"
            raise CannotListenError(
                error.errno, f"cannot listen on {host or '*'}:{port} (metrics): {_reason(error)}; {remedy}"
            ) from error

    @property
    def metrics_port(self) -> int:
        """Where the metrics are; 0 where they are not offered."""
        return 0 if self._metrics is None else self._metrics.port

    async def _bind_one(self, address: ListenerAddress, position: int, shared: Shared) -> None:
        def accept() -> Connection:
            return Connection(shared, lambda: self.listeners[position])

        # With any free port, all interfaces would mean one port for each family; then it is IPv4 alone.
        host = address.host or (None if address.port else "0.0.0.0")  # noqa: S104  asked for by an empty host
        try:
            server = await get_running_loop().create_server(accept, host, address.port, backlog=self._backlog)
        except OSError as error:
            shown = f"{address.host or '*'}:{address.port}"
            raise CannotListenError(
                error.errno, f"cannot listen on {shown} ({address.name}): {_reason(error)}"
            ) from error
        self._servers.append(server)
        port = server.sockets[0].getsockname()[1]
        self.listeners.append(
            Listener(
                address.name,
                address.host,
                port,
                address.advertised_host or "localhost",
                address.advertised_port or port,
                address.roles,
                address.protected,
            )
        )

    @property
    def connections(self) -> list[Connection]:
        """Those that are served now."""
        return [] if self._shared is None else list(self._shared.connections.values())

    @property
    def held_bytes(self) -> int:
        """What requests and responses take of the byte budget now."""
        return 0 if self._shared is None else self._shared.budget.used_bytes

    def open(self) -> None:
        """Begin to serve what can be served early, the connections that are there already first."""
        assert self._shared is not None
        self._shared.serving = True
        early, self._shared.early = list(self._shared.early), {}
        for connection in early:
            connection.begin()

    def ready(self) -> None:
        """The node is complete: serve everything, first what has waited for that."""
        assert self._shared is not None
        self._shared.ready = True
        waiting, self._shared.waiting = list(self._shared.waiting.items()), {}
        for connection, call in waiting:
            connection.node_is_ready(call)

    async def close(self) -> None:
        """Stop listening and end every connection; what is ready to be sent goes out."""
        if self._metrics is not None:
            await self._metrics.close()
        for server in self._servers:
            server.close()
        if self._shared is not None:
            for connection in [*self._shared.early, *self._shared.connections.values()]:
                connection.close()
        for server in self._servers:
            await server.wait_closed()
        self._servers.clear()
