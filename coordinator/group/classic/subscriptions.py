"""What consumers say in their metadata, as far as a coordinator reads it (ConsumerProtocolSubscription)."""

from collections.abc import Iterable

from odradek.protocol.codec import decode_prefix
from odradek.protocol.consumer_protocol import VERSION_BYTES
from odradek.protocol.errors import Malformed
from odradek.protocol.records.consumer_protocol_subscription import ConsumerProtocolSubscription


def subscribed_topics(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """All topics of all members; None when one of them is not a subscription.

    The fields of version 0 come first in all versions, so the version before them need not be known.
    """
    topics: set[str] = set()
    for said in metadata:
        if len(said) < VERSION_BYTES:
            return None
        try:
            subscription, _ = decode_prefix(ConsumerProtocolSubscription, 0, said, VERSION_BYTES)
        except Malformed:
            return None
        topics.update(subscription.topics)
    return frozenset(topics)
