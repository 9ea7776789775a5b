"""The log as the raft core sees it: its start and end, the epochs, the snapshots, and the entries not yet written."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from odradek.cluster.raft.messages import Entry, EpochEnd
from odradek.invariants.raft import (
    RAFT_LOG_APPEND,
    RAFT_LOG_TRUNCATION,
    RAFT_SNAPSHOT_INSTALL,
    RAFT_SNAPSHOT_ORDER,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

SNAPSHOTS_KEPT: Final = 2
"""Snapshots kept. The log begins at the end of the older one, so that a follower that lags little needs no snapshot."""


class LogView:
    """Offsets, epochs and snapshots of the log. It has the bytes only of entries that are not written yet (`unstable`).

    Invariant: start_offset <= stable_end <= end_offset. A log that does not begin at offset 0 begins at the end of a
    snapshot, which replaces the entries before it.
    """

    def __init__(
        self,
        epochs: Iterable[tuple[int, int]] = (),
        *,
        start_offset: int = 0,
        end_offset: int = 0,
        snapshots: Iterable[EpochEnd] = (),
    ) -> None:
        """Describe a log on disk, all of which is durable.

        `epochs`: (epoch, start offset), ascending, as in the leader-epoch checkpoint. `snapshots`: ascending; one of
        them ends at `start_offset`, unless that is 0.
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
        """Epoch of the last entry. 0: the log is empty."""
        return self._epochs[-1] if self._epochs else self._start_epoch

    def is_at_most(self, last_epoch: int, end_offset: int) -> bool:
        """Return True if this log is at most as up to date as one with this last epoch and end (Raft paper 5.4.1)."""
        return (self.last_epoch, self.end_offset) <= (last_epoch, end_offset)

    @property
    def latest_snapshot(self) -> EpochEnd | None:
        return self.snapshots[-1] if self.snapshots else None

    def epoch_of(self, offset: int) -> int:
        """Return the epoch of the entry at `offset`. Before the log: the epoch of the snapshot there, or 0."""
        position = bisect_right(self._starts, offset) - 1
        return self._epochs[position] if position >= 0 else self._start_epoch

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        """Return the largest epoch of the log that is not above `epoch`, and its end offset."""
        position = bisect_right(self._epochs, epoch)
        if position == 0 and epoch < self._start_epoch:
            return EpochEnd(0, self.start_offset)
        if position == 0:
            return EpochEnd(self._start_epoch, self._starts[0] if self._starts else self.end_offset)
        end = self._starts[position] if position < len(self._starts) else self.end_offset
        return EpochEnd(self._epochs[position - 1], end)

    def snapshot_for(self, fetch_offset: int, last_fetched_epoch: int) -> EpochEnd | None:
        """Return the snapshot that a replica with this log end needs (KIP-630). None: it can fetch from the log."""
        if self.start_offset == 0:
            return None
        before = fetch_offset < self.start_offset or last_fetched_epoch < self._start_epoch
        elsewhere = fetch_offset == self.start_offset and last_fetched_epoch != self._start_epoch
        return self.latest_snapshot if before or elsewhere else None

    def divergence(self, fetch_offset: int, last_fetched_epoch: int) -> EpochEnd | None:
        """Return the epoch and end offset to which a replica with this log end must truncate.

        None: its log, which ends with (`last_fetched_epoch`, `fetch_offset`), is a prefix of this one.
        """
        if fetch_offset == 0 and last_fetched_epoch == 0:
            return None
        end = self.end_offset_for_epoch(last_fetched_epoch)
        if end.epoch == last_fetched_epoch and fetch_offset <= end.end_offset:
            return None
        return end

    def truncation_point(self, diverging: EpochEnd) -> int:
        """Return the offset to truncate this log to, after the leader's response `diverging`."""
        mine = self.end_offset_for_epoch(diverging.epoch)
        if mine.epoch == diverging.epoch:
            return min(mine.end_offset, diverging.end_offset)
        return mine.end_offset

    def append(self, entry: Entry) -> None:
        if entry.base_offset != self.end_offset or entry.epoch < self.last_epoch:
            raise RAFT_LOG_APPEND.violated(
                base_offset=entry.base_offset, end_offset=self.end_offset, epoch=entry.epoch, last_epoch=self.last_epoch
            )
        if entry.epoch > self.last_epoch:
            self._epochs.append(entry.epoch)
            self._starts.append(entry.base_offset)
        self.unstable.append(entry)
        self.end_offset = entry.last_offset + 1

    def truncate_to(self, offset: int) -> None:
        """Remove all entries from `offset` on, written or not."""
        if not self.start_offset <= offset <= self.end_offset:
            raise RAFT_LOG_TRUNCATION.violated(
                offset=offset, start_offset=self.start_offset, end_offset=self.end_offset
            )
        while self._starts and self._starts[-1] >= offset:
            self._starts.pop()
            self._epochs.pop()
        self.unstable = [entry for entry in self.unstable if entry.last_offset < offset]
        self.end_offset = offset
        self.stable_end = min(self.stable_end, offset)
        self._truncated_to = offset if self._truncated_to is None else min(offset, self._truncated_to)

    def restart_at(self, snapshot: EpochEnd) -> None:
        """Replace the whole log by a snapshot from the leader. No write is pending then."""
        if self.unstable or self.stable_end != self.end_offset or self._truncated_to is not None:
            raise RAFT_SNAPSHOT_INSTALL.violated(
                snapshot=snapshot,
                stable_end=self.stable_end,
                end_offset=self.end_offset,
                unstable=len(self.unstable),
                truncated_to=self._truncated_to,
            )
        self.start_offset = self.end_offset = self.stable_end = snapshot.end_offset
        self._start_epoch = snapshot.epoch
        self._epochs = []
        self._starts = []
        self.snapshots = [snapshot]

    def add_snapshot(self, snapshot: EpochEnd) -> None:
        """Register a snapshot of this node. The log begins at the end of the oldest snapshot that is kept."""
        newest = self.latest_snapshot
        if snapshot.end_offset > self.stable_end or (newest and newest.end_offset >= snapshot.end_offset):
            raise RAFT_SNAPSHOT_ORDER.violated(snapshot=snapshot, newest=newest, stable_end=self.stable_end)
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
        """Return (offset to truncate to, entries to append) for the storage."""
        taken = self._truncated_to, tuple(self.unstable)
        self._truncated_to = None
        self.unstable = []
        return taken

    def stable_to(self, end_offset: int) -> None:
        """Note that the taken entries are durable up to `end_offset`.

        The log may have been truncated during the write:
        1. Entries 5 to 9 are taken, and their write starts.
        2. A response of a new leader truncates the log to 7 and appends its own entries 7 and 8.
        3. The write is complete. Only 5 and 6 of it belong to the log; 7 and 8 are not durable yet.
        """
        if self._truncated_to is not None:
            end_offset = min(end_offset, self._truncated_to)
        self.stable_end = max(self.stable_end, min(end_offset, self.end_offset))
