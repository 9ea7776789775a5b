"""One partition on one host, as its files say: batches in order, and where in which file each one lies."""

from bisect import bisect_left
from collections.abc import Container
from dataclasses import dataclass

from tests.sim.checkers.batches import Batch
from tests.sim.checkers.compaction import Content
from tests.sim.checkers.visibility import PartitionModel


@dataclass(slots=True)
class Placed:
    """A batch as it was written, and its place: the base offset of its segment, and the position of its end there."""

    batch: Batch
    segment: int
    file_end: int
    held: Batch | None
    """What compaction has left of it here. None: nothing, its place is where it would be."""


class ReplicaLog:
    """Follows the writes and cuts of one log."""

    def __init__(self) -> None:
        self.placed: list[Placed] = []
        self.end = 0
        self.end_ever = 0
        self.cuts = 0
        """How often its end was taken away: a model of it starts anew."""
        self._model = PartitionModel()
        self._modeled = 0
        self._content = Content()
        self._contained = 0

    @property
    def batches(self) -> list[Batch]:
        return [each.batch for each in self.placed]

    def add(self, batch: Batch, segment: int, file_end: int, held: Batch | None) -> None:
        self.placed.append(Placed(batch, segment, file_end, held))
        self.end = batch.last_offset + 1
        self.end_ever = max(self.end_ever, self.end)

    def cut(self, segment: int, size: int) -> int:
        """A file was truncated to `size` bytes, or removed (-1). How many batches that takes away."""
        kept = [each for each in self.placed if each.segment != segment or each.file_end <= size]
        lost = len(self.placed) - len(kept)
        if lost:
            if kept and self.placed[-1] is kept[-1]:
                self.placed = kept  # old segments go, the end stays
                self._modeled = max(0, self._modeled - lost)
                self._contained = max(0, self._contained - lost)
                return 0
            self.end = kept[-1].batch.last_offset + 1 if kept else min(each.batch.base_offset for each in self.placed)
            self.placed = kept
            self._forget_model()
        return lost

    def _forget_model(self) -> None:
        self.cuts += 1
        self._model, self._modeled = PartitionModel(), 0
        self._content, self._contained = Content(), 0

    def drop_gone(self, end: int, segments: Container[int] | None = None) -> None:
        """Forget batches at the end of which nothing is held, down to `end`; with `segments` those in other segments than these."""
        before = len(self.placed)
        while self.placed and self.placed[-1].held is None and self.placed[-1].batch.base_offset >= end:
            if segments is not None and self.placed[-1].segment in segments:
                break
            self.end = self.placed.pop().batch.base_offset
        if len(self.placed) < before:
            self._forget_model()

    def model(self) -> PartitionModel:
        """Which record is committed, aborted or open by what lies here now."""
        for each in self.placed[self._modeled :]:
            self._model.add(each.batch)
        self._modeled = len(self.placed)
        return self._model

    def left(self) -> PartitionModel:
        """As `model`, by nothing but the batches of which compaction has left something here, be it without records."""
        return PartitionModel.of(each.batch for each in self.placed if each.held is not None)

    def content(self) -> Content:
        """What it says of keys and transactions."""
        for each in self.placed[self._contained :]:
            self._content.add(each.batch)
        self._contained = len(self.placed)
        return self._content

    def within(self, first: int, end: int) -> list[Placed]:
        """The batches that begin from `first` to below `end`."""
        low = bisect_left(self.placed, first, key=lambda each: each.batch.base_offset)
        return self.placed[low : bisect_left(self.placed, end, lo=low, key=lambda each: each.batch.base_offset)]

    def find(self, offset: int) -> Batch | None:
        """The batch that holds the offset."""
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
