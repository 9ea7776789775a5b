"""Compaction: which part of a log is cleaned, when, and in which groups of segments (kafka-facts 6.10). Pure.

A log is clean up to `first_dirty`: there each key has one value, or a tombstone. Cleaning takes in the segments from there to
`bound`, and rewrites everything below. It works on whole segments, never on the active one, nor on one that reaches above
the first unstable offset or the high watermark.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek.protocol.batch import HEADER_BYTES
from odradek.storage.config import LONG_MAX
from odradek.storage.segment.index import OFFSET_ENTRY_BYTES, RELATIVE_OFFSET_MAX, TIME_ENTRY_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from odradek.storage.config import LogConfig
    from odradek.storage.segment.segments import SegmentFacts

GROUP_SEGMENTS_MAX = 64
"""Segments that become one at a time: what has to be renamed in one go stays a matter of milliseconds."""


@dataclass(frozen=True, slots=True)
class Offsets:
    """How far a log goes, and how far it was cleaned when it was cleaned last (None: never)."""

    log_start: int
    last_stable: int
    log_end: int
    cleaned_to: int | None = None


@dataclass(frozen=True, slots=True)
class Cleanable:
    """What may be cleaned: offsets from `first_dirty` to below `bound`, the base offset of a segment. Sizes are bytes."""

    first_dirty: int
    bound: int
    clean_bytes: int
    dirty_bytes: int
    overdue: bool
    """Some of it has waited for max.compaction.lag.ms."""

    @property
    def ratio(self) -> float:
        """The part that is dirty."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def due(self, config: LogConfig) -> bool:
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
    taken = [segment for segment in dirty if segment.base_offset < bound]
    below = sum(segment.size for segment, end in zip(segments, ends, strict=False) if end <= first_dirty)
    return Cleanable(
        first_dirty,
        max(bound, first_dirty),
        below,
        sum(segment.size for segment in taken),
        _overdue(dirty, config, now_ms),
    )


def _first_dirty(offsets: Offsets) -> int:
    """A log that was cut, or begins later than it did, is looked at as a whole."""
    cleaned_to = offsets.cleaned_to
    if cleaned_to is None or not offsets.log_start <= cleaned_to <= offsets.log_end:
        return offsets.log_start
    return cleaned_to


def _overdue(dirty: Sequence[SegmentFacts], config: LogConfig, now_ms: int) -> bool:
    if config.max_compaction_lag_ms == LONG_MAX:
        return False
    first = [segment.first_timestamp for segment in dirty if segment.first_timestamp is not None]
    return any(0 < timestamp < now_ms - config.max_compaction_lag_ms for timestamp in first)


def groups(segments: Sequence[SegmentFacts], config: LogConfig, *, bound: int) -> list[list[SegmentFacts]]:
    """Neighbours that become one segment: together they are no larger than one may be, nor are their indexes."""
    made: list[list[SegmentFacts]] = []
    size = entries = 0
    for number, segment in enumerate(segments, 1):
        end = segments[number].base_offset if number < len(segments) else bound
        size += segment.size
        entries += _index_entries(segment, config)
        fits = (
            made
            and len(made[-1]) < GROUP_SEGMENTS_MAX
            and size <= config.segment_bytes
            and entries * OFFSET_ENTRY_BYTES <= config.segment_index_bytes
            and (entries + len(made[-1])) * TIME_ENTRY_BYTES <= config.segment_index_bytes
            and end - 1 - made[-1][0].base_offset <= RELATIVE_OFFSET_MAX
        )
        if fits:
            made[-1].append(segment)
        else:
            made.append([segment])
            size, entries = segment.size, _index_entries(segment, config)
    return made


def _index_entries(segment: SegmentFacts, config: LogConfig) -> int:
    """At most: each entry stands for more than index.interval.bytes, and for one batch at least."""
    return segment.size // max(config.index_interval_bytes, HEADER_BYTES) + 1
