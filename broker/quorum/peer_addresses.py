"""Addresses of the other nodes of the cluster."""

from collections.abc import Sequence

from odradek.broker.config.addresses import Voter
from odradek.broker.quorum.peers import TO_CONTROLLERS, Address, Channel
from odradek.cluster.metadata.cache import MetadataCache


class PeerAddresses:
    """Resolve node ids to addresses.

    Controllers are found in controller.quorum.voters, brokers by their registered endpoints of one listener.
    """

    def __init__(self, metadata: MetadataCache, voters: Sequence[Voter], listener: str) -> None:
        """`listener` is the name of the listener for brokers (inter.broker.listener.name)."""
        self._metadata = metadata
        self._voters = {voter.node_id: voter for voter in voters}
        self._listener = listener

    def address_of(self, node_id: int, channel: Channel) -> Address | None:
        """Return the address for connections to node `node_id` with this purpose; None if it is unknown."""
        broker = self._metadata.image.brokers.get(node_id)
        if channel in TO_CONTROLLERS or (broker is None and channel is Channel.PROBE):
            voter = self._voters.get(node_id)
            return None if voter is None else (voter.host, voter.port)
        endpoint = None if broker is None else broker.endpoint(self._listener)
        return None if endpoint is None else (endpoint.host, endpoint.port)
