from __future__ import annotations

from typing import Any

import pytest

from odradek.storage.config import LogConfig
from odradek.storage.log.retention import count_deletable
from odradek.storage.segment.segments import SegmentFacts

# base offset, bytes, newest timestamp; the log ends at 40
SEGMENTS = [
    SegmentFacts(0, 100, 1000),
    SegmentFacts(10, 100, 2000),
    SegmentFacts(20, 100, 3000),
    SegmentFacts(30, 50, 4000),
]
NEVER = {"retention_ms": -1, "retention_bytes": -1}


def count(
    segments: list[SegmentFacts] | None = None,
    *,
    log_start: int = 0,
    high_watermark: int = 40,
    now_ms: int = 5000,
    **config: Any,
) -> int:
    return count_deletable(
        SEGMENTS if segments is None else segments,
        LogConfig(**(NEVER | config)),
        log_start_offset=log_start,
        high_watermark=high_watermark,
        log_end_offset=40,
        now_ms=now_ms,
    )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 0),
        ({"retention_ms": 4000}, 0),
        ({"retention_ms": 3999}, 1),
        ({"retention_ms": 1500}, 3),
        ({"retention_ms": 0}, 4),
        ({"retention_ms": 0, "high_watermark": 25}, 2),
        ({"retention_ms": 0, "high_watermark": 20}, 2),
        ({"retention_bytes": 350}, 0),
        ({"retention_bytes": 250}, 1),
        ({"retention_bytes": 251}, 0),
        ({"retention_bytes": 0}, 4),
        ({"retention_bytes": 250, "retention_ms": 1500}, 3),
        ({"log_start": 20}, 2),
        ({"log_start": 19}, 1),
        ({"log_start": 40}, 3),
        ({"retention_ms": 0, "cleanup_policy": ("compact",)}, 0),
        ({"log_start": 20, "cleanup_policy": ("compact",)}, 2),
        ({"log_start": 10, "retention_bytes": 150}, 2),
    ],
)
def test_segments_are_deletable_by_time_size_and_log_start_offset(options: dict[str, Any], expected: int) -> None:
    assert count(**options) == expected


def test_empty_active_segment_is_never_deleted() -> None:
    assert count([SegmentFacts(0, 100, 1000), SegmentFacts(40, 0, 4000)], retention_ms=0) == 1
    assert count([SegmentFacts(40, 0, 1000)], retention_ms=0) == 0


def test_segment_with_a_future_timestamp_delays_deletion_of_later_ones() -> None:
    assert count([SegmentFacts(0, 100, 9000), SegmentFacts(10, 100, 1000)], retention_ms=100) == 0
