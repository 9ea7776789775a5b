"""Listener addresses, as they stand in `listeners` and `advertised.listeners`."""

import re
from dataclasses import dataclass
from typing import Final

from odradek.broker.config.properties import Config
from odradek.broker.config.property import INT_MAX, ConfigError
from odradek.broker.requests.listener import BROKER, CLIENT, CONTROLLER

PORT_MAX: Final = 65535
_ADDRESS: Final = re.compile(
    r"(?P<name>[A-Za-z][A-Za-z0-9_.-]*)://(?P<host>\[[0-9A-Fa-f:.%]+\]|[^:/\[\]]*):(?P<port>\d{1,5})"
)
_HOST_PORT: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%]+\]|[^:/\[\]]*):(?P<port>\d{1,5})")
_VOTER: Final = re.compile(r"(?P<id>\d{1,10})@(?P<host>\[[0-9A-Fa-f:.%]+\]|[^:/\[\]]+):(?P<port>\d{1,5})")
_UNSUPPORTED: Final = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
_EVERYWHERE: Final = ("", "0.0.0.0", "::")  # noqa: S104  recognized so that it is never advertised


@dataclass(frozen=True, slots=True)
class ListenerAddress:
    """`host` is empty for every interface, `port` 0 for any free one; an advertised port of 0 is the one bound.

    `protected`: see `odradek.broker.requests.session.Listener`.
    """

    name: str
    host: str
    port: int
    advertised_host: str
    advertised_port: int
    roles: tuple[str, ...] = (CLIENT, BROKER, CONTROLLER)
    protected: bool = False


@dataclass(frozen=True, slots=True)
class Voter:
    """A node that votes on the metadata log, and where its listener for controllers is reached."""

    node_id: int
    host: str
    port: int


def parse_metrics_listener(text: str) -> tuple[str, int]:
    """Host and port; an empty host is every interface. Raises `ConfigError`."""
    matched = _HOST_PORT.fullmatch(text)
    if matched is None or int(matched["port"]) > PORT_MAX:
        raise ConfigError(f"odradek.metrics.listener: {text!r} is not host:port")
    return matched["host"].strip("[]"), int(matched["port"])


def parse_listeners(config: Config) -> tuple[ListenerAddress, ...]:
    """The listeners of a configuration. Raises `ConfigError`."""
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
    roles = _roles(config, tuple(bound))
    clients_apart = any(BROKER not in each for each in roles.values() if CLIENT in each)
    return tuple(
        ListenerAddress(
            name,
            host,
            port,
            *advertised.get(name, (host, port)),
            roles[name],
            protected=CLIENT not in roles[name] or (BROKER in roles[name] and clients_apart),
        )
        for name, (host, port) in bound.items()
    )


def _roles(config: Config, names: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """What each listener is for. Who asks for nothing gets listeners that serve everybody."""
    between = None if config.inter_broker_listener_name is None else config.inter_broker_listener_name.upper()
    controllers = tuple(name.upper() for name in config.controller_listener_names)
    if between is not None and between not in names:
        raise ConfigError(f"inter.broker.listener.name: {between} is not in listeners")
    for name in controllers:
        if name not in names:
            raise ConfigError(f"controller.listener.names: {name} is not in listeners")
        if name == between:
            raise ConfigError(f"controller.listener.names: {name} is the listener for brokers")
    if all(name in controllers for name in names):
        raise ConfigError("controller.listener.names: no listener is left for clients")
    roles: dict[str, tuple[str, ...]] = {}
    for name in names:
        if name in controllers:
            roles[name] = (CONTROLLER,)
            continue
        serves_brokers = between in {None, name}
        serves_controllers = serves_brokers and not controllers
        roles[name] = (CLIENT, *((BROKER,) * serves_brokers), *((CONTROLLER,) * serves_controllers))
    return roles


def parse_voters(config: Config) -> tuple[Voter, ...]:
    """The voters in order of their id; empty where the property is unset. Raises `ConfigError`."""
    voters: dict[int, Voter] = {}
    for entry in config.controller_quorum_voters:
        match = _VOTER.fullmatch(entry)
        if match is None or not 0 < int(match["port"]) <= PORT_MAX or int(match["id"]) > INT_MAX:
            raise ConfigError(f"controller.quorum.voters: {entry!r} is not of the form id@host:port")
        node_id = int(match["id"])
        if node_id in voters:
            raise ConfigError(f"controller.quorum.voters: node {node_id} is there twice")
        voters[node_id] = Voter(node_id, match["host"].strip("[]"), int(match["port"]))
    addresses = [(voter.host, voter.port) for voter in voters.values()]
    for voter in voters.values():
        if addresses.count((voter.host, voter.port)) > 1:
            raise ConfigError(f"controller.quorum.voters: two nodes at {voter.host}:{voter.port}")
    return tuple(voters[node_id] for node_id in sorted(voters))


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
