"""Addresses of the other nodes of the cluster."""

from collections.abc import Sequence

from odradek.broker.config.addresses import Voter
from odradek.broker.quorum.peer_connection import Address
from odradek.broker.quorum.peers import TO_CONTROLLERS, Channel
from odradek.cluster.metadata.cache import MetadataCache


class PeerAddresses:
    """Resolve node ids to addresses.

    Controllers are found in controller.quorum.voters, brokers by their registered endpoints of one listener.
    """

    def __init__(
        self, metadata: MetadataCache, voters: Sequence[Voter], listener: str, controller_listener: str
    ) -> None:
        """`listener` is the name of the listener for brokers, `controller_listener` that of the one for controllers."""
        self._metadata = metadata
        self._controller_listener = controller_listener
        self._voters = {voter.node_id: voter for voter in voters}
        self._listener = listener

    def address_of(self, node_id: int, channel: Channel) -> Address | None:
        """Return the address for connections to node `node_id` with this purpose; None if it is unknown."""
        if self._is_of_voter(node_id, channel):
            voter = self._voters.get(node_id)
            return None if voter is None else (voter.host, voter.port)
        broker = self._metadata.image.brokers.get(node_id)
        endpoint = None if broker is None else broker.endpoint(self._listener)
        return None if endpoint is None else (endpoint.host, endpoint.port)

    def listener_of(self, node_id: int, channel: Channel) -> str:
        """Return the name of the listener that `address_of` finds. Its TLS is that of this node's own listener."""
        return self._controller_listener if self._is_of_voter(node_id, channel) else self._listener

    def _is_of_voter(self, node_id: int, channel: Channel) -> bool:
        """Return True if the address comes from controller.quorum.voters."""
        return channel in TO_CONTROLLERS or (channel is Channel.PROBE and node_id not in self._metadata.image.brokers)
