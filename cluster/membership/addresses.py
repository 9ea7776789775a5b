"""Where datagrams for a node go: names looked up aside, never on the way of a datagram."""

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
"""Between two look-ups of one name."""
STRANGERS_MAX: Final = 64
"""Nodes that are not members yet and are answered where they asked from."""

HostPort: TypeAlias = tuple[str, int]
_logger = structlog.get_logger("cluster.membership")


class AddressBook:
    """`address_of(node id)`: host and port as the cluster knows them, None where it does not."""

    def __init__(
        self, address_of: Callable[[int], HostPort | None], *, sockname: Any, clock: Clock, tasks: Tasks
    ) -> None:
        """`sockname`: of the socket that will send; it says which family can be reached."""
        self._address_of = address_of
        self._clock = clock
        self._tasks = tasks
        self._family = AF_INET6 if len(sockname) > 2 else AF_INET
        self._found: dict[HostPort, Any] = {}
        self._asked_ms: dict[HostPort, int] = {}
        self._strangers: dict[int, Any] = {}

    def route(self, node_id: int) -> Any | None:
        """A socket address, or None: then a look-up is under way, or there is nothing to look up."""
        address = self._address_of(node_id)
        if address is None:
            return self._strangers.get(node_id)
        self._strangers.pop(node_id, None)
        if address not in self._found:
            self._look_up(address)
        return self._found.get(address)

    def doubt(self, node_id: int) -> None:
        """The node does not answer there: its name may mean another address by now."""
        address = self._address_of(node_id)
        if address is not None and address in self._found:
            self._look_up(address)

    def met(self, node_id: int, source: Any) -> None:
        """An authentic datagram of the node has come from `source`."""
        if node_id not in self._strangers and self._address_of(node_id) is None:
            while len(self._strangers) >= STRANGERS_MAX:
                del self._strangers[next(iter(self._strangers))]
            self._strangers[node_id] = source

    def _look_up(self, address: HostPort) -> None:
        try:
            literal = ip_address(address[0])
        except ValueError:
            now_ms = self._clock.monotonic_ms()
            if now_ms - self._asked_ms.get(address, now_ms - LOOK_UP_PAUSE_MS) >= LOOK_UP_PAUSE_MS:
                self._asked_ms[address] = now_ms
                self._tasks.spawn(self._ask(address), f"look up {address[0]}")
            return
        if (literal.version == 6) == (self._family == AF_INET6):
            self._found[address] = address

    async def _ask(self, address: HostPort) -> None:
        try:
            found = await get_running_loop().getaddrinfo(*address, family=self._family, type=SOCK_DGRAM)
        except OSError as error:
            _logger.debug("a host is not found", host=address[0], reason=str(error))
            return
        if found:
            self._found[address] = found[0][4]
