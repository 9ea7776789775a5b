"""Bounds of the work and of the memory that the records of one batch may need (decision 0072)."""

from __future__ import annotations

from odradek.protocol.record import RECORD_BYTES_MIN

RECORD_BYTES_MAX = 128 * 1024 * 1024
"""Maximum bytes of the decompressed records of one batch, whatever max.message.bytes is.

It limits the memory that a small compressed batch can use.
"""
EXPANDED_BYTES_MIN = 64 * 1024
"""Decompressed bytes that each batch may have, however small max.message.bytes is."""
EXPANSION_MAX = 32
"""Maximum decompressed bytes of a batch, as a multiple of max.message.bytes.

librdkafka limits a batch to its own message.max.bytes before it compresses it. The Java producer limits the compressed
size to batch.size (16 KiB by default) and expects the compression ratio of earlier batches: with batch.size=1 MiB,
32 permits a ratio of 32.
"""
RATIO_MAX = 1_000
"""Maximum decompressed bytes per compressed byte, for batches that exceed max.message.bytes when decompressed.

gzip reaches 1,030 for zeros, lz4 255, snappy 21. zstd reaches 32,000, which no records with own offsets reach.
"""
CODEC_COPIES = 3
"""Copies of the decompressed records that exist while a thread decompresses or compresses them.

A conversion needs the records, the pieces of its result, and the joined result. It may be as large as the records.
"""
GROWTH_DIVISOR = 64
"""Divisor of the decompressed bytes: the maximum growth by a codec of records that it cannot compress."""


def codec_bytes_max(body_bytes: int) -> int:
    """Return the maximum memory of a check, conversion or look-up of `body_bytes` bytes of records, in bytes."""
    return CODEC_COPIES * (body_bytes + body_bytes // GROWTH_DIVISOR)


def decompressed_bytes_max(compressed_bytes: int, max_message_bytes: int) -> int:
    """Return the maximum decompressed size of a batch with `compressed_bytes` bytes, in bytes.

    A batch that decompresses to at most max.message.bytes is always permitted: it may have any compression ratio.
    """
    least = max(max_message_bytes, EXPANDED_BYTES_MIN)
    return min(RECORD_BYTES_MAX, max(least, min(compressed_bytes * RATIO_MAX, least * EXPANSION_MAX)))


def records_max(max_message_bytes: int) -> int:
    """Return the maximum number of records of a batch: as many as fit into max.message.bytes without compression."""
    return max(max_message_bytes, EXPANDED_BYTES_MIN) // RECORD_BYTES_MIN
