"""The bytes that classic members hand one another through the coordinator, in lines of the simulation's own."""

import struct
from collections.abc import Sequence
from typing import Final

from tests.sim.history import Partition

VERSION: Final = 1


def encode_subscription(topics: Sequence[str], user_data: bytes = b"") -> bytes:
    """ConsumerProtocolSubscription v1 of a member that owns nothing: an eager one, when it joins."""
    said = struct.pack(">i", len(user_data)) + user_data if user_data else struct.pack(">i", -1)
    return struct.pack(">hi", VERSION, len(topics)) + b"".join(map(_string, topics)) + said + struct.pack(">i", 0)


def encode_assignment(partitions: Sequence[Partition]) -> bytes:
    """ConsumerProtocolAssignment v1."""
    by_topic: dict[str, list[int]] = {}
    for topic, index in partitions:
        by_topic.setdefault(topic, []).append(index)
    body = struct.pack(">hi", VERSION, len(by_topic))
    for topic, indexes in by_topic.items():
        body += _string(topic) + struct.pack(f">i{len(indexes)}i", len(indexes), *indexes)
    return body + struct.pack(">i", -1)


def decode_assignment(data: bytes) -> tuple[Partition, ...]:
    """Of any version: what is behind the partitions is not read. No bytes: nothing is assigned."""
    if not data:
        return ()
    (topics,) = struct.unpack_from(">i", data, 2)
    position = 6
    found: list[Partition] = []
    for _ in range(topics):
        (size,) = struct.unpack_from(">h", data, position)
        topic = data[position + 2 : position + 2 + size].decode()
        position += 2 + size
        (count,) = struct.unpack_from(">i", data, position)
        found += [(topic, index) for index in struct.unpack_from(f">{count}i", data, position + 4)]
        position += 4 + 4 * count
    return tuple(sorted(found))


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()
