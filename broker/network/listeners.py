"""Binds the listeners of a node, and ends their connections when it stops."""

from asyncio import AbstractServer, get_running_loop
from collections.abc import Sequence

from odradek.broker.config.addresses import ListenerAddress
from odradek.broker.dispatch.dispatcher import Dispatcher
from odradek.broker.network.connection import Connection
from odradek.broker.network.server_state import Shared
from odradek.broker.requests.listener import Listener


class CannotListenError(OSError):
    """Report an address that is in use or does not exist. The message is the one line that the operator reads."""


def cannot_listen(error: OSError, host: str, port: int, purpose: str, remedy: str = "") -> CannotListenError:
    """Return the error for `error`, which binding `host`:`port` raised."""
    # The event loop repeats the address in its own format.
    reason = (error.strerror or str(error)).rpartition("): ")[2]
    return CannotListenError(error.errno, f"cannot listen on {host or '*'}:{port} ({purpose}): {reason}{remedy}")


class Acceptor:
    """Listens from `bind` on, so that a taken port is known before anything is opened; serves from `open` and `ready` on."""

    def __init__(self, backlog: int) -> None:
        self._backlog = backlog
        self._servers: list[AbstractServer] = []
        self._shared: Shared[Connection] | None = None
        self._early: list[Connection] = []
        self.listeners: list[Listener] = []

    async def bind(self, addresses: Sequence[ListenerAddress], shared: Shared[Connection]) -> None:
        """Raises `CannotListenError`."""
        self._shared = shared
        for position, address in enumerate(addresses):
            await self._bind_one(address, position, shared)

    async def _bind_one(self, address: ListenerAddress, position: int, shared: Shared[Connection]) -> None:
        def accept() -> Connection:
            return Connection(shared, lambda: self.listeners[position])

        # With any free port, all interfaces would mean one port for each family; then it is IPv4 alone.
        host = address.host or (None if address.port else "0.0.0.0")  # noqa: S104  asked for by an empty host
        try:
            server = await get_running_loop().create_server(accept, host, address.port, backlog=self._backlog)
        except OSError as error:
            raise cannot_listen(error, address.host, address.port, address.name) from error
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

    def open(self, dispatcher: Dispatcher) -> None:
        """Serve early requests by `dispatcher`, beginning with the connections that were made before."""
        assert self._shared is not None
        self._shared.dispatcher = dispatcher
        early, self._shared.early = list(self._shared.early), {}
        for connection in early:
            connection.begin()

    def ready(self, dispatcher: Dispatcher) -> None:
        """Serve all requests by `dispatcher`, beginning with those that waited."""
        assert self._shared is not None
        self._shared.dispatcher = dispatcher
        self._shared.ready = True
        waiting, self._shared.waiting = list(self._shared.waiting.items()), {}
        for connection, call in waiting:
            connection.node_is_ready(call)

    async def close(self) -> None:
        """Stop listening and end every connection; what is ready to be sent goes out."""
        for server in self._servers:
            server.close()
        if self._shared is not None:
            for connection in [*self._shared.early, *self._shared.connections.values()]:
                connection.close()
        for server in self._servers:
            await server.wait_closed()
        self._servers.clear()
