"""Messages that members of groups embed in JoinGroup and SyncGroup."""

import pytest

from odradek.protocol.codec import encode
from odradek.protocol.consumer_protocol import assignment_of, encode_assignment, subscription_of
from odradek.protocol.errors import Malformed
from odradek.protocol.records.consumer_protocol_assignment import ConsumerProtocolAssignment, TopicPartition
from odradek.protocol.records.consumer_protocol_subscription import ConsumerProtocolSubscription

LARGE = 5_000
"""Topics of the largest subscriptions in use, and partitions of the largest assignments."""
HUGE = 300_000


def subscription(count: int) -> bytes:
    message = ConsumerProtocolSubscription(topics=[f"topic-{number}" for number in range(count)])
    return b"\0\1" + encode(message, 1)


def assignment(count: int) -> bytes:
    partitions = [TopicPartition("t", list(range(count)))]
    return encode_assignment(ConsumerProtocolAssignment(assigned_partitions=partitions), 1)


def test_memory_of_decoded_messages_is_bounded() -> None:
    """The metadata of a member may have 8 MiB. It is decoded in one step of the event loop."""
    assert len(subscription_of(subscription(LARGE)).topics) == LARGE
    assert assignment_of(assignment(LARGE)).assigned_partitions[0].partitions == list(range(LARGE))
    with pytest.raises(Malformed, match="bytes of memory"):
        subscription_of(subscription(HUGE))
    with pytest.raises(Malformed, match="bytes of memory"):
        assignment_of(assignment(HUGE))


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff\xff", b"\0\1\0\0\0\5"])
def test_invalid_message_is_malformed(data: bytes) -> None:
    with pytest.raises(Malformed):
        subscription_of(data)
