"""Listener addresses, as they stand in `listeners` and `advertised.listeners`."""

import re
from dataclasses import dataclass
from typing import Final

from broker.config import Config
from broker.property import ConfigError

PORT_MAX: Final = 65535
_ADDRESS: Final = re.compile(
    r"(?P<name>[A-Za-z][A-Za-z0-9_.-]*)://(?P<host>\[[0-9A-Fa-f:.%]+\]|[^:/\[\]]*):(?P<port>\d{1,5})"
)
_UNSUPPORTED: Final = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
_EVERYWHERE: Final = ("", "0.0.0.0", "::")  # noqa: S104  recognised so that it is never advertised


@dataclass(frozen=True, slots=True)
class ListenerAddress:
    """`host` is empty for every interface, `port` 0 for any free one; an advertised port of 0 is the one bound."""

    name: str
    host: str
    port: int
    advertised_host: str
    advertised_port: int


def parse_listeners(config: Config) -> tuple[ListenerAddress, ...]:
    """The listeners of a configuration. Raises `ConfigError`."""
    if not config.listeners:
        raise ConfigError("listeners: at least one is needed")
    bound = _parse("listeners", config.listeners)
    advertised = _parse("advertised.listeners", config.advertised_listeners)
    for name, (host, _) in advertised.items():
        if name not in bound:
            raise ConfigError(f"advertised.listeners: {name} is not in listeners")
        if not host:
            raise ConfigError(f"advertised.listeners: {name} must name a host that clients can reach")
    ports = [port for _, port in bound.values() if port]
    if len(ports) != len(dict.fromkeys(ports)):
        raise ConfigError("listeners: two of them have the same port")
    return tuple(
        ListenerAddress(name, host, port, *advertised.get(name, (host, port))) for name, (host, port) in bound.items()
    )


def _parse(label: str, entries: tuple[str, ...]) -> dict[str, tuple[str, int]]:
    found: dict[str, tuple[str, int]] = {}
    for entry in entries:
        match = _ADDRESS.fullmatch(entry)
        if match is None or int(match["port"]) > PORT_MAX:
            raise ConfigError(f"{label}: {entry!r} is not of the form NAME://host:port")
        name = match["name"].upper()
        if name in _UNSUPPORTED:
            raise ConfigError(f"{label}: {name} is not supported, listeners are plaintext")
        if name in found:
            raise ConfigError(f"{label}: {name} is there twice")
        host = match["host"].strip("[]")
        found[name] = ("" if host in _EVERYWHERE else host, int(match["port"]))
    return found
