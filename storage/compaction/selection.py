"""Select the part of a log to compact, and the groups of segments to rewrite (Kafka's `LogCleanerManager`).

This module is pure. Below `first_dirty` the log is clean: each key has one record. A compaction maps the keys from
`first_dirty` up to `bound`, and rewrites all segments below `bound`. It rewrites whole segments only: neither the
active segment, nor a segment that reaches above the last stable offset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.frozen import frozen_dataclass
from odradek.protocol.batch import HEADER_BYTES
from odradek.protocol.primitives import INT64_MAX
from odradek.storage.segment.index import (
    INDEX_INTERVAL_BYTES_MAX,
    OFFSET_ENTRY_BYTES,
    RELATIVE_OFFSET_MAX,
    TIME_ENTRY_BYTES,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from odradek.storage.config import LogConfig
    from odradek.storage.segment.segments import SegmentFacts

GROUP_SEGMENTS_MAX = 64
"""Maximum segments per group. Renaming the files of a group blocks the event loop, for some milliseconds with 64."""


@frozen_dataclass(frozen=True, slots=True)
class Offsets:
    """Offsets of a log that bound its compaction. `cleaned_to` is the end of the last one, None if there was none."""

    log_start: int
    last_stable: int
    log_end: int
    cleaned_to: int | None = None


@frozen_dataclass(frozen=True, slots=True)
class Cleanable:
    """Dirty part of a log that may be compacted: the offsets in [`first_dirty`, `bound`). Sizes are bytes of segments.

    `bound` is the base offset of a segment.
    """

    first_dirty: int
    bound: int
    clean_bytes: int
    dirty_bytes: int
    overdue: bool
    """True if a dirty segment is older than max.compaction.lag.ms."""

    @property
    def ratio(self) -> float:
        """Dirty bytes divided by all bytes below `bound`."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def due(self, config: LogConfig) -> bool:
        """Return True if the log should be compacted now: by max.compaction.lag.ms or min.cleanable.dirty.ratio."""
        return self.dirty_bytes > 0 and (self.overdue or self.ratio > config.min_cleanable_dirty_ratio)


def cleanable_part(segments: Sequence[SegmentFacts], config: LogConfig, offsets: Offsets, *, now_ms: int) -> Cleanable:
    """Return the part of a log that may be compacted. The last of `segments` is the active one."""
    first_dirty = _first_dirty(offsets)
    ends = [segment.base_offset for segment in segments[1:]]
    dirty = [segment for segment, end in zip(segments, ends, strict=False) if end > first_dirty]
    limit = min(offsets.last_stable, segments[-1].base_offset)
    if config.min_compaction_lag_ms > 0:
        young = (segment for segment in dirty if segment.largest_timestamp > now_ms - config.min_compaction_lag_ms)
        limit = min([limit, *(segment.base_offset for segment in young)])
    bound = max((segment.base_offset for segment in segments if segment.base_offset <= limit), default=first_dirty)
    cleanable = [segment for segment in dirty if segment.base_offset < bound]
    clean_bytes = sum(segment.size for segment, end in zip(segments, ends, strict=False) if end <= first_dirty)
    return Cleanable(
        first_dirty,
        max(bound, first_dirty),
        clean_bytes,
        sum(segment.size for segment in cleanable),
        _overdue(dirty, config, now_ms),
    )


def _first_dirty(offsets: Offsets) -> int:
    """Return the first dirty offset: the log start if the log was truncated below `cleaned_to`, or begins after it."""
    cleaned_to = offsets.cleaned_to
    if cleaned_to is None or not offsets.log_start <= cleaned_to <= offsets.log_end:
        return offsets.log_start
    return cleaned_to


def _overdue(dirty: Sequence[SegmentFacts], config: LogConfig, now_ms: int) -> bool:
    if config.max_compaction_lag_ms == INT64_MAX:
        return False
    timestamps = [segment.first_timestamp for segment in dirty if segment.first_timestamp is not None]
    return any(0 < timestamp < now_ms - config.max_compaction_lag_ms for timestamp in timestamps)


def groups(segments: Sequence[SegmentFacts], config: LogConfig, *, bound: int) -> list[list[SegmentFacts]]:
    """Divide adjacent segments into groups. Each group fits one segment by its bytes, index entries and offsets."""
    grouped: list[list[SegmentFacts]] = []
    size = entries = 0
    for number, segment in enumerate(segments, 1):
        end = segments[number].base_offset if number < len(segments) else bound
        size += segment.size
        entries += _index_entries(segment, config)
        fits = (
            grouped
            and len(grouped[-1]) < GROUP_SEGMENTS_MAX
            and size <= config.segment_bytes
            and entries * OFFSET_ENTRY_BYTES <= config.segment_index_bytes
            and (entries + len(grouped[-1])) * TIME_ENTRY_BYTES <= config.segment_index_bytes
            and end - 1 - grouped[-1][0].base_offset <= RELATIVE_OFFSET_MAX
        )
        if fits:
            grouped[-1].append(segment)
        else:
            grouped.append([segment])
            size, entries = segment.size, _index_entries(segment, config)
    return grouped


def _index_entries(segment: SegmentFacts, config: LogConfig) -> int:
    """Return an upper bound of index entries: each covers at least index.interval.bytes and at least one batch."""
    interval = min(config.index_interval_bytes, INDEX_INTERVAL_BYTES_MAX)
    return segment.size // max(interval, HEADER_BYTES) + 1
