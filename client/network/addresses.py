"""Addresses of brokers."""

from __future__ import annotations

from typing import Final

from odradek.client.errors import InvalidArgument

Address = tuple[str, int]
"""Host and port."""
PORT_MAX: Final = 65_535
"""Maximum port of TCP."""


def parse_bootstrap(bootstrap: str) -> list[Address]:
    """Parse `host:port,...`. An IPv6 address stands in brackets. Raise InvalidArgument if an entry is malformed."""
    addresses = []
    for endpoint in bootstrap.split(","):
        host, _, port = endpoint.strip().rpartition(":")
        if not host or not (port.isascii() and port.isdecimal()):
            raise InvalidArgument(f"bootstrap is {bootstrap!r}: expected host:port")
        if len(port) > len(str(PORT_MAX)) or int(port) > PORT_MAX:
            raise InvalidArgument(f"bootstrap is {bootstrap!r}: the highest port is {PORT_MAX}")
        addresses.append((host.strip("[]"), int(port)))
    return addresses
