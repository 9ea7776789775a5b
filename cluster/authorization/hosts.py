"""Hosts of ACLs: addresses, and networks in CIDR notation, in forms that can be looked up.

Apache Kafka 4.4 compares addresses as text, and writes IPv6 addresses without `::`. Here an address is compared by its
value, so that each notation of it matches.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Final, NamedTuple

from odradek.protocol.acls import WILDCARD

IPV4_BITS: Final = 32
IPV6_BITS: Final = 128
OCTET_MAX: Final = 255
_IPV4_NETWORK: Final = re.compile(r"(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})/(\d{1,2})", re.ASCII)
_LENGTH: Final = re.compile(r"[+-]?\d+", re.ASCII)

ADDRESSES_MAX: Final = 4_096
"""Maximum parsed addresses, and hosts of ACLs, that are remembered. One takes about 300 bytes, and 5 us to parse."""
ADDRESS_CHARACTERS_MAX: Final = 64
"""Maximum characters of an address: 45 of an IPv6 address, and the name of its network interface."""

NetworkSize = tuple[int, int]
"""(bits of an address, length of the prefix)."""


class InvalidNetwork(ValueError):
    """Text that contains a slash and is not a network. The message is that of Apache Kafka."""


class Network(NamedTuple):
    """The addresses that begin with the same bits. `prefix` is their number without the remaining bits."""

    bits: int
    length: int
    prefix: int


HostKey = str | Network
"""Key of a host in the index of ACLs: a network, WILDCARD, or text that is no address. An address is a network, too."""


def host_key(host: str) -> HostKey:
    """Return the key of the host of an ACL. A malformed network never matches, as in Kafka."""
    return _short_host_key(host) if len(host) <= ADDRESS_CHARACTERS_MAX else host


@lru_cache(ADDRESSES_MAX)
def _short_host_key(host: str) -> HostKey:
    if "/" in host:
        try:
            return parse_network(host)
        except InvalidNetwork:
            return host
    parsed = _parsed(host)
    return host if parsed is None else _single(*parsed)


def keys_of_client(host: str, sizes: Iterable[NetworkSize]) -> list[HostKey]:
    """Return the keys that match a client at the address `host`. `sizes` are the sizes of the networks in use."""
    address = _parsed(host)
    if address is None:
        return [host, WILDCARD]
    bits, number = address
    networks = (Network(bits, length, number >> (bits - length)) for of, length in sizes if of == bits != length)
    return [_single(bits, number), *networks, WILDCARD]


def parse_network(text: str) -> Network:
    """Return the network in CIDR notation. Raise InvalidNetwork."""
    return _ipv6_network(text) if ":" in text else _ipv4_network(text)


def _ipv4_network(text: str) -> Network:
    match = _IPV4_NETWORK.fullmatch(text)
    if match is None:
        raise InvalidNetwork(f"Could not parse [{text}]")
    *octets, length = map(int, match.groups())
    number = 0
    for octet in octets:
        number = number << 8 | _checked(octet, OCTET_MAX)
    return Network(IPV4_BITS, length, number >> (IPV4_BITS - _checked(length, IPV4_BITS)))


def _checked(value: int, high: int) -> int:
    if value > high:
        raise InvalidNetwork(f"Value [{value}] not in range [0,{high}]")
    return value


def _ipv6_network(text: str) -> Network:
    address, slash, digits = text.partition("/")
    if not slash:
        raise InvalidNetwork(f"Could not parse [{text}] - missing prefix length")
    if not _LENGTH.fullmatch(digits):
        raise InvalidNetwork(f"Could not parse [{text}] - invalid prefix length")
    length = int(digits)
    if not 0 <= length <= IPV6_BITS:
        raise InvalidNetwork(f"Could not parse [{text}] - prefix length must be between 0 and {IPV6_BITS}")
    parsed = _parsed(address)
    if parsed is None or parsed[0] != IPV6_BITS:
        raise InvalidNetwork(f"Could not parse [{address}] - not an IPv6 address")
    return Network(IPV6_BITS, length, parsed[1] >> (IPV6_BITS - length))


def _single(bits: int, number: int) -> Network:
    """Return the network of one address."""
    return Network(bits, bits, number)


def _parsed(host: str) -> tuple[int, int] | None:
    """Return (bits, number) of an address; None if `host` is none. The IPv4 address in an IPv6 address counts."""
    return _parsed_short(host) if len(host) <= ADDRESS_CHARACTERS_MAX else None


@lru_cache(ADDRESSES_MAX)
def _parsed_short(host: str) -> tuple[int, int] | None:
    try:
        address = ip_address(host)
    except ValueError:
        return None
    if isinstance(address, IPv6Address):
        mapped = address.ipv4_mapped
        return (IPV6_BITS, int(address)) if mapped is None else (IPV4_BITS, int(mapped))
    return IPV4_BITS, int(address)
