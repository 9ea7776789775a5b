"""Subscriptions and assignments of classic consumers: the simulator's own encoder and decoder."""

import struct
from collections.abc import Sequence
from typing import Final

from tests.sim.history import Partition

VERSION: Final = 1


def encode_subscription(topics: Sequence[str], user_data: bytes = b"") -> bytes:
    """Encode a ConsumerProtocolSubscription v1 of a joining member that owns no partitions (eager protocol)."""
    encoded_user_data = struct.pack(">i", len(user_data)) + user_data if user_data else struct.pack(">i", -1)
    return (
        struct.pack(">hi", VERSION, len(topics))
        + b"".join(map(_string, topics))
        + encoded_user_data
        + struct.pack(">i", 0)
    )


def encode_assignment(partitions: Sequence[Partition]) -> bytes:
    """Encode a ConsumerProtocolAssignment v1."""
    by_topic: dict[str, list[int]] = {}
    for topic, index in partitions:
        by_topic.setdefault(topic, []).append(index)
    body = struct.pack(">hi", VERSION, len(by_topic))
    for topic, indexes in by_topic.items():
        body += _string(topic) + struct.pack(f">i{len(indexes)}i", len(indexes), *indexes)
    return body + struct.pack(">i", -1)


def decode_assignment(data: bytes) -> tuple[Partition, ...]:
    """Decode the partitions of a ConsumerProtocolAssignment of any version. No bytes: no partitions."""
    if not data:
        return ()
    (topics,) = struct.unpack_from(">i", data, 2)
    position = 6
    partitions: list[Partition] = []
    for _ in range(topics):
        (size,) = struct.unpack_from(">h", data, position)
        topic = data[position + 2 : position + 2 + size].decode()
        position += 2 + size
        (count,) = struct.unpack_from(">i", data, position)
        partitions += [(topic, index) for index in struct.unpack_from(f">{count}i", data, position + 4)]
        position += 4 + 4 * count
    return tuple(sorted(partitions))


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()
