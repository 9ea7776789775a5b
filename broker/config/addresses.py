"""Parse addresses: listeners, advertised listeners, controller.quorum.voters and odradek.metrics.listener."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from odradek.broker.config.authentication import serves_on_each_listener
from odradek.broker.config.properties import Config
from odradek.broker.config.property import INT_MAX, ConfigError
from odradek.broker.config.roles import (
    HOST_PORT,
    bootstrap_servers,
    check_roles,
    finds_voters,
    hosts_broker,
    is_broker_alone,
    is_loopback,
)
from odradek.broker.requests.listener import BROKER, CLIENT, CONTROLLER
from odradek.broker_interface import PORT_MAX
from odradek.protocol.security_protocol import SecurityProtocol

_ADDRESS: Final = re.compile(
    r"(?P<name>[A-Za-z][A-Za-z0-9_.-]*)://(?P<host>\[[0-9A-Fa-f:.%]+\]|[^:/\[\]]*):(?P<port>\d{1,5})"
)
_VOTER: Final = re.compile(r"(?P<id>\d{1,10})@(?P<host>\[[0-9A-Fa-f:.%]+\]|[^:/\[\]]+):(?P<port>\d{1,5})")
_PROTOCOL_MAP: Final = "listener.security.protocol.map"
_INTER_BROKER_NAME: Final = "inter.broker.listener.name"
_INTER_BROKER_PROTOCOL: Final = "security.inter.broker.protocol"
_ALL_INTERFACES: Final = ("", "0.0.0.0", "::")  # noqa: S104  recognized, so that it is never advertised


@dataclass(frozen=True, slots=True)
class ListenerAddress:
    """A listener in the configuration.

    An empty `host` means all interfaces. `port` 0 means any free port, an advertised port of 0 the port that was bound.
    `protected` is documented at `odradek.broker.requests.listener.Listener`.
    """

    name: str
    host: str
    port: int
    advertised_host: str
    advertised_port: int
    roles: tuple[str, ...] = (CLIENT, BROKER, CONTROLLER)
    protected: bool = False
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT


@dataclass(frozen=True, slots=True)
class Voter:
    """A voter of the metadata log, with the address of its listener for controllers."""

    node_id: int
    host: str
    port: int


METRICS_HOST: Final = "127.0.0.1"
"""Host of the metrics listener unless it is configured: any process that reaches it can read the metrics."""


def parse_metrics_listener(text: str) -> tuple[str, int]:
    """Return host and port. An empty host means the loopback address. Raise ConfigError."""
    matched = HOST_PORT.fullmatch(text)
    if matched is None or int(matched["port"]) > PORT_MAX:
        raise ConfigError(f"odradek.metrics.listener: {text!r} is not host:port")
    return matched["host"].strip("[]") or METRICS_HOST, int(matched["port"])


def in_brackets(host: str) -> str:
    """Return the host of an address in text: an IPv6 address stands in brackets."""
    return f"[{host}]" if ":" in host else host


def parse_listeners(config: Config) -> tuple[ListenerAddress, ...]:
    """Return the listeners of a configuration. Raise ConfigError."""
    bound = _parse("listeners", config.listeners)
    advertised = _parse("advertised.listeners", config.advertised_listeners)
    for name, (host, _) in advertised.items():
        if name not in bound:
            raise ConfigError(f"advertised.listeners: {name} is not in listeners")
        if not host:
            raise ConfigError(f"advertised.listeners: {name} needs a host that clients can reach")
    ports = [port for _, port in bound.values() if port]
    if len(ports) != len(dict.fromkeys(ports)):
        raise ConfigError("listeners: two listeners have the same port")
    roles = _roles(config, tuple(bound))
    protocols = _protocols(config)
    has_client_only = any(BROKER not in listener_roles for listener_roles in roles.values() if CLIENT in listener_roles)
    return tuple(
        ListenerAddress(
            name,
            host,
            port,
            *advertised.get(name, (host, port)),
            roles[name],
            protected=CLIENT not in roles[name] or (BROKER in roles[name] and has_client_only),
            security_protocol=_protocol_of(config, protocols, name),
        )
        for name, (host, port) in bound.items()
    )


def require_inter_broker_listener(config: Config) -> None:
    """Raise ConfigError unless the configuration names the listener for brokers.

    Clients have no credentials. A listener that serves clients and brokers lets each client act as a broker, so an
    operator must choose it.
    """
    if hosts_broker(config) and _inter_broker_name(config) is None:
        raise ConfigError(
            "inter.broker.listener.name: not set; name a listener that clients cannot reach, or the only listener to "
            "serve clients and brokers on it"
        )


def inter_broker_listener(config: Config) -> str:
    """Return the name of the listener at which this node reaches the other brokers. Raise ConfigError."""
    name = _inter_broker_name(config)
    if name is not None:
        return name
    if not hosts_broker(config):
        return config.security_inter_broker_protocol
    return next(listener.name for listener in parse_listeners(config) if BROKER in listener.roles)


def controller_listener(config: Config) -> str:
    """Return the name of the listener at which this node reaches controllers. Raise ConfigError."""
    names = config.controller_listener_names
    return names[0].upper() if names else inter_broker_listener(config)


def _inter_broker_name(config: Config) -> str | None:
    """Return the name of the listener for brokers; None if no property names it. Raise ConfigError."""
    name = config.inter_broker_listener_name
    if _INTER_BROKER_PROTOCOL not in config.given:
        return None if name is None else name.upper()
    if name is not None:
        raise ConfigError(f"{_INTER_BROKER_PROTOCOL}: remove it, or remove {_INTER_BROKER_NAME}")
    return config.security_inter_broker_protocol


def remote_listeners(config: Config) -> tuple[ListenerAddress, ...]:
    """Return the listeners that this node connects to, and that only nodes with other roles have. Raise ConfigError."""
    own = [listener.name for listener in parse_listeners(config)]
    protocols = _protocols(config)
    roles = {inter_broker_listener(config): BROKER, controller_listener(config): CONTROLLER}
    return tuple(
        ListenerAddress(name, "", 0, "", 0, (role,), security_protocol=protocols.get(name, SecurityProtocol.PLAINTEXT))
        for name, role in roles.items()
        if name not in own
    )


def has_other_voters(config: Config) -> bool:
    """Return True if the cluster has other voters than this node. Raise ConfigError."""
    return is_broker_alone(config) or any(voter.node_id != config.node_id for voter in parse_voters(config))


def has_other_nodes(config: Config) -> bool:
    """Return True if the configuration shows that the cluster has other nodes than this one. Raise ConfigError."""
    return not hosts_broker(config) or has_other_voters(config)


def is_on_one_machine(config: Config) -> bool:
    """Return True if the listeners of this node and all controllers have loopback addresses. Raise ConfigError."""
    hosts = [voter.host for voter in parse_voters(config)] + [host for host, _ in bootstrap_servers(config)]
    hosts += [listener.host for listener in parse_listeners(config)]
    return all(map(is_loopback, hosts))


def shared_listener(listeners: Sequence[ListenerAddress]) -> str | None:
    """Return the name of the listener for clients and brokers if no listener serves clients alone, otherwise None."""
    if any(CLIENT in listener.roles and BROKER not in listener.roles for listener in listeners):
        return None
    return next((listener.name for listener in listeners if BROKER in listener.roles), None)


def _roles(config: Config, names: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Return the roles of each listener. Without properties about roles, each listener has all roles."""
    inter_broker = _inter_broker_name(config)
    controllers = tuple(name.upper() for name in config.controller_listener_names)
    if inter_broker is not None and inter_broker not in names and hosts_broker(config):
        label = _INTER_BROKER_PROTOCOL if config.inter_broker_listener_name is None else _INTER_BROKER_NAME
        raise ConfigError(f"{label}: {inter_broker} is not in listeners")
    for name in controllers:
        if is_broker_alone(config):
            if name in names:
                raise ConfigError(f"listeners: {name} is for controllers, which this node is not; remove it")
            continue
        if name not in names:
            raise ConfigError(f"controller.listener.names: {name} is not in listeners")
        if name == inter_broker:
            raise ConfigError(f"controller.listener.names: {name} is the listener for brokers")
    for name in names:
        if name not in controllers and not hosts_broker(config):
            raise ConfigError(f"listeners: {name} is not in controller.listener.names, but the node is no broker")
    if all(name in controllers for name in names) and hosts_broker(config):
        raise ConfigError("controller.listener.names: all listeners are for controllers, none is for clients")
    roles: dict[str, tuple[str, ...]] = {}
    for name in names:
        if name in controllers:
            roles[name] = (CONTROLLER,)
            continue
        # In a phase of a rolling change, nodes use the listener of the previous and of the next configuration.
        serves_brokers = inter_broker in {None, name} or serves_on_each_listener(config)
        serves_controllers = serves_brokers and not controllers
        roles[name] = (CLIENT, *((BROKER,) * serves_brokers), *((CONTROLLER,) * serves_controllers))
    return roles


def parse_voters(config: Config) -> tuple[Voter, ...]:
    """Return the voters of controller.quorum.voters by ascending node id. Raise ConfigError."""
    voters: dict[int, Voter] = {}
    for entry in config.controller_quorum_voters:
        match = _VOTER.fullmatch(entry)
        if match is None or not 0 < int(match["port"]) <= PORT_MAX or int(match["id"]) > INT_MAX:
            raise ConfigError(f"controller.quorum.voters: {entry!r} is not of the form id@host:port")
        node_id = int(match["id"])
        if node_id in voters:
            raise ConfigError(f"controller.quorum.voters: node {node_id} is listed twice")
        voters[node_id] = Voter(node_id, match["host"].strip("[]"), int(match["port"]))
    addresses = [(voter.host, voter.port) for voter in voters.values()]
    for voter in voters.values():
        if addresses.count((voter.host, voter.port)) > 1:
            raise ConfigError(f"controller.quorum.voters: two nodes have the address {voter.host}:{voter.port}")
    return tuple(voters[node_id] for node_id in sorted(voters))


def parse_roles(config: Config) -> None:
    """Raise ConfigError if the roles of the node contradict the voters (`check_roles`)."""
    check_roles(config, tuple(voter.node_id for voter in parse_voters(config)))
    protected = [each for each in remote_listeners(config) if each.security_protocol is not SecurityProtocol.PLAINTEXT]
    if finds_voters(config) and protected:
        raise ConfigError(
            f"controller.quorum.voters: not set; a node needs it to connect to {protected[0].name} by "
            f"{protected[0].security_protocol.name}: id@host:port"
        )


def _protocols(config: Config) -> dict[str, SecurityProtocol]:
    """Return the security protocols of `listener.security.protocol.map` by the name of their listener."""
    protocols: dict[str, SecurityProtocol] = {}
    for entry in config.listener_security_protocol_map:
        name, separator, protocol = (part.strip().upper() for part in entry.partition(":"))
        if not name or not separator or protocol not in SecurityProtocol.__members__:
            choices = ", ".join(SecurityProtocol.__members__)
            raise ConfigError(f"{_PROTOCOL_MAP}: {entry!r} is not of the form NAME:PROTOCOL with one of {choices}")
        if name in protocols:
            raise ConfigError(f"{_PROTOCOL_MAP}: {name} is listed twice")
        protocols[name] = SecurityProtocol[protocol]
    return protocols


def _protocol_of(config: Config, protocols: dict[str, SecurityProtocol], name: str) -> SecurityProtocol:
    default = None if _PROTOCOL_MAP in config.given else SecurityProtocol.PLAINTEXT
    protocol = protocols.get(name, default)
    if protocol is None:
        raise ConfigError(f"{_PROTOCOL_MAP}: no entry for the listener {name}; add {name}:PLAINTEXT, for example")
    if _INTER_BROKER_PROTOCOL in config.given and name == config.security_inter_broker_protocol != protocol.name:
        raise ConfigError(
            f"{_INTER_BROKER_PROTOCOL}: {name}, but {_PROTOCOL_MAP} gives that listener {protocol.name}; "
            "make them equal"
        )
    return protocol


def _parse(label: str, entries: tuple[str, ...]) -> dict[str, tuple[str, int]]:
    addresses: dict[str, tuple[str, int]] = {}
    for entry in entries:
        match = _ADDRESS.fullmatch(entry)
        if match is None or int(match["port"]) > PORT_MAX:
            raise ConfigError(f"{label}: {entry!r} is not of the form NAME://host:port")
        name = match["name"].upper()
        if name in addresses:
            raise ConfigError(f"{label}: {name} is listed twice")
        host = match["host"].strip("[]")
        addresses[name] = ("" if host in _ALL_INTERFACES else host, int(match["port"]))
    return addresses
