"""Addresses of HTTP servers in the options of the console. This module is pure."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from odradek.client.errors import InvalidArgument

if TYPE_CHECKING:
    from urllib.parse import SplitResult


def parse_http_address(url: str, option: str) -> SplitResult:
    """Parse an address that an option names.

    Raise InvalidArgument if it is malformed, or if it has a user and password, which the console does not send.
    """
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address:
        raise InvalidArgument(f"the address {url} of {option} is not http:// or https:// with a host")
    if "@" in parts.netloc:
        raise InvalidArgument(
            f"the console sends no user and password to the address of {option}", "remove them from it"
        )
    return parts
