"""Listener of a node, and the roles that it serves."""

from dataclasses import dataclass, field
from typing import Final

from odradek.broker.requests.node_principals import NodePrincipals
from odradek.cluster.metadata.image import Endpoint
from odradek.protocol.security_protocol import SecurityProtocol

CLIENT: Final = "client"
"""Role of a listener that serves clients."""
BROKER: Final = "broker"
"""Role of a listener that serves other brokers."""
CONTROLLER: Final = "controller"
"""Role of a listener that serves requests to the controller and to quorum voters."""
UNAUTHENTICATED: Final = "unauthenticated connection"
"""Role of a listener for a connection that has not authenticated yet, if the listener requires it for brokers."""
LOGIN: Final = "login"
"""Role of a listener with SASL for every connection of a client, before and after its login."""
SERVES_NO_BROKERS: Final = "the listener does not serve brokers"
"""Rule in the audit log that denies a request of brokers on a listener without the role BROKER."""
ALL_ROLES: Final = (CLIENT, BROKER, CONTROLLER)


@dataclass(frozen=True, slots=True)
class Listener:
    """Named listener: the address that it is bound to, the address that clients connect to, and its roles."""

    name: str
    host: str
    port: int
    advertised_host: str
    advertised_port: int
    roles: tuple[str, ...] = ALL_ROLES
    protected: bool = False
    """True for an inter-node listener if clients use another one. Broker-wide connection limits do not apply to it."""
    authenticates: bool = False
    """True if nodes of the cluster must authenticate on this listener before it serves their requests."""
    serves_all_nodes: bool = False
    """True if it also serves nodes that have not authenticated, in a phase of a rolling change."""
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    nodes: NodePrincipals | None = field(default=None, compare=False, repr=False)
    """The principals that it serves as nodes; None if it serves nodes by the cluster secret alone."""

    @property
    def accepts_secret(self) -> bool:
        """True if nodes can authenticate by the cluster secret, if this node has one."""
        return self.authenticates and (self.nodes is None or not self.nodes.alone)

    @property
    def advertised(self) -> Endpoint:
        """Return the endpoint that the node registers for this listener."""
        return Endpoint(self.name, self.advertised_host, self.advertised_port, self.security_protocol)

    @property
    def open_roles(self) -> tuple[str, ...]:
        """Roles for a connection that has not authenticated."""
        if self.security_protocol.uses_sasl:
            return (LOGIN,)
        if not self.authenticates:
            return self.roles
        if self.serves_all_nodes:
            return (*self.roles, UNAUTHENTICATED)
        return (UNAUTHENTICATED,) if self.protected else (CLIENT, UNAUTHENTICATED)

    @property
    def node_roles(self) -> tuple[str, ...]:
        """Roles for a node that has authenticated by SASL without the cluster secret, or by its certificate.

        A login by SASL can be repeated, because its session can expire. With a certificate, a login by the cluster
        secret can follow during a rolling change.
        """
        if self.security_protocol.uses_sasl:
            return (*self.roles, LOGIN)
        return (*self.roles, UNAUTHENTICATED) if self.accepts_secret else self.roles

    @property
    def user_roles(self) -> tuple[str, ...]:
        """Roles for a client that has authenticated by SASL. Only nodes of the cluster have the further roles."""
        return (CLIENT, LOGIN) if CLIENT in self.roles else (LOGIN,)
