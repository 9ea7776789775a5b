"""Where a key belongs, as Kafka's producers have it: murmur2 of the key."""

from __future__ import annotations

SEED = 0x9747B28C
MULTIPLIER = 0x5BD1E995
SHIFT = 24
WORD_BYTES = 4
MASK = 0xFFFF_FFFF


def partition_of(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFF_FFFF) % partitions


def murmur2(data: bytes) -> int:
    """32 bits, unsigned (org.apache.kafka.common.utils.Utils.murmur2)."""
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
