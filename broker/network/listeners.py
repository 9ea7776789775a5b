"""The listeners of a node: bind their ports, serve their connections, close them when the node stops."""

from asyncio import AbstractServer, BufferedProtocol, get_running_loop
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeVar

from odradek.broker.config.addresses import ListenerAddress
from odradek.broker.dispatch.dispatcher import Dispatcher
from odradek.broker.network.connection import TURN_US_MAX, Connection
from odradek.broker.network.handshakes import Handshakes
from odradek.broker.network.server_state import ServerState
from odradek.broker.requests.listener import BROKER, CONTROLLER, Listener
from odradek.broker.requests.node_principals import NodePrincipals
from odradek.broker.tls.node_tls import NodeTls
from odradek.broker.tls.transport import TlsTransport

CONNECTIONS_AT_A_TIME: Final = 8
"""Maximum connections that waited for the start and are served in a row before the event loop runs other callbacks."""
W = TypeVar("W")


class CannotListenError(OSError):
    """Error of a listener whose address is in use or does not exist. The message is complete for the operator."""


def cannot_listen(error: OSError, host: str, port: int, purpose: str, remedy: str = "") -> CannotListenError:
    """Return the CannotListenError for `error`, which a bind of `host`:`port` raised."""
    # The event loop repeats the address in its own format.
    reason = (error.strerror or str(error)).rpartition("): ")[2]
    return CannotListenError(error.errno, f"cannot listen on {host or '*'}:{port} ({purpose}): {reason}{remedy}")


class Acceptor:
    """All listeners of a node.

    1. `bind` binds the ports first, so that a port in use fails the start before any log is opened. Connections wait
       unread.
    2. `open` serves early requests (`Api.early`). Other requests wait.
    3. `ready` serves all requests.
    """

    def __init__(self, backlog: int, now_us: Callable[[], int]) -> None:
        """`backlog` is the maximum length of each queue of connections in the kernel (socket.listen.backlog.size).

        `now_us` returns the monotonic time in microseconds.
        """
        self._tls: NodeTls | None = None
        self._handshakes = Handshakes(now_us)
        self._authenticates = self._serves_all_nodes = False
        self._nodes: Mapping[str, NodePrincipals] = {}
        self._backlog = backlog
        self._servers: list[AbstractServer] = []
        self._state: ServerState[Connection] | None = None
        self.listeners: list[Listener] = []

    async def bind(
        self,
        addresses: Sequence[ListenerAddress],
        state: ServerState[Connection],
        *,
        tls: NodeTls | None = None,
        authenticates: bool = False,
        serves_all_nodes: bool = False,
        nodes: Mapping[str, NodePrincipals] = MappingProxyType({}),
    ) -> None:
        """Bind all `addresses`. Raise CannotListenError. `tls` is needed for listeners with TLS.

        With `authenticates`, nodes of the cluster must authenticate on the listeners for brokers and controllers, or
        can do so with `serves_all_nodes`. `nodes` has the principals that listeners serve as nodes, by their names.
        """
        self._nodes = nodes
        self._authenticates, self._serves_all_nodes = authenticates, serves_all_nodes
        self._tls = tls
        self._state = state
        for position, address in enumerate(addresses):
            await self._bind_one(address, position, state)

    async def _bind_one(self, address: ListenerAddress, position: int, state: ServerState[Connection]) -> None:
        config = state.config.on_listener(address.name)

        tls = None if self._tls is None else self._tls.listener(address.name)

        def accept() -> BufferedProtocol:
            connection = Connection(state, lambda: self.listeners[position], config, tls)
            if tls is None:
                return connection
            return TlsTransport(
                connection,
                lambda: tls.server,
                turns=self._handshakes,
                on_done=connection.handshake_done,
                on_failed=connection.handshake_failed,
            )

        # Port 0 on all interfaces would bind different ports for IPv4 and IPv6, so it binds IPv4 alone.
        host = address.host or (None if address.port else "0.0.0.0")  # noqa: S104  an empty host means all interfaces
        try:
            server = await get_running_loop().create_server(accept, host, address.port, backlog=self._backlog)
        except OSError as error:
            raise cannot_listen(error, address.host, address.port, address.name) from error
        self._servers.append(server)
        port = server.sockets[0].getsockname()[1]
        authenticates = self._authenticates or address.name in self._nodes
        self.listeners.append(
            Listener(
                address.name,
                address.host,
                port,
                address.advertised_host or "localhost",
                address.advertised_port or port,
                address.roles,
                address.protected,
                authenticates and (BROKER in address.roles or CONTROLLER in address.roles),
                self._serves_all_nodes,
                address.security_protocol,
                self._nodes.get(address.name),
            )
        )

    @property
    def connections(self) -> list[Connection]:
        """The connections that are admitted and not closed."""
        return [] if self._state is None else list(self._state.connections.values())

    @property
    def held_bytes(self) -> int:
        """Bytes of the byte budget that requests and responses hold."""
        return 0 if self._state is None else self._state.budget.used_bytes

    def open(self, dispatcher: Dispatcher) -> None:
        """Serve early requests with `dispatcher`. Connections that waited are served in turns, in their order."""
        assert self._state is not None
        self._state.dispatcher = dispatcher
        self._serve_in_turns(self._state.early, lambda connection, _: connection.begin())

    def ready(self, dispatcher: Dispatcher) -> None:
        """Serve all requests with `dispatcher`. Requests that waited are handled in turns, in their order."""
        assert self._state is not None
        self._state.dispatcher = dispatcher
        self._state.ready = True
        self._serve_in_turns(self._state.waiting, Connection.broker_registered)

    def _serve_in_turns(self, waiting: dict[Connection, W], serve: Callable[[Connection, W], None]) -> None:
        """Remove the connections from `waiting` and pass them to `serve`.

        A turn of the event loop ends after CONNECTIONS_AT_A_TIME connections, or after TURN_US_MAX.
        """
        assert self._state is not None
        assert self._state.dispatcher is not None
        now_us = self._state.dispatcher.now_us
        end_us = now_us() + TURN_US_MAX
        for _ in range(min(CONNECTIONS_AT_A_TIME, len(waiting))):
            connection = next(iter(waiting))
            serve(connection, waiting.pop(connection))
            if not waiting or now_us() >= end_us:
                break
        if waiting:
            get_running_loop().call_soon(self._serve_in_turns, waiting, serve)

    async def close(self) -> None:
        """Stop listening, and close each connection after sending the responses that are ready."""
        for server in self._servers:
            server.close()
        if self._state is not None:
            for connection in [*self._state.early, *self._state.connections.values()]:
                connection.close()
            self._state.waiting_requests.close()
            self._state.held_requests.close()
        for server in self._servers:
            await server.wait_closed()
        self._servers.clear()
