"""Login of this node on one connection to another node."""

from dataclasses import dataclass
from typing import Final

from odradek.protocol.sasl.cluster_secret import ClusterSecret
from odradek.protocol.sasl.login import Login

NOT_A_NODE: Final = "if this repeats, add the principal of this node to odradek.node.principals there"


@dataclass(frozen=True, slots=True)
class PeerLogin:
    """Login of this node on one connection to another node."""

    login: Login
    remedy: str
    """Advice if the other node refuses it."""
    closed_remedy: str
    """Advice if the other node closes the connection during it."""
    shows_node: bool
    """True if the other node serves each process that has logged in so as a node."""


def by_secret(secret: ClusterSecret, source: int, target: int) -> PeerLogin:
    """Return the login of node `source` at node `target` by the cluster secret."""
    return PeerLogin(
        secret.login(source, target),
        "check cluster.secret.file on both nodes",
        "if this repeats, set cluster.secret.file there",
        shows_node=True,
    )


def by_credential(login: Login) -> PeerLogin:
    """Return a login by a SASL credential of this node."""
    return PeerLogin(
        login,
        "check the username and the password of this node in sasl.jaas.config",
        "if this repeats, compare the security protocols and mechanisms of the listeners on both nodes",
        shows_node=False,
    )
