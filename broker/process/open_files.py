"""Maximum number of connections, from the limit of open files of the process (RLIMIT_NOFILE)."""

from collections.abc import Callable
from sys import maxsize
from typing import Final

import structlog

_logger = structlog.get_logger(__name__)
RESERVED_MIN: Final = 64
"""Minimum descriptors per process that connections leave to new segments, to connections with other brokers, to
listeners and to the event loop."""
RESERVED_DIVISOR: Final = 4
"""Part of the limit of open files that connections leave to logs, as a divisor: a quarter.

A broker with many logs creates many segments. The files of logs and `socket.listen.backlog.size` reduce the maximum
number of connections, too.
"""
CONNECTIONS_MIN: Final = 8
"""Connections per process that are accepted in any case, so that an operator can reach a broker with many logs."""


def unlimited_connections() -> int:
    """Return the maximum number of connections of a node that does not run as a process of its own."""
    return maxsize


class OpenFileLimit:
    """Number of connections that the limit of open files permits."""

    def __init__(self, limit: int, open_files: Callable[[], int], *, backlog: int) -> None:
        """`limit` is RLIMIT_NOFILE. `open_files` returns the descriptors of log files.

        `backlog` is the number of connections that the event loop can accept before it closes the first of them.
        """
        self._open_files = open_files
        self._available = limit - max(RESERVED_MIN, limit // RESERVED_DIVISOR) - backlog
        _logger.info("open files limited", limit=limit, connections_max=self.connections_max())

    def connections_max(self) -> int:
        """Return the maximum number of connections, given the present number of log files."""
        return max(CONNECTIONS_MIN, self._available - self._open_files())
