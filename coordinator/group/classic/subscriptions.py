"""Read the subscribed topics from the metadata of consumers (ConsumerProtocolSubscription)."""

from collections.abc import Iterable

from odradek.protocol.codec import decode_prefix
from odradek.protocol.consumer_protocol import VERSION_BYTES
from odradek.protocol.errors import Malformed
from odradek.protocol.records.consumer_protocol_subscription import ConsumerProtocolSubscription


def subscribed_topics(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """Return the topics of all members, or None if the metadata of a member is not a valid subscription.

    All versions begin with the fields of version 0, so the subscription is decoded as version 0.
    """
    topics: set[str] = set()
    for data in metadata:
        if len(data) < VERSION_BYTES:
            return None
        try:
            subscription, _ = decode_prefix(ConsumerProtocolSubscription, 0, data, VERSION_BYTES)
        except Malformed:
            return None
        topics.update(subscription.topics)
    return frozenset(topics)
