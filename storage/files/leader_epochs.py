"""Which leader epoch wrote which offsets (KIP-101): start offsets per epoch, both strictly increasing. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class LeaderEpochs:
    """The cache behind `leader-epoch-checkpoint`. `dirty` is set by every change; whoever persists clears it."""

    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.latest = UNDEFINED_EPOCH
        """The largest epoch, -1 when there is none."""
        for epoch, start in entries or []:
            self.assign(epoch, start)
        self.dirty = False

    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._starts, strict=True))

    def assign(self, epoch: int, start_offset: int) -> None:
        """Epoch `epoch` begins at `start_offset`.

        What was appended last is right: entries that contradict it (a log that was cut and written again by another
        leader, an entry rebuilt from a damaged batch) are dropped.
        """
        if epoch < 0 or start_offset < 0:
            return
        if self._epochs and epoch == self._epochs[-1] and start_offset >= self._starts[-1]:
            return
        keep = min(bisect_left(self._epochs, epoch), bisect_left(self._starts, start_offset))
        del self._epochs[keep:], self._starts[keep:]
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self.latest = epoch
        self.dirty = True

    def epoch_for(self, offset: int) -> int:
        """The epoch that wrote `offset`, -1 when it lies below the first known start."""
        at = bisect_right(self._starts, offset) - 1
        return self._epochs[at] if at >= 0 else UNDEFINED_EPOCH

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(epoch, end offset) as OffsetForLeaderEpoch answers it; (-1, -1) when unknown.

        -1 is unknown; the latest epoch ends at the log end; above all: unknown; below all: the requested epoch ends where
        the first known one starts; otherwise the largest epoch not above it, ending where its successor starts.
        """
        if epoch == UNDEFINED_EPOCH or epoch > self.latest:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self.latest:
            return epoch, log_end_offset
        above = bisect_right(self._epochs, epoch)
        return (epoch if above == 0 else self._epochs[above - 1]), self._starts[above]

    def truncate_from_end(self, end_offset: int) -> None:
        """Forget epochs that start at or above `end_offset`."""
        keep = bisect_left(self._starts, end_offset)
        if keep < len(self._starts):
            del self._epochs[keep:], self._starts[keep:]
            self.latest = self._epochs[-1] if self._epochs else UNDEFINED_EPOCH
            self.dirty = True

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget epochs that end at or below `start_offset`; the one that covers it starts there from now on."""
        covering = bisect_right(self._starts, start_offset) - 1
        if covering > 0 or (covering == 0 and self._starts[0] < start_offset):
            del self._epochs[:covering], self._starts[:covering]
            self._starts[0] = start_offset
            self.dirty = True

    def clear(self) -> None:
        self.dirty = self.dirty or bool(self._epochs)
        self._epochs.clear()
        self._starts.clear()
        self.latest = UNDEFINED_EPOCH
