"""Decide when the active segment is full or old enough to be rolled. This module is pure."""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

if TYPE_CHECKING:
    from odradek.storage.config import LogConfig
    from odradek.storage.segment.segment import Segment


def should_roll(
    segment: Segment,
    config: LogConfig,
    *,
    incoming: int,
    last_offset: int,
    newest_timestamp: int,
    now_ms: int,
    jitter_ms: int,
) -> bool:
    """Return True if an append of `incoming` bytes that ends at `last_offset` needs a new segment.

    `newest_timestamp` is the largest timestamp of the append, `jitter_ms` the result of `roll_jitter_ms`.
    """
    if segment.size > config.segment_bytes - incoming or segment.full_for(config, last_offset):
        return True
    if segment.size == 0:
        return False
    first = segment.first_batch_timestamp
    age_ms = newest_timestamp - first if first is not None and first >= 0 else now_ms - segment.created_ms
    return age_ms > config.roll_ms - jitter_ms


def roll_jitter_ms(config: LogConfig, directory: str, base_offset: int) -> int:
    """Return how many ms before segment.ms the segment rolls.

    The value is fixed per segment, at most segment.jitter.ms.
    """
    if config.segment_jitter_ms <= 0:
        return 0
    return crc32(f"{directory}/{base_offset}".encode()) % min(config.segment_jitter_ms, config.roll_ms + 1)
