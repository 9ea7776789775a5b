"""Decide which segments are beyond the retention of their topic. This module is pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from odradek.storage.config import LogConfig
    from odradek.storage.segment.segments import SegmentFacts

SEGMENTS_PER_STEP: Final = 50
"""Maximum segments that leave a log in one step. Their files are renamed, which takes about 3 ms."""


def count_deletable(
    segments: Sequence[SegmentFacts],
    config: LogConfig,
    *,
    log_start_offset: int,
    high_watermark: int,
    log_end_offset: int,
    now_ms: int,
) -> int:
    """Return how many of the oldest segments retention deletes. If it is all, the caller rolls the active one first.

    A segment is deleted only if its end is not above the high watermark. An empty active segment is never deleted.
    Segments below the log start are deleted under every cleanup policy. Retention by size and time applies only if the
    policy has `delete`.
    """
    ends = [segment.base_offset for segment in segments[1:]] + [log_end_offset]

    def count(start: int, expired: Callable[[int], bool]) -> int:
        at = start
        while at < len(segments) and high_watermark >= ends[at] and expired(at):
            if at == len(segments) - 1 and segments[at].size == 0:
                break
            at += 1
        return at

    def below_log_start(at: int) -> bool:
        return at + 1 < len(segments) and ends[at] <= log_start_offset

    at = count(0, below_log_start)
    if not config.deletes:
        return at
    if config.retention_bytes >= 0:
        excess = sum(segment.size for segment in segments[at:]) - config.retention_bytes

        def too_large(index: int) -> bool:
            nonlocal excess
            if excess < segments[index].size:
                return False
            excess -= segments[index].size
            return True

        at = count(at, too_large)
    if config.retention_ms >= 0:
        at = count(at, lambda index: now_ms - segments[index].largest_timestamp > config.retention_ms)
    return at
