"""The socket addresses of datagrams. Host names are resolved in the background, never while a datagram is sent."""

from __future__ import annotations

from asyncio import get_running_loop
from ipaddress import ip_address
from socket import AF_INET, AF_INET6, SOCK_DGRAM
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable

    from odradek.runtime.clock import Clock
    from odradek.runtime.tasks import Tasks

LOOK_UP_PAUSE_MS: Final = 1_000
"""Minimum time between two look-ups of one name, in milliseconds."""
ADDRESSES_MAX: Final = 16
"""Maximum addresses of one name that are kept."""
UNKNOWN_NODES_MAX: Final = 64
"""Maximum nodes without a known address that receive acknowledgments at the address of their latest datagram."""

HostPort: TypeAlias = tuple[str, int]
_logger = structlog.get_logger(__name__)


class AddressBook:
    """The socket addresses by node id."""

    def __init__(
        self, address_of: Callable[[int], HostPort | None], *, sockname: Any, clock: Clock, tasks: Tasks
    ) -> None:
        """Start without resolved names.

        `address_of(node id)`: host and port according to the cluster metadata, or None. `sockname`: the local address
        of the sending socket; its family is the only one that can be reached.
        """
        self._address_of = address_of
        self._clock = clock
        self._tasks = tasks
        self._family = AF_INET6 if len(sockname) > 2 else AF_INET
        self._resolved: dict[HostPort, list[Any]] = {}
        """The socket addresses of each name. Datagrams go to the first one."""
        self._look_up_ms: dict[HostPort, int] = {}
        """The time of the last look-up of each name."""
        self._unknown: dict[int, Any] = {}
        """The source addresses of nodes that the metadata does not have yet."""

    def route(self, node_id: int) -> Any | None:
        """Return the socket address of a node. None: it is unknown, or its name is being resolved."""
        address = self._address_of(node_id)
        if address is None:
            return self._unknown.get(node_id)
        self._unknown.pop(node_id, None)
        if address not in self._resolved:
            self._look_up(address)
        found = self._resolved.get(address)
        return found[0] if found else None

    def is_source(self, node_id: int, source: Any) -> bool:
        """Return True if `source` is an address of the node according to the cluster metadata."""
        address = self._address_of(node_id)
        if address is None:
            return False
        if address not in self._resolved:
            self._look_up(address)
        host, port = source[0].partition("%")[0], source[1]  # the kernel adds the zone of a link-local address
        return any(host == one[0].partition("%")[0] and port == one[1] for one in self._resolved.get(address, ()))

    def refresh(self, node_id: int) -> None:
        """Resolve again the host name of a node that does not respond: its address may have changed."""
        address = self._address_of(node_id)
        if address is not None and address in self._resolved:
            self._look_up(address)

    def received_from(self, node_id: int, source: Any) -> None:
        """Remember the source address of an authentic datagram if the node is unknown."""
        if node_id not in self._unknown and self._address_of(node_id) is None:
            while len(self._unknown) >= UNKNOWN_NODES_MAX:
                del self._unknown[next(iter(self._unknown))]
            self._unknown[node_id] = source

    def _look_up(self, address: HostPort) -> None:
        try:
            literal = ip_address(address[0])
        except ValueError:
            now_ms = self._clock.monotonic_ms()
            if now_ms - self._look_up_ms.get(address, now_ms - LOOK_UP_PAUSE_MS) >= LOOK_UP_PAUSE_MS:
                self._look_up_ms[address] = now_ms
                self._tasks.spawn(self._resolve(address), f"look up {address[0]}")
            return
        if (literal.version == 6) == (self._family == AF_INET6):
            self._resolved[address] = [(str(literal), *address[1:])]

    async def _resolve(self, address: HostPort) -> None:
        try:
            found = await get_running_loop().getaddrinfo(*address, family=self._family, type=SOCK_DGRAM)
        except OSError as error:
            _logger.debug("host name not resolved", host=address[0], reason=str(error))
            return
        if found:
            self._resolved[address] = [row[4] for row in found[:ADDRESSES_MAX]]
