"""Build the registration of this node as a controller (KIP-919)."""

from collections.abc import Sequence
from uuid import UUID

from odradek.broker.config.addresses import Voter
from odradek.broker.requests.listener import CONTROLLER, Listener
from odradek.cluster.controller.messages.brokers import ControllerRegistration
from odradek.cluster.controller.settings.features import SUPPORTED_FEATURES


def controller_registration(
    node_id: int, incarnation_id: UUID, voters: Sequence[Voter], listeners: Sequence[Listener]
) -> ControllerRegistration | None:
    """Return the registration of this node as a controller; None if it is not a voter."""
    if voters and node_id not in [voter.node_id for voter in voters]:
        return None
    endpoints = tuple(listener.advertised for listener in listeners if CONTROLLER in listener.roles)
    return ControllerRegistration(node_id, incarnation_id, endpoints, SUPPORTED_FEATURES)
