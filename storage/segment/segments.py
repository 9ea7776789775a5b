"""The segments of a log in order of their base offsets; the last one is the active one."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from odradek.storage.segment.segment import Segment

SEALED_INDEXES_LOADED_MAX = 32
"""Sealed segments per log whose indexes are in memory. Each takes up to 40 bytes per 4 KiB of its segment."""


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """The properties of a segment that retention and compaction decide by.

    Timestamps are ms of wall-clock time. `first_timestamp`, that of the first batch, is None if it was not read.
    """

    base_offset: int
    size: int
    largest_timestamp: int
    first_timestamp: int | None = None


class Segments:
    """The list of segments, and which of their indexes are in memory."""

    def __init__(self) -> None:
        self._bases: list[int] = []
        self._segments: list[Segment] = []
        self._loaded: dict[int, Segment] = {}
        """Sealed segments with indexes in memory by base offset, least recently used first."""

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    @property
    def first(self) -> Segment:
        return self._segments[0]

    @property
    def active(self) -> Segment:
        return self._segments[-1]

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self._segments)

    def add(self, segment: Segment) -> None:
        assert not self._bases or segment.base_offset > self._bases[-1]
        self._bases.append(segment.base_offset)
        self._segments.append(segment)

    def at(self, number: int) -> Segment:
        return self._segments[number]

    def number_for(self, offset: int) -> int:
        """Return the position in the list of the segment that would hold `offset`; 0 for offsets before all."""
        return max(0, bisect_right(self._bases, offset) - 1)

    def base_below(self, offset: int) -> int:
        """Return the base offset of the segment that would hold `offset`."""
        return self._bases[self.number_for(offset)]

    def from_offset(self, offset: int) -> list[Segment]:
        """Return the segment that would hold `offset` and all later ones."""
        return self._segments[self.number_for(offset) :]

    def end_of(self, number: int, log_end_offset: int) -> int:
        """Return the offset after the segment with that position in the list."""
        return self._bases[number + 1] if number + 1 < len(self._bases) else log_end_offset

    def facts(self) -> list[SegmentFacts]:
        """Return the facts of all segments."""
        return [
            SegmentFacts(segment.base_offset, segment.size, segment.largest_timestamp, segment.first_batch_timestamp)
            for segment in self._segments
        ]

    def remove_first(self, count: int) -> list[Segment]:
        """Take the oldest `count` segments out of the list."""
        removed = self._segments[:count]
        del self._segments[:count], self._bases[:count]
        self._forget(removed)
        return removed

    def remove_from(self, base_offset: int) -> list[Segment]:
        """Take all segments whose base offset is not below `base_offset` out of the list."""
        keep = bisect_left(self._bases, base_offset)
        removed = self._segments[keep:]
        del self._segments[keep:], self._bases[keep:]
        self._forget(removed)
        return removed

    def replace(self, old: list[Segment], new: Segment) -> bool:
        """Put `new` in place of `old`, adjacent segments. Return False, and change nothing, if one is missing or active."""
        at = bisect_left(self._bases, old[0].base_offset)
        if self._segments[at : at + len(old)] != old or self.active in old:
            return False
        self._segments[at : at + len(old)] = [new]
        self._bases[at : at + len(old)] = [new.base_offset]
        self._forget(old)
        return True

    def note_index_use(self, segment: Segment) -> None:
        """Note that the indexes of a sealed segment are in memory and in use. Unload those used least recently."""
        self._loaded.pop(segment.base_offset, None)
        self._loaded[segment.base_offset] = segment
        if len(self._loaded) > SEALED_INDEXES_LOADED_MAX:
            oldest = self._loaded.pop(next(iter(self._loaded)))
            if oldest is not self.active:
                oldest.unload_indexes()

    def _forget(self, removed: list[Segment]) -> None:
        for segment in removed:
            self._loaded.pop(segment.base_offset, None)
