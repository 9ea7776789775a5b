"""The log as the raft core sees it: where it begins and ends, which epoch begins where, what is not on stable storage yet."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from odradek.cluster.raft.messages import Entry, EpochEnd

if TYPE_CHECKING:
    from collections.abc import Iterable

SNAPSHOTS_KEPT: Final = 2
"""The older one is where the log begins: a follower that is not far behind needs no snapshot right after one was made."""


class LogView:
    """No bytes are held but those of entries that still have to be written.

    Invariant: start_offset <= stable_end <= end_offset; `unstable` are the entries from stable or taken end to end_offset.
    A log that does not begin at 0 begins where a snapshot ends, which stands for all that is before it.
    """

    def __init__(
        self,
        epochs: Iterable[tuple[int, int]] = (),
        *,
        start_offset: int = 0,
        end_offset: int = 0,
        snapshots: Iterable[EpochEnd] = (),
    ) -> None:
        """`epochs`: (epoch, start offset) ascending, as in the leader-epoch checkpoint; all of it is on stable storage.

        `snapshots`: ascending; one of them ends at `start_offset` unless that is 0.
        """
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.stable_end = end_offset
        self.unstable: list[Entry] = []
        self.snapshots = list(snapshots)
        self._start_epoch = max((s.epoch for s in self.snapshots if s.end_offset <= start_offset), default=0)
        self._epochs: list[int] = []
        self._starts: list[int] = []
        for epoch, start in epochs:
            self._epochs.append(epoch)
            self._starts.append(start)
        self._truncated_to: int | None = None

    @property
    def last_epoch(self) -> int:
        """Epoch of the last entry, 0 for an empty log."""
        return self._epochs[-1] if self._epochs else self._start_epoch

    def is_at_most(self, last_epoch: int, end_offset: int) -> bool:
        """Return whether a log with this last epoch and end is at least as up to date as this one (Raft paper 5.4.1)."""
        return (self.last_epoch, self.end_offset) <= (last_epoch, end_offset)

    @property
    def latest_snapshot(self) -> EpochEnd | None:
        return self.snapshots[-1] if self.snapshots else None

    def epoch_of(self, offset: int) -> int:
        """The epoch of the entry at `offset`, which lies in the log; that of the snapshot before it, 0 before everything."""
        position = bisect_right(self._starts, offset) - 1
        return self._epochs[position] if position >= 0 else self._start_epoch

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        """The largest epoch of the log that is not above `epoch`, and where it ends."""
        position = bisect_right(self._epochs, epoch)
        if position == 0 and epoch < self._start_epoch:
            return EpochEnd(0, self.start_offset)
        if position == 0:
            return EpochEnd(self._start_epoch, self._starts[0] if self._starts else self.end_offset)
        end = self._starts[position] if position < len(self._starts) else self.end_offset
        return EpochEnd(self._epochs[position - 1], end)

    def snapshot_for(self, fetch_offset: int, last_fetched_epoch: int) -> EpochEnd | None:
        """The snapshot that a log which ends with (`last_fetched_epoch`, `fetch_offset`) needs; None: it needs none (KIP-630)."""
        if self.start_offset == 0:
            return None
        before = fetch_offset < self.start_offset or last_fetched_epoch < self._start_epoch
        elsewhere = fetch_offset == self.start_offset and last_fetched_epoch != self._start_epoch
        return self.latest_snapshot if before or elsewhere else None

    def divergence(self, fetch_offset: int, last_fetched_epoch: int) -> EpochEnd | None:
        """None when a log that ends with (`last_fetched_epoch`, `fetch_offset`) is a prefix of this one.

        Otherwise the point from which the other log cannot be kept.
        """
        if fetch_offset == 0 and last_fetched_epoch == 0:
            return None
        end = self.end_offset_for_epoch(last_fetched_epoch)
        if end.epoch == last_fetched_epoch and fetch_offset <= end.end_offset:
            return None
        return end

    def truncation_point(self, diverging: EpochEnd) -> int:
        """Where this log has to be cut, given the leader's answer `diverging`."""
        mine = self.end_offset_for_epoch(diverging.epoch)
        if mine.epoch == diverging.epoch:
            return min(mine.end_offset, diverging.end_offset)
        return mine.end_offset

    def append(self, entry: Entry) -> None:
        assert entry.base_offset == self.end_offset, (entry.base_offset, self.end_offset)
        assert entry.epoch >= self.last_epoch, (entry.epoch, self.last_epoch)
        if entry.epoch > self.last_epoch:
            self._epochs.append(entry.epoch)
            self._starts.append(entry.base_offset)
        self.unstable.append(entry)
        self.end_offset = entry.last_offset + 1

    def truncate_to(self, offset: int) -> None:
        """Cut everything from `offset` on, written or not."""
        assert self.start_offset <= offset <= self.end_offset
        while self._starts and self._starts[-1] >= offset:
            self._starts.pop()
            self._epochs.pop()
        self.unstable = [entry for entry in self.unstable if entry.last_offset < offset]
        self.end_offset = offset
        self.stable_end = min(self.stable_end, offset)
        self._truncated_to = offset if self._truncated_to is None else min(offset, self._truncated_to)

    def restart_at(self, snapshot: EpochEnd) -> None:
        """A snapshot from the leader takes the place of everything; nothing is being written at that moment."""
        assert not self.unstable
        assert self.stable_end == self.end_offset
        assert self._truncated_to is None
        self.start_offset = self.end_offset = self.stable_end = snapshot.end_offset
        self._start_epoch = snapshot.epoch
        self._epochs, self._starts = [], []
        self.snapshots = [snapshot]

    def add_snapshot(self, snapshot: EpochEnd) -> None:
        """A snapshot of the committed state has been made; the log before the oldest one that is kept is not needed any more."""
        newest = self.latest_snapshot
        assert snapshot.end_offset <= self.stable_end
        assert newest is None or newest.end_offset < snapshot.end_offset
        self.snapshots = [*self.snapshots, snapshot][-SNAPSHOTS_KEPT:]
        if len(self.snapshots) == SNAPSHOTS_KEPT:
            self._begin_at(self.snapshots[0])

    def _begin_at(self, snapshot: EpochEnd) -> None:
        self.start_offset = snapshot.end_offset
        self._start_epoch = snapshot.epoch
        gone = bisect_right(self._starts, snapshot.end_offset) - 1
        if gone >= 0:
            del self._epochs[:gone], self._starts[:gone]
            self._starts[0] = snapshot.end_offset

    def take(self) -> tuple[int | None, tuple[Entry, ...]]:
        """(cut to, entries to write behind it): what storage has to do next."""
        taken = self._truncated_to, tuple(self.unstable)
        self._truncated_to = None
        self.unstable = []
        return taken

    def stable_to(self, end_offset: int) -> None:
        """What was taken is durable up to `end_offset`.

        1. entries 5..9 are taken and being written; 2. a new leader's answer cuts the log to 7 and appends its own 7..8;
        3. the write is done: only 5..6 of it are still part of this log, and 7..8 are not durable.
        """
        if self._truncated_to is not None:
            end_offset = min(end_offset, self._truncated_to)
        self.stable_end = max(self.stable_end, min(end_offset, self.end_offset))
