"""One connection of this node to another node: its login, its requests in order, and its end."""

from asyncio import (
    AbstractEventLoop,
    BaseTransport,
    BufferedProtocol,
    Future,
    TimerHandle,
    Transport,
    timeout,
)
from collections import deque
from typing import Any, Final, Protocol, cast

import structlog

from odradek.broker.quorum.peer_login import NOT_A_NODE, PeerLogin
from odradek.broker.tls.node_tls import ListenerTls
from odradek.broker.tls.transport import TlsTransport
from odradek.protocol.client import ClientConnection
from odradek.protocol.errors import Malformed, Unencodable
from odradek.protocol.sasl.login import AUTHENTICATE_VERSION, HANDSHAKE_VERSION, Login
from odradek.protocol.sasl.mechanism import AuthenticationFailed
from odradek.protocol.schema import Message
from odradek.storage.disk.port import RESOURCE_ERRORS

CONNECT_TIMEOUT_S: Final = 2.0
"""Maximum seconds for opening a connection."""
SESSION_SHARE_USED: Final = 0.85
"""Share of the lifetime of a session after which a new connection replaces it. Kafka's clients use 0.85 to 0.95."""
RESPONSE_BYTES_MAX: Final = 256 * 1024 * 1024
"""Maximum bytes of a response. Memory is allocated as bytes arrive, not by the size in the response's header."""
Address = tuple[str, int]
_logger = structlog.get_logger(__name__)


class Owner(Protocol):
    """The connections of this node. `odradek.broker.quorum.peers` implements it."""

    def note_contact(self, node_id: int) -> None:
        """Record that bytes from `node_id` have arrived."""

    def lost(self, node_id: int, *, refused: bool) -> None:
        """Report a connection that this node did not close itself."""

    def authenticated(self, node_id: int) -> None:
        """Record that this node and `node_id` have authenticated to each other, or that it serves this node."""

    def not_authenticated(self, node_id: int, reason: str) -> None:
        """Log a failed authentication."""


class PendingRequest:
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


class PeerConnection(BufferedProtocol):
    """One connection. Requests before it is established are sent when it is."""

    def __init__(
        self,
        owner: Owner,
        loop: AbstractEventLoop,
        node_id: int,
        address: Address,
        client_id: str,
        login: PeerLogin | None,
        tls: ListenerTls | None,
    ) -> None:
        """`client_id` is that of each request. `login` is None if this node does not log in at the other one.

        `tls` is None if the connection is not encrypted.
        """
        self.ended = False
        self._owner = owner
        self._loop = loop
        self._node_id = node_id
        self._address = address
        self._client_id = client_id
        self._tls = tls
        self._core = ClientConnection(response_bytes_max=RESPONSE_BYTES_MAX)
        self._transport: Transport | None = None
        self._own_login = login
        self._login: Login | None = None if login is None else login.login
        """The login, until it is complete."""
        self._expires_s: float | None = None
        """Time of the loop from which requests use a new connection, with a new login; None if there is no such time.
        """
        self._is_retired = False
        """True if a new connection has replaced this one. It closes after its last response."""
        self._is_served = False
        """True if the other node has responded to a request."""
        self._unsent: deque[PendingRequest] = deque()
        self._sent: deque[PendingRequest] = deque()

    async def connect(self) -> None:
        host, port = self._address
        tls = self._tls

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
        pending = PendingRequest(request, version, future)
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
        self._owner.note_contact(self._node_id)
        try:
            self._core.buffer_updated(nbytes)
            while not self.ended and (received := self._core.next_response()) is not None:
                if self._login is not None:
                    self._continue_login(self._login, received[1])
                    continue
                if not self._is_served:
                    self._is_served = True
                    self._owner.authenticated(self._node_id)
                self._sent.popleft().finish(received[1])
                self._end_if_replaced()
        except Malformed as error:
            _logger.warning("malformed response", node=self._node_id, client_id=self._client_id, reason=str(error))
            self.end(ConnectionError(f"node {self._node_id} sent a malformed response: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is None and not self.ended and (reason := self._closed_because()) is not None:
            self._owner.not_authenticated(self._node_id, reason)
        self._lost(ConnectionError(f"the connection to node {self._node_id} was lost: {exc or 'closed by that node'}"))

    def _closed_because(self) -> str | None:
        """Return the probable reason why the other node closed the connection; None if it is not the authentication."""
        own = self._own_login
        if own is not None and self._login is not None:
            return f"the node closed the connection during the login; {own.closed_remedy}"
        if not self._sent or self._is_served or (own is not None and own.shows_node):
            return None
        if own is not None or self._tls is not None:
            return f"the node closed the connection before its first response; {NOT_A_NODE}"
        return (
            "the node closed the connection before its first response; if this repeats and the node has a cluster "
            "secret, set cluster.secret.file here, and odradek.inter.broker.authentication to login or required"
        )

    def _tls_failed(self, reason: str) -> None:
        """Close the connection, without a report that the other node has failed: it runs."""
        host, port = self._address
        remedy = "check the certificates and the security protocol of the listeners on both nodes"
        self._owner.not_authenticated(self._node_id, f"TLS with {host}:{port} failed: {reason}; {remedy}")
        self.end(ConnectionError(f"TLS with node {self._node_id} failed: {reason}"), flush=True)

    # ---- requests and end -------------------------------------------------------------------------------------------

    def _continue_login(self, login: Login, response: Message) -> None:
        try:
            request = login.received(response)
        except AuthenticationFailed as error:
            host, port = self._address
            remedy = "" if self._own_login is None else self._own_login.remedy
            remedy = f"{remedy}, and that node {self._node_id} is at {host}:{port}"
            self._owner.not_authenticated(self._node_id, f"{error}; {remedy}")
            self.end(ConnectionError(f"authentication to node {self._node_id} failed: {error}"))
            return
        if request is None:
            self._login = None
            if login.session_lifetime_ms:
                self._expires_s = self._loop.time() + login.session_lifetime_ms / 1_000 * SESSION_SHARE_USED
            if self._own_login is not None and self._own_login.shows_node:
                self._owner.authenticated(self._node_id)
            self._send_unsent()
        else:
            self._send_login(request, AUTHENTICATE_VERSION)

    def _send_login(self, request: Message, version: int) -> None:
        assert self._transport is not None
        self._transport.write(self._core.send(request, version, self._client_id)[1])

    def _send_unsent(self) -> None:
        while self._unsent:
            self._send(self._unsent.popleft())

    def _send(self, pending: PendingRequest) -> None:
        assert self._transport is not None
        try:
            _, data = self._core.send(pending.request, pending.version, self._client_id)
        except Unencodable as error:  # a bug of the sender, which must not stop the requests behind this one
            pending.finish(error)
            return
        self._sent.append(pending)
        self._transport.write(data)

    def _timed_out(self, pending: PendingRequest) -> None:
        """Close the connection, even if the sender has cancelled the request: the machine may have failed silently."""
        pending.finish(TimeoutError(f"node {self._node_id} did not respond in time"))
        self.end(ConnectionError(f"node {self._node_id} did not respond to an earlier request in time"))

    def _lost(self, reason: OSError, *, refused: bool = False) -> None:
        if not self.ended:
            self.end(reason)
            if not self._is_retired:
                self._owner.lost(self._node_id, refused=refused)
