"""The maximum number of connections of single addresses: max.connections.per.ip.overrides."""

from collections.abc import Mapping
from functools import lru_cache
from ipaddress import ip_address
from types import MappingProxyType
from typing import Final

from odradek.broker.config.property import INT_MAX, ConfigError

OVERRIDES: Final = "max.connections.per.ip.overrides"


@lru_cache(maxsize=4)
def parse_overrides(text: str) -> Mapping[str, int]:
    """Return the maximum of each address from a text such as `10.0.0.1:100,::1:5`. Raise ConfigError."""
    maxima: dict[str, int] = {}
    for entry in filter(None, map(str.strip, text.split(","))):
        host, _, number = (part.strip() for part in entry.rpartition(":"))
        try:
            address = str(ip_address(host.strip("[]")))
        except ValueError:
            raise ConfigError(f"{OVERRIDES}: {entry!r} is not of the form address:number; names are refused") from None
        if not (number.isascii() and number.isdecimal() and len(number) <= len(str(INT_MAX))):
            raise ConfigError(f"{OVERRIDES}: {entry!r} is not of the form address:number")
        maxima[address] = int(number)
    return MappingProxyType(maxima)
