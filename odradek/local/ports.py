"""Reserve free ports before the brokers start, because each broker needs the addresses of the others.

A reservation must not be lost between its selection and the start of the broker:

1. The ports are below the range that the kernel assigns to outgoing connections.
2. A reserved port is bound, but no process listens on it. Another process that reserves ports in this way fails to
   bind it. The broker can bind and listen on it, because both sockets have SO_REUSEADDR.

The failure detector uses the UDP port of the same number. The reservation checks that it is free, too.
"""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

PORT_MIN = 20_000
"""Smallest port that is reserved."""
EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
EPHEMERAL_MIN_DEFAULT = 32_768
"""Linux's default for the smallest port of outgoing connections."""
ATTEMPTS_MAX = 1_000
"""Maximum random ports that one reservation tries."""


class ReservedPorts:
    """A number of free ports of one host. They are reserved until `close`.

    Raises:
        OSError: Not enough free ports were found, or the host name is unknown.
    """

    def __init__(self, host: str, count: int) -> None:
        self._sockets = ExitStack()
        self.ports: list[int] = []
        self.add(host, count)

    def add(self, host: str, count: int) -> list[int]:
        """Reserve further ports of `host`, and return them. Raise OSError as the constructor does."""
        added: list[int] = []
        generator = random.SystemRandom()
        below = ephemeral_min()
        try:
            for _ in range(ATTEMPTS_MAX):
                if len(added) == count:
                    break
                port = generator.randrange(PORT_MIN, below)
                if port not in self.ports and self._reserve(host, port):
                    added.append(port)
                    self.ports.append(port)
            else:
                raise OSError(
                    f"{host}: no {count} free ports between {PORT_MIN} and {below}; "
                    "use an address of this machine, or choose a port"
                )
        except BaseException:
            self.close()
            raise
        return added

    def are_free(self, host: str, ports: Sequence[int]) -> bool:
        """Return True if all of these ports are free, and reserve them."""
        return all(self._reserve(host, port) for port in ports)

    def _reserve(self, host: str, port: int) -> bool:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        reservation = socket.socket(family, socket.SOCK_STREAM)
        try:
            reservation.bind((host, port))
            with socket.socket(family, socket.SOCK_DGRAM) as datagrams:
                datagrams.bind((host, port))
        except OSError as error:
            reservation.close()
            if isinstance(error, socket.gaierror):
                raise
            return False
        # SO_REUSEADDR is set only after bind. If it were set before, two reservations could bind the same port.
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._sockets.callback(reservation.close)
        return True

    def close(self) -> None:
        """End the reservation."""
        self._sockets.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def ephemeral_min() -> int:
    """Return the smallest port that the kernel assigns to outgoing connections.

    Return Linux's default if the range cannot be read, or if it leaves fewer than `ATTEMPTS_MAX` ports above
    `PORT_MIN`.
    """
    try:
        first = int(EPHEMERAL_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return EPHEMERAL_MIN_DEFAULT
    return first if first > PORT_MIN + ATTEMPTS_MAX else EPHEMERAL_MIN_DEFAULT
