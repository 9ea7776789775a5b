"""Record batches for tests of readers."""

from __future__ import annotations

from odradek.protocol.batch import Compression, build_batch, end_txn_marker


def batch(offset: int, *values: bytes, producer_id: int = -1, compression: Compression = Compression.NONE) -> bytes:
    """Return a batch of values from `offset` on, transactional if it has a producer id."""
    transactional = producer_id >= 0
    return build_batch(
        [(None, value, 1_000, ()) for value in values],
        base_offset=offset,
        compression=compression,
        producer_id=producer_id,
        producer_epoch=0 if transactional else -1,
        base_sequence=0 if transactional else -1,
        transactional=transactional,
    )


def marker(offset: int, producer_id: int, *, commit: bool) -> bytes:
    """Return a marker at an offset. The checksum does not cover the base offset."""
    made = end_txn_marker(
        producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, commit=commit, timestamp=1_000
    )
    return offset.to_bytes(8, "big") + made[8:]
