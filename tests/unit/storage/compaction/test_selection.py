"""Selection of the cleanable part of a log, and of the groups of segments."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.storage.compaction.selection import GROUP_SEGMENTS_MAX, Offsets, cleanable_part, groups
from odradek.storage.config import LogConfig
from odradek.storage.segment.segments import SegmentFacts

NOW_MS = 1_000_000
CONFIG = LogConfig(segment_bytes=1_000, cleanup_policy=("compact",), index_interval_bytes=100)


def segments(*sizes: int, ages_ms: tuple[int, ...] = ()) -> list[SegmentFacts]:
    """Return segments of ten offsets each."""
    ages = ages_ms or (0,) * len(sizes)
    return [
        SegmentFacts(number * 10, size, NOW_MS - age, NOW_MS - age)
        for number, (size, age) in enumerate(zip(sizes, ages, strict=True))
    ]


@pytest.mark.parametrize(
    ("offsets", "first_dirty", "bound", "clean", "dirty"),
    [
        (Offsets(0, 39, 39), 0, 30, 0, 600),
        (Offsets(0, 39, 39, cleaned_to=10), 10, 30, 100, 500),
        (Offsets(0, 39, 39, cleaned_to=15), 15, 30, 100, 500),  # the map was full inside of a segment
        (Offsets(0, 25, 39), 0, 20, 0, 300),  # an open transaction, or the high watermark, in the third
        (Offsets(0, 20, 39), 0, 20, 0, 300),
        (Offsets(0, 5, 39), 0, 0, 0, 0),
        (Offsets(0, 25, 39, cleaned_to=30), 30, 30, 600, 0),
        (Offsets(12, 39, 39, cleaned_to=10), 12, 30, 100, 500),  # the log begins later than it did
        (Offsets(0, 39, 39, cleaned_to=40), 0, 30, 0, 600),  # it was longer
    ],
)
def test_cleanable_part_begins_at_the_first_dirty_offset_and_ends_at_the_bound(
    offsets: Offsets, first_dirty: int, bound: int, clean: int, dirty: int
) -> None:
    part = cleanable_part(segments(100, 200, 300, 50), CONFIG, offsets, now_ms=NOW_MS)
    assert (part.first_dirty, part.bound, part.clean_bytes, part.dirty_bytes) == (first_dirty, bound, clean, dirty)


@pytest.mark.parametrize(
    ("cleaned_to", "settings", "due"),
    [
        (None, {}, True),
        (20, {}, False),  # 300 of 600, which is not more than half
        (20, {"min_cleanable_dirty_ratio": 0.4}, True),
        (20, {"max_compaction_lag_ms": 400}, True),
        (20, {"max_compaction_lag_ms": 500}, False),
        (30, {"max_compaction_lag_ms": 1, "min_cleanable_dirty_ratio": 0.0}, False),  # nothing to clean
        (None, {"min_compaction_lag_ms": 700}, True),  # the first segment is old enough, and is all that counts
        (None, {"min_compaction_lag_ms": 701}, False),
    ],
)
def test_log_is_due_by_dirty_ratio_or_compaction_lag(
    cleaned_to: int | None, settings: dict[str, Any], due: bool
) -> None:
    config = LogConfig(cleanup_policy=("compact",), **settings)
    rows = segments(100, 200, 300, 50, ages_ms=(700, 600, 500, 0))
    part = cleanable_part(rows, config, Offsets(0, 39, 39, cleaned_to), now_ms=NOW_MS)
    assert part.due(config) is due


def test_segments_within_the_minimum_lag_are_not_cleanable() -> None:
    config = LogConfig(cleanup_policy=("compact",), min_compaction_lag_ms=550)
    rows = segments(100, 200, 300, 50, ages_ms=(700, 600, 500, 0))
    assert cleanable_part(rows, config, Offsets(0, 39, 39), now_ms=NOW_MS).bound == 20


def bases(rows: list[SegmentFacts], config: LogConfig, bound: int) -> list[list[int]]:
    return [[row.base_offset for row in group] for group in groups(rows, config, bound=bound)]


def test_adjacent_segments_are_grouped_up_to_the_segment_size() -> None:
    assert bases(segments(400, 500, 200, 0, 900), CONFIG, 50) == [[0, 10], [20, 30], [40]]
    assert bases(segments(1_500, 10, 10), CONFIG, 30) == [[0], [10, 20]], "a segment that is too large for a group"
    assert bases([], CONFIG, 0) == []


def test_adjacent_segments_are_grouped_up_to_the_index_size() -> None:
    config = LogConfig(segment_bytes=10_000, index_interval_bytes=100, segment_index_bytes=96)
    assert bases(segments(300, 300, 300), config, 30) == [[0], [10], [20]], (
        "four entries of 12 bytes each, and one more"
    )
    far = [SegmentFacts(0, 10, 0), SegmentFacts(5, 10, 0), SegmentFacts(2**31, 10, 0)]
    assert bases(far, CONFIG, 2**31 + 1) == [[0, 5], [2**31]]


def test_group_has_at_most_the_maximum_of_segments() -> None:
    rows = segments(*[0] * (GROUP_SEGMENTS_MAX + 3))
    assert [len(group) for group in groups(rows, CONFIG, bound=10**6)] == [GROUP_SEGMENTS_MAX, 3]
