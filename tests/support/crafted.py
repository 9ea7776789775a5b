"""Batches that a hostile client can send: valid headers and checksums over expensive records."""

from __future__ import annotations

import tracemalloc
from contextlib import contextmanager
from typing import TYPE_CHECKING

from odradek.protocol.batch import MAGIC, NO_PRODUCER_ID, NO_SEQUENCE, BatchHeader, Compression, seal_batch
from odradek.protocol.compression import compress
from odradek.protocol.primitives import unsigned_varint, varint
from tests.support.logs import NOW_MS

if TYPE_CHECKING:
    from collections.abc import Iterator

KEYLESS = b"\x0c\x00\x00\x00\x01\x01\x00"
"""The smallest record: offset delta 0, no key, no value, no headers."""
TOO_LONG_DELTA = b"\x1e\x00" + unsigned_varint(1 << 64) + b"\x00\x00\x00\x00"
"""A record whose timestamp delta has 65 bits. It has an empty key and an empty value."""


def tiny_record(offset_delta: int, *, timestamp_delta: int = 0, headers: int = 0) -> bytes:
    """Return a record with an empty key, an empty value and `headers` empty headers."""
    body = (
        b"\x00" + varint(timestamp_delta) + varint(offset_delta) + b"\x00\x00" + varint(headers) + b"\x00\x01" * headers
    )
    return varint(len(body)) + body


def crafted(
    body: bytes,
    count: int,
    codec: Compression = Compression.NONE,
    *,
    base_timestamp: int = NOW_MS,
    max_timestamp: int = NOW_MS,
    attributes: int = 0,
) -> bytes:
    """Return a batch with a valid checksum whose header declares `count` records."""
    return seal_batch(
        BatchHeader(
            0, 0, -1, MAGIC, 0, codec | attributes, count - 1, base_timestamp, max_timestamp, NO_PRODUCER_ID, -1,
            NO_SEQUENCE, count,
        ),
        compress(codec, body),
    )  # fmt: skip


def tiny_records(count: int, codec: Compression = Compression.NONE, **header: int) -> bytes:
    """Return a valid batch of `count` records with empty keys."""
    return crafted(b"".join(map(tiny_record, range(count))), count, codec, **header)


class Peak:
    """Largest traced memory, in bytes above that at the start."""

    bytes = 0


@contextmanager
def traced_peak() -> Iterator[Peak]:
    """Measure the memory that the body of the statement allocates."""
    peak = Peak()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        yield peak
        peak.bytes = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
