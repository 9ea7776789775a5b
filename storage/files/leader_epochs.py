"""Map leader epochs to their start offsets (KIP-101, Kafka's `LeaderEpochFileCache`). This module is pure.

Epochs and start offsets are both strictly increasing.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from odradek.invariants.storage import LEADER_EPOCH_ORDER

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class LeaderEpochs:
    """Content of `leader-epoch-checkpoint`."""

    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.latest = UNDEFINED_EPOCH
        """Largest epoch; UNDEFINED_EPOCH if there is none."""
        self.changed_from: int | None = None
        """Lowest start offset of the entries that differ from the file; None if there is none.

        Each change lowers it. The code that writes the file sets it to None.
        """
        for epoch, start in entries or []:
            self.assign(epoch, start)
        self.changed_from = None

    @property
    def dirty(self) -> bool:
        """True if the file lacks a change."""
        return self.changed_from is not None

    def note_changed(self, start_offset: int) -> None:
        """Note that entries from `start_offset` on differ from the file."""
        self.changed_from = start_offset if self.changed_from is None else min(self.changed_from, start_offset)

    def entries(self) -> list[tuple[int, int]]:
        """Return (epoch, start offset) in ascending order."""
        return list(zip(self._epochs, self._starts, strict=True))

    def is_one_epoch(self, start_offset: int, end_offset: int) -> bool:
        """Return True if all records from `start_offset` to `end_offset` (exclusive) have one epoch, and none is older.

        An epoch that starts at `end_offset` has no record, and does not count.
        """
        starts = self._starts
        return bool(starts) and starts[0] == start_offset < end_offset and (len(starts) == 1 or starts[1] >= end_offset)

    def assign(self, epoch: int, start_offset: int) -> None:
        """Add an epoch that begins at `start_offset`.

        The newest entry takes precedence: entries with a greater or equal epoch or start offset are removed. They
        belong to a truncated part of the log, or were derived from a damaged batch.
        """
        if epoch < 0 or start_offset < 0:
            return
        if self._epochs and epoch == self._epochs[-1] and start_offset >= self._starts[-1]:
            return
        keep = min(bisect_left(self._epochs, epoch), bisect_left(self._starts, start_offset))
        self.note_changed(min([start_offset, *self._starts[keep : keep + 1]]))
        del self._epochs[keep:], self._starts[keep:]
        if self._epochs and not (epoch > self._epochs[-1] and start_offset > self._starts[-1]):
            raise LEADER_EPOCH_ORDER.violated(epoch=epoch, start_offset=start_offset, entries=self.entries()[-5:])
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self.latest = epoch

    def epoch_for(self, offset: int) -> int:
        """Return the epoch of `offset`; UNDEFINED_EPOCH if it is below the first start offset."""
        at = bisect_right(self._starts, offset) - 1
        return self._epochs[at] if at >= 0 else UNDEFINED_EPOCH

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return (epoch, end offset) for OffsetForLeaderEpoch.

        - Epoch -1, or above the latest epoch: (-1, -1), not known.
        - The latest epoch: it ends at the log end.
        - Below the first epoch: the requested epoch and the start offset of the first epoch.
        - Otherwise: the largest epoch that is not above the requested one, and the start offset of its successor.
        """
        if epoch == UNDEFINED_EPOCH or epoch > self.latest:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self.latest:
            return epoch, log_end_offset
        above = bisect_right(self._epochs, epoch)
        return (epoch if above == 0 else self._epochs[above - 1]), self._starts[above]

    def truncate_from_end(self, end_offset: int) -> None:
        """Remove epochs that start at or above `end_offset`."""
        keep = bisect_left(self._starts, end_offset)
        if keep < len(self._starts):
            self.note_changed(self._starts[keep])
            del self._epochs[keep:], self._starts[keep:]
            self.latest = self._epochs[-1] if self._epochs else UNDEFINED_EPOCH

    def truncate_from_start(self, start_offset: int) -> None:
        """Remove epochs that end at or below `start_offset`, and move the start of the epoch that covers it there."""
        covering = bisect_right(self._starts, start_offset) - 1
        if covering > 0 or (covering == 0 and self._starts[0] < start_offset):
            del self._epochs[:covering], self._starts[:covering]
            self._starts[0] = start_offset
            if len(self._starts) > 1 and self._starts[1] <= start_offset:
                raise LEADER_EPOCH_ORDER.violated(start_offset=start_offset, entries=self.entries()[:5])
            self.note_changed(0)

    def clear(self) -> None:
        """Remove all epochs."""
        if self._epochs:
            self.note_changed(0)
        self._epochs.clear()
        self._starts.clear()
        self.latest = UNDEFINED_EPOCH
