"""Replica ids in requests of followers."""

from typing import Protocol

from odradek.broker.requests.context import RequestContext
from odradek.broker.requests.listener import BROKER, SERVES_NO_BROKERS
from odradek.cluster.metadata.cache import MetadataCache
from odradek.protocol.errors import ErrorCode, Refusal


class _Node(Protocol):
    @property
    def metadata(self) -> MetadataCache:
        """The metadata of the cluster."""


class _Context(Protocol):
    @property
    def node(self) -> _Node:
        """The node that serves the request."""


def check_replica(context: _Context, replica_id: int) -> None:
    """Raise Refusal(NOT_LEADER_OR_FOLLOWER) if `replica_id` is a broker id (0 or above) that is not registered."""
    if replica_id >= 0 and replica_id not in context.node.metadata.image.brokers:
        raise Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER)


def require_follower(context: RequestContext, replica_id: int) -> None:
    """Raise Refusal(CLUSTER_AUTHORIZATION_FAILED) unless the client may act as the broker `replica_id`.

    The listener must serve brokers. `RequestContext.require_node` has the other conditions.
    """
    if BROKER not in context.session.roles:
        context.note_denied_node(f"node {replica_id}", SERVES_NO_BROKERS)
        raise Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    context.require_node(replica_id)
