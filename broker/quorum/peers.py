"""Connections to the other nodes of the cluster: one per node and purpose, opened with the first request.

Responses arrive in the order of the requests. Requests that may wait at the other node (fetches, forwarded requests)
therefore never share a connection with requests that may not (votes, heartbeats). A lost request fails; its sender
decides about a retry.
"""

import re
from asyncio import (
    AbstractEventLoop,
    BaseTransport,
    BufferedProtocol,
    Future,
    TimerHandle,
    Transport,
    get_running_loop,
    timeout,
)
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Any, Final, cast

import structlog

from odradek.broker.quorum.peer_login import NOT_A_NODE, PeerLogin
from odradek.broker.requests.listener import BROKER
from odradek.broker.requests.session import Session
from odradek.broker.tls.node_tls import ListenerTls
from odradek.broker.tls.transport import TlsTransport
from odradek.protocol.client import ClientConnection
from odradek.protocol.errors import Malformed, Unencodable
from odradek.protocol.sasl.login import AUTHENTICATE_VERSION, HANDSHAKE_VERSION, Login
from odradek.protocol.sasl.mechanism import AuthenticationFailed
from odradek.protocol.schema import Message
from odradek.runtime.clock import NEVER_MS, Clock
from odradek.runtime.tasks import Tasks
from odradek.storage.disk.port import RESOURCE_ERRORS

CONNECT_TIMEOUT_S: Final = 2.0
"""Maximum seconds for opening a connection."""
SESSION_SHARE_USED: Final = 0.85
"""Share of the lifetime of a session after which a new connection replaces it. Kafka's clients use 0.85 to 0.95."""
RESPONSE_BYTES_MAX: Final = 256 * 1024 * 1024
"""Maximum bytes of a response. Memory is allocated as bytes arrive, not by the size in the response's header."""
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


Address = tuple[str, int]
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
        self._connections: dict[tuple[int, Channel], _Connection] = {}
        self._retired: dict[_Connection, None] = {}
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
            connection = _Connection(self, loop, node_id, channel, address)
            self._connections[node_id, channel] = connection
            self._tasks.spawn(connection.connect(), f"connect to {node_id} for {channel.value}")
        connection.request(request, version, future, timeout_ms)
        return future

    def _retire(self, connection: "_Connection") -> None:
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


class _PendingRequest:
    """A request without a response yet."""

    __slots__ = ("future", "request", "timer", "version")

    def __init__(self, request: Message, version: int, future: "Future[Any]") -> None:
        self.request = request
        self.version = version
        self.future = future
        self.timer: TimerHandle | None = None

    def finish(self, result: Any) -> None:
        if self.timer is not None:
            self.timer.cancel()
        if self.future.done():  # the sender cancelled it
            return
        if isinstance(result, BaseException):
            self.future.set_exception(result)
        else:
            self.future.set_result(result)


class _Connection(BufferedProtocol):
    """One connection. Requests before it is established are sent when it is."""

    def __init__(self, peers: Peers, loop: AbstractEventLoop, node_id: int, channel: Channel, address: Address) -> None:
        self.ended = False
        self._peers = peers
        self._loop = loop
        self._node_id = node_id
        self._channel = channel
        self._address = address
        self._client_id = peers.client_id(channel)
        self._core = ClientConnection(response_bytes_max=RESPONSE_BYTES_MAX)
        self._transport: Transport | None = None
        self._own_login = peers.login_of(node_id, channel)
        self._login: Login | None = None if self._own_login is None else self._own_login.login
        """The login, until it is complete."""
        self._expires_s: float | None = None
        """Time of the loop from which requests use a new connection, with a new login; None if there is no such time.
        """
        self._has_tls = False
        self._is_retired = False
        """True if a new connection has replaced this one. It closes after its last response."""
        self._is_served = False
        """True if the other node has responded to a request."""
        self._unsent: deque[_PendingRequest] = deque()
        self._sent: deque[_PendingRequest] = deque()

    async def connect(self) -> None:
        host, port = self._address
        tls = self._peers.tls_of(self._node_id, self._channel)
        self._has_tls = tls is not None

        def protocol() -> BufferedProtocol:
            if tls is None:
                return self
            return TlsTransport(self, lambda: tls.client, server_hostname=host, on_failed=self._tls_failed)

        try:
            async with timeout(CONNECT_TIMEOUT_S):
                await self._loop.create_connection(protocol, host, port)
        except OSError as error:  # includes TimeoutError
            refused = isinstance(error, ConnectionRefusedError)
            reason = ConnectionError(f"node {self._node_id} at {host}:{port} cannot be reached: {error}")
            if error.errno in RESOURCE_ERRORS:
                self.end(reason)  # this node has no descriptor or memory, which is no evidence against the other node
            else:
                self._lost(reason, refused=refused)

    def request(self, request: Message, version: int, future: "Future[Any]", timeout_ms: int) -> None:
        pending = _PendingRequest(request, version, future)
        pending.timer = self._loop.call_later(timeout_ms / 1_000, self._timed_out, pending)
        if self._transport is None or self._login is not None:
            self._unsent.append(pending)
        else:
            self._send(pending)

    @property
    def is_expiring(self) -> bool:
        """True if the other node will soon require a new login."""
        return self._expires_s is not None and self._loop.time() >= self._expires_s

    def retire(self) -> None:
        """Close the connection after its last response. A new connection has replaced it."""
        self._is_retired = True
        self._end_if_replaced()

    def _end_if_replaced(self) -> None:
        if self._is_retired and not self._sent:
            self.end(ConnectionError("a new connection has replaced this one"), flush=True)

    def end(self, reason: OSError, *, flush: bool = False) -> None:
        """Close the connection. Pending requests fail with `reason`. With `flush`, buffered ones are still sent."""
        if self.ended:
            return
        self.ended = True
        if self._transport is not None and flush:
            self._transport.close()
        elif self._transport is not None:
            self._transport.abort()
        for waiting in (self._sent, self._unsent):
            while waiting:
                waiting.popleft().finish(reason)

    # ---- transport events -------------------------------------------------------------------------------------------

    def connection_made(self, transport: BaseTransport) -> None:
        self._transport = cast("Transport", transport)
        if self.ended:
            self._transport.abort()
            return
        if self._login is None:
            self._send_unsent()
        else:
            self._send_login(self._login.request, HANDSHAKE_VERSION)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._core.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        self._peers.note_contact(self._node_id)
        try:
            self._core.buffer_updated(nbytes)
            while not self.ended and (received := self._core.next_response()) is not None:
                if self._login is not None:
                    self._continue_login(self._login, received[1])
                    continue
                if not self._is_served:
                    self._is_served = True
                    self._peers.authenticated(self._node_id)
                self._sent.popleft().finish(received[1])
                self._end_if_replaced()
        except Malformed as error:
            _logger.warning("malformed response", node=self._node_id, channel=self._channel.value, reason=str(error))
            self.end(ConnectionError(f"node {self._node_id} sent a malformed response: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is None and not self.ended and (reason := self._closed_because()) is not None:
            self._peers.not_authenticated(self._node_id, reason)
        self._lost(ConnectionError(f"the connection to node {self._node_id} was lost: {exc or 'closed by that node'}"))

    def _closed_because(self) -> str | None:
        """Return the probable reason why the other node closed the connection; None if it is not the authentication."""
        own = self._own_login
        if own is not None and self._login is not None:
            return f"the node closed the connection during the login; {own.closed_remedy}"
        if not self._sent or self._is_served or (own is not None and own.shows_node):
            return None
        if own is not None or self._has_tls:
            return f"the node closed the connection before its first response; {NOT_A_NODE}"
        return (
            "the node closed the connection before its first response; if this repeats and the node has a cluster "
            "secret, set cluster.secret.file here, and odradek.inter.broker.authentication to login or required"
        )

    def _tls_failed(self, reason: str) -> None:
        """Close the connection, without a report that the other node has failed: it runs."""
        host, port = self._address
        remedy = "check the certificates and the security protocol of the listeners on both nodes"
        self._peers.not_authenticated(self._node_id, f"TLS with {host}:{port} failed: {reason}; {remedy}")
        self.end(ConnectionError(f"TLS with node {self._node_id} failed: {reason}"), flush=True)

    # ---- requests and end -------------------------------------------------------------------------------------------

    def _continue_login(self, login: Login, response: Message) -> None:
        try:
            request = login.received(response)
        except AuthenticationFailed as error:
            host, port = self._address
            remedy = "" if self._own_login is None else self._own_login.remedy
            remedy = f"{remedy}, and that node {self._node_id} is at {host}:{port}"
            self._peers.not_authenticated(self._node_id, f"{error}; {remedy}")
            self.end(ConnectionError(f"authentication to node {self._node_id} failed: {error}"))
            return
        if request is None:
            self._login = None
            if login.session_lifetime_ms:
                self._expires_s = self._loop.time() + login.session_lifetime_ms / 1_000 * SESSION_SHARE_USED
            if self._own_login is not None and self._own_login.shows_node:
                self._peers.authenticated(self._node_id)
            self._send_unsent()
        else:
            self._send_login(request, AUTHENTICATE_VERSION)

    def _send_login(self, request: Message, version: int) -> None:
        assert self._transport is not None
        self._transport.write(self._core.send(request, version, self._client_id)[1])

    def _send_unsent(self) -> None:
        while self._unsent:
            self._send(self._unsent.popleft())

    def _send(self, pending: _PendingRequest) -> None:
        assert self._transport is not None
        try:
            _, data = self._core.send(pending.request, pending.version, self._client_id)
        except Unencodable as error:  # a bug of the sender, which must not stop the requests behind this one
            pending.finish(error)
            return
        self._sent.append(pending)
        self._transport.write(data)

    def _timed_out(self, pending: _PendingRequest) -> None:
        """Close the connection, even if the sender has cancelled the request: the machine may have failed silently."""
        pending.finish(TimeoutError(f"node {self._node_id} did not respond in time"))
        self.end(ConnectionError(f"node {self._node_id} did not respond to an earlier request in time"))

    def _lost(self, reason: OSError, *, refused: bool = False) -> None:
        if not self.ended:
            self.end(reason)
            if not self._is_retired:
                self._peers.lost(self._node_id, refused=refused)
