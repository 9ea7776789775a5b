"""Addresses of brokers."""

from __future__ import annotations

from odradek.client.errors import InvalidArgument

Address = tuple[str, int]
"""Host and port."""


def parse_bootstrap(bootstrap: str) -> list[Address]:
    """Parse `host:port,...`. An IPv6 address stands in brackets. Raise InvalidArgument if an entry is malformed."""
    addresses = []
    for endpoint in bootstrap.split(","):
        host, _, port = endpoint.strip().rpartition(":")
        if not host or not (port.isascii() and port.isdecimal()):
            raise InvalidArgument(f"bootstrap is {bootstrap!r}: expected host:port")
        addresses.append((host.strip("[]"), int(port)))
    return addresses
