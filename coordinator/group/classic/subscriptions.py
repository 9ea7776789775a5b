"""Read the subscribed topics from the metadata of consumers (ConsumerProtocolSubscription)."""

from collections.abc import Iterable
from typing import Final

from odradek.protocol.codec import decode_charged
from odradek.protocol.consumer_protocol import VERSION_BYTES
from odradek.protocol.errors import ChargeExceeded, Malformed
from odradek.protocol.records.consumer_protocol_subscription import ConsumerProtocolSubscription

CHARGE_BYTES_MAX: Final = 2 * 1024 * 1024
"""Maximum memory of the different subscriptions of one group, in bytes: about 20,000 topics. They are decoded in one
step, at the end of each join phase, in up to 10 ms."""
COUNT_BYTES: Final = 4
"""Size of the number of topics, in bytes."""
LENGTH_BYTES: Final = 2
"""Size of the length of a topic name, in bytes."""


def subscribed_topics(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """Return the topics of all members.

    Return None if the metadata of a member is not a valid subscription, or if the subscriptions exceed
    CHARGE_BYTES_MAX. All versions begin with the fields of version 0, so the subscription is decoded as version 0.
    Members with the same topics are decoded once: most groups have one subscription.
    """
    topics: set[str] = set()
    remaining = CHARGE_BYTES_MAX
    decoded = b""
    for data in metadata:
        if len(data) < VERSION_BYTES:
            return None
        if decoded and data.startswith(decoded, VERSION_BYTES):
            continue
        try:
            subscription, charge = decode_charged(ConsumerProtocolSubscription, 0, data, remaining, VERSION_BYTES)
        except (Malformed, ChargeExceeded):
            return None
        remaining -= charge
        topics.update(subscription.topics)
        decoded = data[VERSION_BYTES : _end_of_topics(subscription)]
    return frozenset(topics)


def _end_of_topics(subscription: ConsumerProtocolSubscription) -> int:
    """Return the position of the user data in the metadata of a member."""
    return VERSION_BYTES + COUNT_BYTES + sum(LENGTH_BYTES + len(topic.encode()) for topic in subscription.topics)
