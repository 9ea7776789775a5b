"""Addresses and listeners of the connections to other nodes."""

from uuid import UUID

import pytest

from odradek.broker.config.addresses import Voter
from odradek.broker.quorum.peer_addresses import PeerAddresses
from odradek.broker.quorum.peers import TO_CONTROLLERS, Channel
from odradek.cluster.metadata.cache import MetadataCache
from odradek.cluster.metadata.image import BrokerImage, Endpoint, MetadataImage

REGISTERED, UNREGISTERED = 2, 3
AT_BROKER, AT_VOTER = ("INTERNAL", "broker", 91), ("CONTROLLERS", "voter", 93)


@pytest.mark.parametrize("channel", Channel)
def test_listener_is_the_one_that_has_the_address(channel: Channel) -> None:
    metadata = MetadataCache()
    endpoints = (Endpoint("CLIENTS", "broker", 92), Endpoint("INTERNAL", "broker", 91))
    broker = BrokerImage(REGISTERED, 1, UUID(int=1), endpoints, {}, None, False, False, ())
    metadata.image = MetadataImage(brokers={REGISTERED: broker})
    voters = [Voter(node_id, "voter", 93) for node_id in (REGISTERED, UNREGISTERED)]
    addresses = PeerAddresses(metadata, voters, "INTERNAL", "CONTROLLERS")

    def found(node_id: int) -> tuple[str, str, int] | None:
        address = addresses.address_of(node_id, channel)
        return None if address is None else (addresses.listener_of(node_id, channel), *address)

    to_controllers = channel in TO_CONTROLLERS
    assert found(REGISTERED) == (AT_VOTER if to_controllers else AT_BROKER)
    assert found(UNREGISTERED) == (AT_VOTER if to_controllers or channel is Channel.PROBE else None)
