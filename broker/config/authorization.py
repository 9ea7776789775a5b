"""Super users of a node's configuration, and the identity that nodes need if there is an authorizer."""

from odradek.broker.config.addresses import has_other_nodes, inter_broker_listener, parse_listeners, remote_listeners
from odradek.broker.config.authentication import logs_in
from odradek.broker.config.properties import Config
from odradek.broker.config.property import ConfigError
from odradek.cluster.authorizer import ANONYMOUS
from odradek.protocol.security_protocol import SecurityProtocol


def super_users(config: Config) -> tuple[str, ...]:
    """Return the principals in super.users, as text. Raise ConfigError if one has no type."""
    users = tuple(user for each in config.super_users.split(";") if (user := each.strip()))
    for user in users:
        if ":" not in user:
            raise ConfigError(f"super.users: {user!r} has no type; write it as User:{user}")
    return users


def require_identity_of_nodes(config: Config) -> None:
    """Raise ConfigError if other nodes would deny the requests of this one, because it has no identity there."""
    if not config.authorizer_class_name or logs_in(config) or not has_other_nodes(config):
        return
    name = inter_broker_listener(config)
    protocol = next(
        each.security_protocol for each in (*parse_listeners(config), *remote_listeners(config)) if each.name == name
    )
    if protocol is SecurityProtocol.PLAINTEXT and str(ANONYMOUS) not in super_users(config):
        raise ConfigError(
            f"super.users: {ANONYMOUS} is missing, so the nodes deny each other's requests; add it, or set "
            "cluster.secret.file and odradek.inter.broker.authentication=required"
        )
