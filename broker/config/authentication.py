"""Authentication between the nodes of a cluster: which nodes log in, and which ones are served."""

from typing import Final

from odradek.broker.config.properties import Config
from odradek.broker.config.property import ConfigError

REQUIRED: Final = "required"
"""This node logs in to other nodes, and serves nodes that have logged in."""
MOVE: Final = "move"
"""As REQUIRED, and nodes that have logged in are served on each listener. The phases of a change of the listener."""
LOGIN: Final = "login"
"""This node logs in to other nodes, and serves all nodes. The second phase of a rolling change."""
ACCEPT: Final = "accept"
"""This node does not log in, and serves all nodes. The first phase of a rolling change."""
NONE: Final = "none"
"""The nodes of the cluster do not authenticate to each other."""
PRINCIPAL: Final = "principal"
"""This node has an own principal at the listeners of other nodes, and serves nodes by their principals alone."""
PRINCIPAL_MOVE: Final = "principal-move"
"""As PRINCIPAL, and each listener also serves nodes that have logged in. A phase of a rolling change to PRINCIPAL."""
MODE: Final = "odradek.inter.broker.authentication"


def serves_all_nodes(config: Config) -> bool:
    """Return True if each listener also serves nodes that have not logged in, in a phase of a rolling change."""
    return config.odradek_inter_broker_authentication in {LOGIN, ACCEPT}


def serves_on_each_listener(config: Config) -> bool:
    """Return True if each listener serves nodes, in a phase of a rolling change of the listener or of the secret."""
    return serves_all_nodes(config) or config.odradek_inter_broker_authentication in {MOVE, PRINCIPAL_MOVE}


def logs_in(config: Config) -> bool:
    """Return True if this node authenticates to other nodes. It uses the cluster secret where it has no principal."""
    return config.odradek_inter_broker_authentication not in {ACCEPT, NONE}


def require_consistent(config: Config, *, has_secret: bool, has_other_nodes: bool) -> None:
    """Raise ConfigError if the secret is missing although nodes need one, or is set although none is used.

    `has_other_nodes`: the cluster has other voters than this node.
    """
    mode = config.odradek_inter_broker_authentication
    if mode == NONE and has_secret:
        raise ConfigError(f"{MODE}: none, but cluster.secret.file is set; remove one of them")
    if mode == NONE or has_secret:
        return
    if mode in {MOVE, LOGIN, ACCEPT, PRINCIPAL_MOVE}:
        raise ConfigError(f"{MODE}: {mode} needs cluster.secret.file")
    if has_other_nodes:
        raise ConfigError(
            "cluster.secret.file: not set, but the cluster has other nodes. Make one file for all nodes with: openssl "
            f"rand -base64 32. Or set {MODE}=none"
        )


def warning(config: Config, *, has_secret: bool, has_other_nodes: bool) -> tuple[str, str] | None:
    """Return a warning and its remedy if processes without the secret can act as brokers, otherwise None."""
    if serves_all_nodes(config):
        return "brokers are served without authentication", f"set {MODE}=required when each node has login"
    if not has_secret and has_other_nodes:
        return "brokers do not authenticate to each other", f"set cluster.secret.file, and remove {MODE}"
    return None
