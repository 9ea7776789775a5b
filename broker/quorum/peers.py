"""Connections to the other nodes of the cluster: one per node and purpose, opened with the first request.

Responses arrive in the order of the requests. Requests that may wait at the other node (fetches, forwarded requests)
therefore never share a connection with requests that may not (votes, heartbeats). A lost request fails; its sender
decides about a retry.
"""

import re
from asyncio import (
    Future,
    get_running_loop,
)
from collections.abc import Callable
from enum import Enum
from typing import Any, Final

import structlog

from odradek.broker.quorum.peer_connection import Address, PeerConnection
from odradek.broker.quorum.peer_login import PeerLogin
from odradek.broker.requests.listener import BROKER
from odradek.broker.requests.session import Session
from odradek.broker.tls.node_tls import ListenerTls
from odradek.protocol.schema import Message
from odradek.runtime.clock import NEVER_MS, Clock
from odradek.runtime.tasks import Tasks

_logger = structlog.get_logger(__name__)


class Channel(Enum):
    """The purpose of a connection."""

    RAFT = "raft"
    RAFT_FETCH = "raft-fetch"
    HEARTBEAT = "heartbeat"
    CONTROLLER = "controller"
    ISR = "isr"
    REPLICA_FETCH = "replica-fetch"
    MARKERS = "markers"
    VERIFICATION = "verification"
    TRANSACTIONS = "transactions"
    PROBE = "probe"

    __hash__ = object.__hash__  # members are singletons, and the hash of Enum is slow Python code


TO_CONTROLLERS: Final = (Channel.RAFT, Channel.RAFT_FETCH, Channel.HEARTBEAT, Channel.CONTROLLER, Channel.ISR)
"""Purposes whose connections go to voters."""


AddressOf = Callable[[int, Channel], Address | None]
"""Return the address of a node for a purpose; None if it is unknown."""
TlsOf = Callable[[int, Channel], ListenerTls | None]
"""Return the TLS of connections to a node for a purpose; None if they are not encrypted."""
LoginOf = Callable[[int, Channel], PeerLogin | None]
"""Return the login on a new connection to a node for a purpose; None if this node does not log in there."""
LostListener = Callable[[int, bool], None]
"""Receives (node id, refused) when a connection is lost; see `Peers.on_lost`."""


class Peers:
    """The connections of this node to the other nodes. All calls belong on the event loop."""

    def __init__(
        self,
        node_id: int,
        address_of: AddressOf,
        clock: Clock,
        tasks: Tasks,
        login_of: LoginOf = lambda *_: None,
        tls_of: TlsOf = lambda *_: None,
    ) -> None:
        self.node_id = node_id
        self.login_of = login_of
        self.tls_of = tls_of
        self._unauthenticated: dict[int, None] = {}
        self._address_of = address_of
        self._clock = clock
        self._tasks = tasks
        self._name = f"broker-{node_id}"
        self._connections: dict[tuple[int, Channel], PeerConnection] = {}
        self._retired: dict[PeerConnection, None] = {}
        """Connections that new ones have replaced, and that wait for their last responses."""
        self._contacts_ms: dict[int, int] = {}
        self._refusals_ms: dict[int, int] = {}
        self._on_lost: list[LostListener] = []
        self._closed = False

    def request(
        self, node_id: int, channel: Channel, request: Message, version: int, *, timeout_ms: int
    ) -> "Future[Any]":
        """Send `request` to `node_id`; return a future of the response.

        The future raises OSError if the response is lost; the other node may have carried out the request. After
        `timeout_ms` it raises TimeoutError, and the connection is closed, because later responses wait for this one. It
        raises Unencodable if the request has a value that its version cannot carry.
        """
        loop = get_running_loop()
        future: Future[Any] = loop.create_future()
        if self._closed:
            future.set_exception(ConnectionError("this node is shutting down"))
            return future
        connection = self._connections.get((node_id, channel))
        if connection is not None and connection.is_expiring and not connection.ended:
            self._retire(connection)
            connection = None
        if connection is None or connection.ended:
            address = self._address_of(node_id, channel)
            if address is None:
                future.set_exception(ConnectionError(f"no address is known for node {node_id}"))
                return future
            login, tls = self.login_of(node_id, channel), self.tls_of(node_id, channel)
            connection = PeerConnection(self, loop, node_id, address, self.client_id(channel), login, tls)
            self._connections[node_id, channel] = connection
            self._tasks.spawn(connection.connect(), f"connect to {node_id} for {channel.value}")
        connection.request(request, version, future, timeout_ms)
        return future

    def _retire(self, connection: PeerConnection) -> None:
        """Replace a connection whose session is about to expire. Its pending requests keep it until they end."""
        self._retired = {each: None for each in self._retired if not each.ended}
        self._retired[connection] = None
        connection.retire()

    def note_contact(self, node_id: int) -> None:
        """Record that bytes from `node_id` have arrived by TCP. Ignore a node whose address is not known.

        A request can contain any node id. The record is bounded by the voters and the registered brokers.
        """
        if node_id in self._contacts_ms or self._address_of(node_id, Channel.PROBE) is not None:
            self._contacts_ms[node_id] = self._clock.monotonic_ms()

    def last_contact_ms(self, node_id: int) -> int:
        """Return the monotonic time at which bytes from `node_id` last arrived by TCP, or NEVER_MS."""
        return self._contacts_ms.get(node_id, NEVER_MS)

    def last_refusal_ms(self, node_id: int) -> int:
        """Return the monotonic time at which the host of `node_id` last refused a connection, or NEVER_MS."""
        return self._refusals_ms.get(node_id, NEVER_MS)

    def on_lost(self, callback: LostListener) -> None:
        """Call `callback(node id, refused)` when the node resets or closes a connection, or cannot be reached.

        `refused`: the host refused the connection, so no process listens there. A running node always listens.
        """
        self._on_lost.append(callback)

    def lost(self, node_id: int, *, refused: bool) -> None:
        """Report a connection that this node did not close itself."""
        if refused:
            self._refusals_ms[node_id] = self._clock.monotonic_ms()
        if not self._closed:
            for callback in tuple(self._on_lost):
                callback(node_id, refused)

    def authenticated(self, node_id: int) -> None:
        """Record that this node and `node_id` have authenticated to each other, or that it serves this node."""
        self._unauthenticated.pop(node_id, None)

    def not_authenticated(self, node_id: int, reason: str) -> None:
        """Log a failed authentication: once per node until it succeeds, because each connection repeats it."""
        if node_id not in self._unauthenticated:
            self._unauthenticated[node_id] = None
            _logger.warning("authentication to a node failed", node=node_id, reason=reason)

    def close(self) -> None:
        """Close every connection. Pending requests fail with ConnectionError."""
        self._closed = True
        for connection in (*self._connections.values(), *self._retired):
            connection.end(ConnectionError("this node is shutting down"), flush=True)

    def client_id(self, channel: Channel) -> str:
        """Return the client id in the headers of this node's requests."""
        return f"{self._name}-{channel.value}"


_NAME: Final = re.compile(rf"broker-\d+-({'|'.join(channel.value for channel in Channel)})")


def is_broker(session: Session, client_id: str | None) -> bool:
    """Return True if the client is another broker.

    Without a cluster secret, while the nodes do not all log in, and for a principal that nodes and clients share, a
    client id of `Peers.client_id` on a listener for brokers is the only evidence.
    """
    node, listener = session.node, session.listener
    if node is not None and node.is_known:
        return True
    if node is None and listener.authenticates and not listener.serves_all_nodes:
        return False
    may_be_broker = node is not None or BROKER in session.roles
    return may_be_broker and client_id is not None and _NAME.fullmatch(client_id) is not None
