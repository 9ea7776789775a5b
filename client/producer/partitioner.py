"""The default partitioner of Kafka's producers for records with a key: murmur2 of the key."""

from __future__ import annotations

from typing import Final

SEED: Final = 0x9747B28C
MULTIPLIER: Final = 0x5BD1E995
SHIFT: Final = 24
WORD_BYTES: Final = 4
MASK: Final = 0xFFFF_FFFF


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition index of a key in a topic of `partitions` partitions."""
    return (murmur2(key) & 0x7FFF_FFFF) % partitions


def murmur2(data: bytes) -> int:
    """Return the hash of org.apache.kafka.common.utils.Utils.murmur2 as 32 unsigned bits."""
    state = SEED ^ len(data)
    whole = len(data) - len(data) % WORD_BYTES
    for position in range(0, whole, WORD_BYTES):
        word = int.from_bytes(data[position : position + WORD_BYTES], "little") * MULTIPLIER & MASK
        word = (word ^ word >> SHIFT) * MULTIPLIER & MASK
        state = (state * MULTIPLIER & MASK) ^ word
    if whole < len(data):
        state = (state ^ int.from_bytes(data[whole:], "little")) * MULTIPLIER & MASK
    state = (state ^ state >> 13) * MULTIPLIER & MASK
    return state ^ state >> 15
