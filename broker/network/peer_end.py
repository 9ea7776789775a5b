"""End of a connection that is not read: its client has closed it, or has failed."""

from asyncio import BaseTransport
from select import POLLERR, POLLHUP, poll
from typing import Final

POLLRDHUP: Final = 0x2000
"""Event of `poll(2)` on Linux: the other side has closed the connection, or its sending half."""


def has_ended(transport: BaseTransport | None) -> bool:
    """Return True if the client has closed the connection, also if bytes that it sent before are not read.

    Return False if that is not known: a simulated transport has no socket, and only Linux has POLLRDHUP. Like the end
    of a connection that is read, the end of the sending half counts, as in Kafka.
    """
    connection = None if transport is None else transport.get_extra_info("socket")
    if connection is None or connection.fileno() < 0:
        return False
    poller = poll()
    poller.register(connection.fileno(), POLLRDHUP)
    return any(events & (POLLRDHUP | POLLHUP | POLLERR) for _, events in poller.poll(0))
