"""Session of one connection, as request handlers see it."""

from asyncio import sleep
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import IPv6Network
from typing import TYPE_CHECKING, Any, Final

from odradek.broker.requests.listener import LOGIN, Listener
from odradek.broker.requests.node_principals import SessionNode
from odradek.broker.requests.session_login import SessionLogin
from odradek.cluster.authorizer import ANONYMOUS, CLUSTER_NODE, Principal
from odradek.protocol.sasl.mechanism import AuthenticationFailed

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from contextlib import AbstractContextManager

    from odradek.broker.requests.large_work import LargeWork

IPV6_PREFIX_BITS: Final = 64
"""Bits of an IPv6 address that identify the network of a client (RFC 4291, section 2.5.4)."""
NO_CONNECTION: Final = -1
"""Connection id of a session whose client is connected to another broker."""


@dataclass(slots=True, eq=False)
class Session:
    """State of one connection: its client, its principal, and callbacks for its next request and its end."""

    connection_id: int
    listener: Listener
    client_host: str
    client_port: int
    principal: Principal = ANONYMOUS
    client_id: str | None = None
    """Client id in the connection's last request."""
    node: SessionNode | None = None
    """The node of the cluster that the client has authenticated as; None if it is no node."""
    login: SessionLogin = field(default_factory=SessionLogin)
    """The SASL login of the client."""
    closed: bool = False
    on_close: Callable[[str], None] | None = None
    """Function that closes the connection, given the reason. The connection sets it."""
    on_charge: Callable[[int], None] | None = None
    """Function that reserves bytes until the response is sent, or releases them. The connection sets it."""
    on_login_failed: Callable[[AuthenticationFailed], None] | None = None
    """Function that logs a failed authentication, given the reason. The connection sets it."""
    on_check: Callable[[], None] | None = None
    """Function that ends the session if the client has closed the connection. The connection sets it."""
    begin_large: "Callable[[Any], AbstractContextManager[LargeWork]] | None" = None
    """Function that begins work on the large request of a `RequestContext`. The connection sets it."""
    on_next_turn: "Callable[[Session], Awaitable[None]] | None" = None
    """Function that waits for the next turn of a request in slices. The connection sets it."""
    _waiting: dict[Callable[[], None], None] = field(default_factory=dict)
    _on_end: dict[Callable[[], object], None] = field(default_factory=dict)

    def log_in(self, principal: Principal, *, node_id: int | None = None, by_token: bool = False) -> None:
        """Serve the connection as `principal`.

        `node_id`: the node of the cluster that has proved its knowledge of the cluster secret. Without it, the listener
        decides whether the principal is one of a node. `by_token`: a delegation token authenticated the client, which
        makes it no node, also if it was one before.
        """
        self.principal = principal
        if by_token:
            self.node = None
        elif node_id is not None:
            self.node = SessionNode.of(frozenset((node_id,)))
        elif self.node is None and self.listener.nodes is not None:
            self.node = self.listener.nodes.node_of(principal, self.client_host)

    @property
    def authenticated(self) -> bool:
        """True if the client has authenticated as a node of the cluster."""
        return self.node is not None

    @property
    def roles(self) -> tuple[str, ...]:
        """Return the roles in which the listener serves this connection now."""
        if self.node is not None:
            return self.listener.roles if self.principal == CLUSTER_NODE else self.listener.node_roles
        return self.listener.open_roles if self.login.identity is None else self.listener.user_roles

    @property
    def awaits_login(self) -> bool:
        """True if the connection serves nothing but a login until the client has authenticated."""
        return self.roles == (LOGIN,) and self.login.identity is None

    @property
    def is_forwarded(self) -> bool:
        """True if the client is connected to another broker, which forwarded its request."""
        return self.connection_id == NO_CONNECTION

    def on_next_request(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, when this connection has received another request or has ended.

        Responses leave in the order of requests, so a parked Fetch delays all later responses. It therefore
        registers here, and responds early. `callback` must not raise.
        """
        self._waiting[callback] = None

    def cancel_on_next_request(self, callback: Callable[[], None]) -> None:
        """Remove a callback that `on_next_request` registered. It may have run already."""
        self._waiting.pop(callback, None)

    def on_end(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call `callback` when this connection ends. Return a function that removes the callback.

        A request that can wait for minutes, such as JoinGroup, registers here to stop waiting. `callback` must not
        raise.
        """
        self._on_end[callback] = None

        def remove() -> None:
            self._on_end.pop(callback, None)

        return remove

    def wake_waiting(self) -> None:
        """Run and remove the callbacks of `on_next_request`, in the order of registration."""
        while self._waiting:
            callback = next(iter(self._waiting))
            del self._waiting[callback]
            callback()

    async def next_turn(self) -> None:
        """Let other work run between two slices of a request.

        One such request of a client, and one of a broker, go on per iteration of the event loop.
        """
        await (sleep(0) if self.on_next_turn is None else self.on_next_turn(self))
        self.check_peer()

    def close(self, reason: str) -> None:
        """Close the connection. A Produce with acks=0 that fails has no other way to report it."""
        if self.on_close is not None:
            self.on_close(reason)

    def login_failed(self, error: AuthenticationFailed) -> None:
        """Log that the login of the client failed. The message of `error` contains no nonce and no proof."""
        if self.on_login_failed is not None:
            self.on_login_failed(error)

    def charge(self, count: int) -> None:
        """Reserve `count` bytes of the byte budget until the response of their request; release them if negative."""
        if self.on_charge is not None:
            self.on_charge(count)

    def check_peer(self) -> None:
        """End the session if the client has closed the connection.

        A connection is not read while a request is handled, so its end is not noticed otherwise.
        """
        if self.on_check is not None:
            self.on_check()

    def end(self) -> None:
        """Mark the connection as closed, and run all registered callbacks."""
        self.closed = True
        self.wake_waiting()
        callbacks, self._on_end = self._on_end, {}
        for callback in callbacks:
            callback()


def origin_of(host: str) -> str:
    """Return the IPv4 address of a client, or the network of its IPv6 address: one client can have all its addresses.

    Return `host` if it is no address, as in simulations.
    """
    if ":" not in host:
        return host
    return str(IPv6Network((host.partition("%")[0], IPV6_PREFIX_BITS), strict=False))
