"""Decode the consumer protocol: subscriptions and assignments that members embed in JoinGroup and SyncGroup.

An int16 version comes first, then the message in that version. A version above the newest known one is decoded as the
newest known one: Kafka only appends fields to these messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from odradek.protocol.codec import decode_charged, encode
from odradek.protocol.errors import ChargeExceeded, Malformed
from odradek.protocol.records.consumer_protocol_assignment import ConsumerProtocolAssignment
from odradek.protocol.records.consumer_protocol_subscription import ConsumerProtocolSubscription

if TYPE_CHECKING:
    from odradek.protocol.schema import Message

CONSUMER_PROTOCOL: Final = "consumer"
"""Protocol type of groups whose members are consumers. Their subscriptions and assignments can be decoded."""
CHARGE_BYTES_MAX: Final = 1024 * 1024
"""Maximum memory of one decoded subscription or assignment, in bytes: about 10,000 topics or 20,000 partitions. The
decoding takes up to 5 ms."""
VERSION_BYTES: Final = 2
"""Size of the version that precedes each message, in bytes."""

M = TypeVar("M", bound="Message")


def version_of(data: bytes) -> int:
    """Return the version of a subscription or assignment, at most the newest known one.

    Raise Malformed if there is none.
    """
    if len(data) < VERSION_BYTES:
        raise Malformed("consumer protocol: the version is missing")
    version = int.from_bytes(data[:VERSION_BYTES], "big", signed=True)
    if version < ConsumerProtocolSubscription.MIN_VERSION:
        raise Malformed(f"consumer protocol: version {version} is invalid")
    return min(version, ConsumerProtocolSubscription.MAX_VERSION)


def subscription_of(data: bytes) -> ConsumerProtocolSubscription:
    """Decode the subscription of a member. Raise Malformed if it cannot be decoded, or exceeds CHARGE_BYTES_MAX."""
    return _decode(ConsumerProtocolSubscription, data)


def assignment_of(data: bytes) -> ConsumerProtocolAssignment:
    """Decode the assignment of a member. Raise Malformed if it cannot be decoded, or exceeds CHARGE_BYTES_MAX."""
    return _decode(ConsumerProtocolAssignment, data)


def encode_assignment(assignment: ConsumerProtocolAssignment, version: int) -> bytes:
    """Encode an assignment in `version`."""
    return version.to_bytes(VERSION_BYTES, "big") + encode(assignment, version)


def _decode(message: type[M], data: bytes) -> M:
    try:
        return decode_charged(message, version_of(data), data, CHARGE_BYTES_MAX, VERSION_BYTES)[0]
    except ChargeExceeded:
        raise Malformed(f"{message.NAME}: more than {CHARGE_BYTES_MAX} bytes of memory are necessary") from None
