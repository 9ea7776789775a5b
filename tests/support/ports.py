"""Ports for servers of tests, outside the range that outgoing connections are given theirs from."""

from __future__ import annotations

import socket
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from odradek.local.launch import inter_broker_port, metrics_port
from odradek.local.ports import ReservedPorts

if TYPE_CHECKING:
    from collections.abc import Iterator

HOST = "127.0.0.1"
ATTEMPTS_MAX = 100


def free_ports(count: int) -> list[int]:
    """For TCP and UDP; none that an outgoing connection is given in between."""
    with ReservedPorts(HOST, count) as held:
        return held.ports


def free_port() -> int:
    return free_ports(1)[0]


@contextmanager
def one_taken(brokers: int, taken: int) -> Iterator[list[int]]:
    """Yield consecutive ports of a local cluster. The port with index `taken` is in use, the others are free."""
    for _ in range(ATTEMPTS_MAX):
        first = free_port()
        ports = [first + number for number in range(brokers)]
        with ExitStack() as held:
            try:
                for port in (*ports, *map(metrics_port, ports), *map(inter_broker_port, ports)):
                    sock = held.enter_context(socket.socket())
                    sock.bind((HOST, port))
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                held.enter_context(socket.create_server((HOST, ports[taken])))
            except OSError:
                continue
            yield ports
            return
    raise OSError(f"no {brokers} free ports in a row")
