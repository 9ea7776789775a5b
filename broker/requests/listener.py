"""A listener of the node, and the roles that it serves."""

from dataclasses import dataclass
from typing import Final

CLIENT: Final = "client"
"""The role of a listener for clients."""
BROKER: Final = "broker"
"""The role of a listener for other brokers."""
CONTROLLER: Final = "controller"
"""The role of a listener for controllers."""
ALL_ROLES: Final = (CLIENT, BROKER, CONTROLLER)


@dataclass(frozen=True, slots=True)
class Listener:
    """A named listener: the address it is bound to, the address that clients connect to, and its roles."""

    name: str
    host: str
    port: int
    advertised_host: str
    advertised_port: int
    roles: tuple[str, ...] = ALL_ROLES
    protected: bool = False
    """True for a listener between nodes if clients have another: broker-wide connection limits do not apply to it."""
