"""Memory of a broker with many idle connections: all of them share one receive buffer."""

from __future__ import annotations

import resource
import socket
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from benchmarks.floods import Broker
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from tests.support.raw_client import SIZE, encode_request

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CONNECTIONS = 2_000
WARM_UP = 100
"""Connections before the measurement. The first ones grow tables of the event loop and of the allocator."""
KIB_PER_CONNECTION_MAX = 8.0
"""Maximum resident KiB per idle connection. The receive buffer has 32 KiB, so connections must not own one."""
TIMEOUT_S = 30.0
REQUEST = encode_request(ApiVersionsRequest("idle", "1"), 3, 1, "idle")


@contextmanager
def many_open_files() -> Iterator[None]:
    """Raise RLIMIT_NOFILE of the test to its maximum."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def idle_connection(address: tuple[str, int]) -> socket.socket:
    """Open a connection, and receive the response to one request."""
    connection = socket.create_connection(address, TIMEOUT_S)
    connection.sendall(REQUEST)
    [size] = SIZE.unpack(connection.recv(SIZE.size, socket.MSG_WAITALL))
    assert len(connection.recv(size, socket.MSG_WAITALL)) == size
    return connection


async def test_idle_connection_occupies_a_fraction_of_a_receive_buffer(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    try:
        await broker.ready()
        with many_open_files(), ExitStack() as connections:
            for _ in range(WARM_UP):
                connections.enter_context(idle_connection(broker.address))
            before_mib = broker.resident_mib
            for _ in range(CONNECTIONS):
                connections.enter_context(idle_connection(broker.address))
            growth_mib = broker.resident_mib - before_mib
        assert 1024 * growth_mib / CONNECTIONS < KIB_PER_CONNECTION_MAX
    finally:
        code = broker.stop()
    assert code == 0
