"""Decide when the active segment is full or old enough to be rolled. Pure."""

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
    """Determine whether an append of `incoming` bytes that ends at `last_offset` needs a new segment."""
    if segment.size > config.segment_bytes - incoming or segment.full_for(config, last_offset):
        return True
    if segment.size == 0:
        return False
    first = segment.first_batch_timestamp
    waited_ms = newest_timestamp - first if first is not None and first >= 0 else now_ms - segment.created_ms
    return waited_ms > config.roll_ms - jitter_ms


def roll_jitter_ms(config: LogConfig, directory: str, base_offset: int) -> int:
    """Return by how much this segment rolls before segment.ms: a value up to segment.jitter.ms, equal at every call."""
    if config.segment_jitter_ms <= 0:
        return 0
    return crc32(f"{directory}/{base_offset}".encode()) % min(config.segment_jitter_ms, config.roll_ms + 1)
