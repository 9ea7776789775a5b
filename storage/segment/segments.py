"""Keep the segments of a log in the order of their base offsets. The last one is the active segment."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from odradek.frozen import frozen_dataclass
from odradek.invariants.storage import SEGMENT_ORDER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from odradek.storage.segment.segment import Segment

SEALED_INDEXES_LOADED_MAX = 32
"""Maximum sealed segments per log whose indexes are in memory. They take up to 40 bytes per 4 KiB of a segment."""


@frozen_dataclass(frozen=True, slots=True)
class SegmentFacts:
    """Properties of a segment that retention and compaction use.

    Timestamps are wall-clock time in ms. `first_timestamp` is that of the first batch, None if it was not read.
    """

    base_offset: int
    size: int
    largest_timestamp: int
    first_timestamp: int | None = None


class Segments:
    """List of the segments of a log. It also unloads the indexes that were not used recently."""

    def __init__(self) -> None:
        self._bases: list[int] = []
        self._segments: list[Segment] = []
        self._loaded: dict[int, Segment] = {}
        """Base offset -> sealed segment with indexes in memory, least recently used first."""

    @property
    def is_read_at_start(self) -> bool:
        """True if a start reads all records anyway: there is one segment, and it needs no index files."""
        return len(self) == 1 and self.active.needs_no_index_files

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
        """Add a segment as the active one. Its base offset must be greater than all others."""
        self._bases.append(segment.base_offset)
        self._segments.append(segment)
        self._check_order(len(self._bases) - 1)

    def _check_order(self, number: int) -> None:
        """Check the order of segment `number` of the list and its neighbors."""
        for earlier in range(max(0, number - 1), min(number + 1, len(self._bases) - 1)):
            base_offset, next_base_offset = self._bases[earlier : earlier + 2]
            index = self._segments[earlier].offset_index
            last_offset = base_offset if index is None else index.last_offset
            if last_offset >= next_base_offset:
                raise SEGMENT_ORDER.violated(
                    base_offset=base_offset, last_indexed_offset=last_offset, next_base_offset=next_base_offset
                )

    def at(self, number: int) -> Segment:
        return self._segments[number]

    def number_for(self, offset: int) -> int:
        """Return the position in the list of the segment for `offset`; 0 if `offset` is below all base offsets."""
        return max(0, bisect_right(self._bases, offset) - 1)

    def base_below(self, offset: int) -> int:
        """Return the base offset of the segment for `offset`."""
        return self._bases[self.number_for(offset)]

    def from_offset(self, offset: int) -> list[Segment]:
        """Return the segment for `offset` and all later ones."""
        return self._segments[self.number_for(offset) :]

    def end_of(self, number: int, log_end_offset: int) -> int:
        """Return the end offset (exclusive) of the segment with that position in the list."""
        return self._bases[number + 1] if number + 1 < len(self._bases) else log_end_offset

    def facts(self) -> list[SegmentFacts]:
        """Return the facts of all segments."""
        return [
            SegmentFacts(segment.base_offset, segment.size, segment.largest_timestamp, segment.first_batch_timestamp)
            for segment in self._segments
        ]

    def remove_first(self, count: int) -> list[Segment]:
        """Remove the first `count` segments from the list, and return them."""
        removed = self._segments[:count]
        del self._segments[:count], self._bases[:count]
        self._forget(removed)
        return removed

    def remove_from(self, base_offset: int) -> list[Segment]:
        """Remove all segments whose base offset is at or above `base_offset` from the list, and return them."""
        keep = bisect_left(self._bases, base_offset)
        removed = self._segments[keep:]
        del self._segments[keep:], self._bases[keep:]
        self._forget(removed)
        return removed

    def replace(self, old: list[Segment], new: Segment) -> bool:
        """Replace the adjacent segments `old` by `new`. Return False without a change if one is missing or active."""
        at = bisect_left(self._bases, old[0].base_offset)
        if self._segments[at : at + len(old)] != old or self.active in old:
            return False
        self._segments[at : at + len(old)] = [new]
        self._bases[at : at + len(old)] = [new.base_offset]
        self._forget(old)
        self._check_order(at)
        return True

    def note_index_use(self, segment: Segment) -> None:
        """Note that a read has used the indexes of a sealed segment. Unload those used least recently."""
        self._loaded.pop(segment.base_offset, None)
        self._loaded[segment.base_offset] = segment
        if len(self._loaded) > SEALED_INDEXES_LOADED_MAX:
            oldest = self._loaded.pop(next(iter(self._loaded)))
            if oldest is not self.active:
                oldest.unload_indexes()

    def _forget(self, removed: list[Segment]) -> None:
        for segment in removed:
            self._loaded.pop(segment.base_offset, None)
