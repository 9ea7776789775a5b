"""Write the parts of a leader's snapshot that this replica fetches (KIP-630)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.cluster.raft.messages import SnapshotPart
    from odradek.cluster.raft.ports import RaftStorage, SnapshotWriter


class SnapshotInstaller:
    """At most one incomplete snapshot."""

    def __init__(self, storage: RaftStorage) -> None:
        self._storage = storage
        self._writer: SnapshotWriter | None = None

    async def install(self, part: SnapshotPart) -> None:
        """Write `part`. The part at position 0 begins a snapshot. After the last one, the snapshot replaces the log."""
        if part.position == 0:
            self.abandon()
            self._writer = self._storage.begin_snapshot(part.snapshot)
        assert self._writer is not None
        self._writer.append(part.data)
        if part.last:
            writer = self._writer
            self._writer = None
            await writer.finish()
            await self._storage.restart_at(part.snapshot)

    def abandon(self) -> None:
        """Delete the incomplete snapshot, if there is one."""
        if self._writer is not None:
            self._writer.abandon()
            self._writer = None
