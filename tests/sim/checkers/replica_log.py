"""Log of one partition on one host, from its files: batches in order, and the position of each in a segment file."""

from bisect import bisect_left
from collections.abc import Container
from dataclasses import dataclass

from tests.sim.checkers.batches import Batch
from tests.sim.checkers.compaction import Content
from tests.sim.checkers.visibility import PartitionModel


@dataclass(slots=True)
class Placed:
    """An original batch, the base offset of its segment, and the position of its end in that segment."""

    batch: Batch
    segment: int
    file_end: int
    held: Batch | None
    """The part that compaction left here. None: nothing, and the position is where the batch would be."""


class ReplicaLog:
    """Model of one log that follows its appends and truncations."""

    def __init__(self) -> None:
        self.placed: list[Placed] = []
        self.end = 0
        self.end_ever = 0
        self.truncations = 0
        """Number of truncations of the log end. A model of the log starts again after each."""
        self._model = PartitionModel()
        self._modeled = 0
        self._content = Content()
        self._contained = 0

    @property
    def batches(self) -> list[Batch]:
        return [placed.batch for placed in self.placed]

    def add(self, batch: Batch, segment: int, file_end: int, held: Batch | None) -> None:
        self.placed.append(Placed(batch, segment, file_end, held))
        self.end = batch.last_offset + 1
        self.end_ever = max(self.end_ever, self.end)

    def truncate(self, segment: int, size: int) -> int:
        """Handle the truncation of a segment file to `size` bytes, or its removal (-1).

        Return the number of batches truncated from the log end. Removal of old segments keeps the log end and returns
        0.
        """
        kept = [placed for placed in self.placed if placed.segment != segment or placed.file_end <= size]
        lost = len(self.placed) - len(kept)
        if lost:
            if kept and self.placed[-1] is kept[-1]:
                self.placed = kept  # old segments were deleted; the log end is unchanged
                self._modeled = max(0, self._modeled - lost)
                self._contained = max(0, self._contained - lost)
                return 0
            self.end = (
                kept[-1].batch.last_offset + 1 if kept else min(placed.batch.base_offset for placed in self.placed)
            )
            self.placed = kept
            self._forget_model()
        return lost

    def _forget_model(self) -> None:
        self.truncations += 1
        self._model, self._modeled = PartitionModel(), 0
        self._content, self._contained = Content(), 0

    def drop_removed(self, end: int, segments: Container[int] | None = None) -> None:
        """Remove batches at the log end of which compaction left nothing, down to offset `end`.

        With `segments`, stop at the first batch of these segments.
        """
        before = len(self.placed)
        while self.placed and self.placed[-1].held is None and self.placed[-1].batch.base_offset >= end:
            if segments is not None and self.placed[-1].segment in segments:
                break
            self.end = self.placed.pop().batch.base_offset
        if len(self.placed) < before:
            self._forget_model()

    def model(self) -> PartitionModel:
        """Return the model of committed, aborted and open records of the current log."""
        for placed in self.placed[self._modeled :]:
            self._model.add(placed.batch)
        self._modeled = len(self.placed)
        return self._model

    def left(self) -> PartitionModel:
        """Return a model of the batches of which compaction left at least the header on this disk."""
        return PartitionModel.of(placed.batch for placed in self.placed if placed.held is not None)

    def content(self) -> Content:
        """Return the keys and transactions of the current log."""
        for placed in self.placed[self._contained :]:
            self._content.add(placed.batch)
        self._contained = len(self.placed)
        return self._content

    def within(self, first: int, end: int) -> list[Placed]:
        """Return the batches with a base offset from `first` to `end` (excluded)."""
        low = bisect_left(self.placed, first, key=lambda placed: placed.batch.base_offset)
        return self.placed[low : bisect_left(self.placed, end, lo=low, key=lambda placed: placed.batch.base_offset)]

    def find(self, offset: int) -> Batch | None:
        """Return the batch that contains the offset, or None."""
        low, high = 0, len(self.placed)
        while low < high:
            middle = (low + high) // 2
            if self.placed[middle].batch.last_offset < offset:
                low = middle + 1
            else:
                high = middle
        if low < len(self.placed) and self.placed[low].batch.base_offset <= offset:
            return self.placed[low].batch
        return None
