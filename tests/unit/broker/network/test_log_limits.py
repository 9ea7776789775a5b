"""Log lines about connections: a client that opens and leaves connections causes a bounded number of them."""

from collections.abc import Callable
from typing import Any

import structlog

from odradek.broker.network.connection import Connection
from odradek.broker.network.limits import LOG_LINES_PER_SECOND, ConnectionLimits
from odradek.broker.network.server_state import ServerState
from odradek.broker.requests.listener import Listener
from odradek.broker.requests.session import Session

LISTENER = Listener("CLIENTS", "", 1, "h", 1)


class Alternating(ConnectionLimits):
    """Limits of connections that admit and refuse by turns."""

    def __init__(self) -> None:
        self.admits = False

    def admit(self, address: str, *, protected: bool = False, evict: Callable[[], bool] = lambda: False) -> str | None:
        self.admits = not self.admits
        return None if self.admits else "max.connections"


def state() -> ServerState[Connection]:
    parts: Any = None
    return ServerState(parts, parts, Alternating(), parts)


def test_connections_closed_after_a_deadline_cause_a_bounded_number_of_lines() -> None:
    server = state()
    with structlog.testing.capture_logs() as logs:
        for number in range(20):
            server.log_expired(Session(number, LISTENER, "10.0.0.1", 2), 1.0)
        server.log_expired(Session(99, LISTENER, "10.0.0.1", 2), 2.0)
    assert [row["event"] for row in logs] == ["connection closed: deadline passed"] * (LOG_LINES_PER_SECOND + 1)
    assert logs[-1]["suppressed"] == 20 - LOG_LINES_PER_SECOND


async def test_connections_refused_by_turns_cause_a_bounded_number_of_lines() -> None:
    server = state()
    connection: Any = object()
    with structlog.testing.capture_logs() as logs:
        for _ in range(100):
            server.admit(connection, LISTENER, "10.0.0.1", 2)
    lines = [row for row in logs if row["event"] == "connection refused: limit exceeded"]
    assert LOG_LINES_PER_SECOND <= len(lines) < 50
