"""Hash of the topics that a group subscribes to, to detect changes of their metadata (KIP-1101).

The hash is the same as Kafka's: XXH3 (64 bits, seed 0) over ids, names, partitions and racks, in the encoding of
Kafka's library. Strings are UTF-16, little endian, followed by their length; integers are little endian. A group that
moves between Kafka and Odradek therefore needs no rebalance.
"""

import struct
from collections.abc import Iterable, Mapping
from typing import Final

from xxhash import xxh3_64_intdigest

from odradek.coordinator.group.ports import TopicInfo, Topics

FORMAT_VERSION = 0
UNKNOWN_HASH: Final = -1
"""Metadata hash of a group while the records of its regular expressions are partly written. It differs from the hash of
the topics, so the next comparison starts a new epoch. A fail-over between two batches therefore loses no change."""


def group_hash(names: Iterable[str], topics: Topics, cache: dict[str, tuple[TopicInfo, int]]) -> int:
    """Return the hash of the topics that exist, as a signed number; 0 if there are none. `cache` is updated."""
    hashes = {}
    for name in names:
        topic = topics.by_name(name)
        if topic is None:
            cache.pop(name, None)
            continue
        known = cache.get(name)
        if known is None or known[0] != topic:
            known = cache[name] = (topic, topic_hash(topic))
        hashes[name] = known[1]
    return combined(hashes)


def combined(hashes: Mapping[str, int]) -> int:
    if not hashes:
        return 0
    return _signed(xxh3_64_intdigest(b"".join(struct.pack("<Q", hashes[name]) for name in sorted(hashes))))


def topic_hash(topic: TopicInfo) -> int:
    high, low = struct.unpack(">QQ", topic.topic_id)
    parts = [
        struct.pack("<BQQ", FORMAT_VERSION, high, low),
        _text(topic.name),
        struct.pack("<i", topic.partitions),
    ]
    for partition in range(topic.partitions):
        parts.append(struct.pack("<i", partition))
        racks = topic.racks[partition] if partition < len(topic.racks) else ()
        parts += (struct.pack("<i", len(rack.encode("utf-16-le")) // 2) + _text(rack) for rack in sorted(racks))
    return xxh3_64_intdigest(b"".join(parts))


def _text(text: str) -> bytes:
    encoded = text.encode("utf-16-le")
    return encoded + struct.pack("<i", len(encoded) // 2)


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number
