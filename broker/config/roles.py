"""Roles of a node: broker, controller, or both (process.roles), and where it finds the controllers."""

import re
from ipaddress import ip_address
from typing import Final

from odradek.broker.config.properties import Config
from odradek.broker.config.property import ConfigError
from odradek.broker_interface import PORT_MAX

BROKER_ROLE: Final = "broker"
CONTROLLER_ROLE: Final = "controller"
ROLES: Final = "process.roles"
VOTERS: Final = "controller.quorum.voters"
BOOTSTRAP: Final = "controller.quorum.bootstrap.servers"
HOST_PORT: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%]+\]|[^:/\[\]]*):(?P<port>\d{1,5})")


def hosts_broker(config: Config) -> bool:
    """Return True if the node is a broker, also if it is a controller."""
    return BROKER_ROLE in config.process_roles


def is_broker_alone(config: Config) -> bool:
    """Return True if the node is a broker and no controller."""
    return config.process_roles == (BROKER_ROLE,)


def finds_voters(config: Config) -> bool:
    """Return True if the node requests the voters from controller.quorum.bootstrap.servers when it starts."""
    return is_broker_alone(config) and not config.controller_quorum_voters


def bootstrap_servers(config: Config) -> tuple[tuple[str, int], ...]:
    """Return host and port of each bootstrap server. Raise ConfigError."""
    servers: list[tuple[str, int]] = []
    for entry in config.controller_quorum_bootstrap_servers:
        matched = HOST_PORT.fullmatch(entry)
        if matched is None or not matched["host"] or not 0 < int(matched["port"]) <= PORT_MAX:
            raise ConfigError(f"{BOOTSTRAP}: {entry!r} is not of the form host:port")
        servers.append((matched["host"].strip("[]"), int(matched["port"])))
    return tuple(servers)


def is_loopback(host: str) -> bool:
    """Return True if only processes of the same machine reach this host."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_roles(config: Config, voter_ids: tuple[int, ...]) -> None:
    """Raise ConfigError if the roles contradict the voters, or if the node cannot find the controllers.

    Without process.roles, a node that is no voter is a broker, and all others have both roles.
    """
    servers = bootstrap_servers(config)
    if ROLES not in config.given:
        return
    if is_broker_alone(config):
        if config.node_id in voter_ids:
            raise ConfigError(
                f"{ROLES}: {BROKER_ROLE} alone, but {VOTERS} has node {config.node_id}; remove it there, or add "
                f"{CONTROLLER_ROLE}"
            )
        if not voter_ids and not servers:
            raise ConfigError(f"{BOOTSTRAP}: not set; a node that is no {CONTROLLER_ROLE} needs it, or {VOTERS}")
        if not voter_ids and config.cluster_secret_file:
            raise ConfigError(
                f"{VOTERS}: not set; with cluster.secret.file, a node needs the ids of the controllers: id@host:port"
            )
        return
    if voter_ids and config.node_id not in voter_ids:
        raise ConfigError(
            f"{ROLES}: {CONTROLLER_ROLE}, but {VOTERS} has no node {config.node_id}; add it there, or remove the role"
        )
    if not voter_ids and len(servers) > 1:
        raise ConfigError(
            f"{BOOTSTRAP}: names {len(servers)} controllers; set {VOTERS} instead: id@host:port, the same on every node"
        )
