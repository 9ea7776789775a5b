"""Free ports, chosen before the brokers start: each must know the others' addresses.

A port is taken from below the range that the kernel gives to outgoing connections, so that none of those can take it in
between, and is held until the broker listens on it: bound without listening, which keeps out everybody who chooses ports
in this way but not the broker itself, since both sides allow the reuse of an address that nobody listens on.
The failure detector uses the UDP port of the same number, which therefore has to be free as well.
"""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

PORT_MIN = 20_000
PORT_MAX = 65_535
EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
EPHEMERAL_MIN_DEFAULT = 32_768
ATTEMPTS_MAX = 1_000


class HeldPorts:
    """So many free ports of a host, held until `close`. Raises OSError when there are not so many."""

    def __init__(self, host: str, count: int) -> None:
        self._held = ExitStack()
        self.ports: list[int] = []
        generator = random.SystemRandom()
        below = ephemeral_min()
        try:
            for _ in range(ATTEMPTS_MAX):
                if len(self.ports) == count:
                    break
                port = generator.randrange(PORT_MIN, below)
                if port not in self.ports and self._hold(host, port):
                    self.ports.append(port)
            else:
                raise OSError(f"{host}: no {count} free ports between {PORT_MIN} and {below}")
        except BaseException:
            self.close()
            raise

    def _hold(self, host: str, port: int) -> bool:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        held = socket.socket(family, socket.SOCK_STREAM)
        try:
            held.bind((host, port))
            with socket.socket(family, socket.SOCK_DGRAM) as datagrams:
                datagrams.bind((host, port))
        except OSError as taken:
            held.close()
            if isinstance(taken, socket.gaierror):
                raise
            return False
        held.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # only now: nobody else may bind, but who listens may
        self._held.callback(held.close)
        return True

    def close(self) -> None:
        self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def ephemeral_min() -> int:
    """The first port that an outgoing connection may be given."""
    try:
        first = int(EPHEMERAL_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return EPHEMERAL_MIN_DEFAULT
    return first if first > PORT_MIN + ATTEMPTS_MAX else EPHEMERAL_MIN_DEFAULT
