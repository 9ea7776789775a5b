"""The segments of a log in order of their base offsets; the last one is the active one."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from odradek.storage.segment.segment import Segment

SEALED_INDEXES_LOADED_MAX = 32  # of one log; each takes up to 40 bytes per 4 KiB of its segment


class Segments:
    def __init__(self) -> None:
        self._bases: list[int] = []
        self._segments: list[Segment] = []
        self._loaded: dict[int, Segment] = {}  # sealed ones with indexes in memory, least recently used first

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
        """Position in the list of the segment that would hold `offset`; 0 for offsets before all."""
        return max(0, bisect_right(self._bases, offset) - 1)

    def base_below(self, offset: int) -> int:
        """Base offset of the segment that would hold `offset`."""
        return self._bases[self.number_for(offset)]

    def from_offset(self, offset: int) -> list[Segment]:
        """The segment that would hold `offset` and all behind it."""
        return self._segments[self.number_for(offset) :]

    def end_of(self, number: int, log_end_offset: int) -> int:
        """Where the segment with that position in the list ends (exclusive offset)."""
        return self._bases[number + 1] if number + 1 < len(self._bases) else log_end_offset

    def remove_first(self, count: int) -> list[Segment]:
        removed = self._segments[:count]
        del self._segments[:count], self._bases[:count]
        self._forget(removed)
        return removed

    def remove_from(self, base_offset: int) -> list[Segment]:
        """Take out all segments whose base offset is not below `base_offset`."""
        keep = bisect_left(self._bases, base_offset)
        removed = self._segments[keep:]
        del self._segments[keep:], self._bases[keep:]
        self._forget(removed)
        return removed

    def replace(self, old: list[Segment], new: Segment) -> bool:
        """Put `new` in the place of `old`, its neighbours; False, and nothing has changed, if they are not all there."""
        at = bisect_left(self._bases, old[0].base_offset)
        if self._segments[at : at + len(old)] != old or self.active in old:
            return False
        self._segments[at : at + len(old)] = [new]
        self._bases[at : at + len(old)] = [new.base_offset]
        self._forget(old)
        return True

    def note_index_use(self, segment: Segment) -> None:
        """A sealed segment's indexes are in memory and in use: those used least recently make room."""
        self._loaded.pop(segment.base_offset, None)
        self._loaded[segment.base_offset] = segment
        if len(self._loaded) > SEALED_INDEXES_LOADED_MAX:
            oldest = self._loaded.pop(next(iter(self._loaded)))
            if oldest is not self.active:
                oldest.unload_indexes()

    def _forget(self, removed: list[Segment]) -> None:
        for segment in removed:
            self._loaded.pop(segment.base_offset, None)
