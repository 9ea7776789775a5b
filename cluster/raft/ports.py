"""The ports of the raft driver: storage of the log, snapshots and quorum state, and the network to the other nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from odradek.frozen import frozen_dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from odradek.cluster.raft.messages import EpochEnd, HardState, Message
    from odradek.protocol.schema import Buffer


@frozen_dataclass(frozen=True, slots=True)
class SnapshotBytes:
    """Bytes of a snapshot.

    `size` is the size of the whole snapshot. `data` is empty if the position is out of range.
    """

    size: int
    data: bytes


class SnapshotWriter(Protocol):
    """Writer of one snapshot. The snapshot exists when `finish` has returned."""

    def append(self, data: Buffer) -> None:
        """Write the next bytes. Raise OSError."""

    async def finish(self) -> None:
        """Complete the snapshot. It is durable on return. Raise OSError."""

    def abandon(self) -> None:
        """Delete the incomplete snapshot. No effect after `finish`."""


class RaftStorage(Protocol):
    """One replica's log of batches, its snapshots and its quorum-state.

    All errors are OSError; the driver ends then.
    """

    async def open(self) -> bool:
        """Recover log and snapshots to a consistent state. Call it before any other method.

        Return False if committed entries are missing; the leader has to send them again. Raise OSError in that case if
        there are no other voters.
        """

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read: 0, or the end offset of one of the snapshots."""

    @property
    def log_end_offset(self) -> int:
        """The offset after the last written batch."""

    def epochs(self) -> Sequence[tuple[int, int]]:
        """Return (epoch, start offset) of each epoch in the log, ascending."""

    def load_hard_state(self) -> HardState | None:
        """Return the stored hard state, or None if there is none. Raise BadQuorumState if the file is invalid."""

    async def save_hard_state(self, state: HardState) -> None:
        """Store the hard state. It is durable on return."""

    async def truncate_to(self, offset: int) -> None:
        """Truncate the log to `offset`. Not durable before `sync`: a crash may restore the truncated batches."""

    async def write(self, batches: Sequence[bytes]) -> None:
        """Append batches, which contain their offsets and epochs. Not durable before `sync`."""

    async def sync(self) -> None:
        """Make all batches durable that were written before the call."""

    async def read(self, offset: int, end: int, max_bytes: int) -> Buffer:
        """Return complete batches from the one with `offset` on, up to `end`; at least one if there is any."""

    def set_high_watermark(self, offset: int) -> None:
        """Store the high watermark as a hint for tools, and for `open`, which detects missing committed entries."""

    def snapshots(self) -> Sequence[EpochEnd]:
        """Return the complete snapshots, ascending."""

    def begin_snapshot(self, snapshot: EpochEnd) -> SnapshotWriter:
        """Return a writer of a new snapshot. An incomplete one with the same name is deleted."""

    async def read_snapshot(self, snapshot: EpochEnd, position: int, max_bytes: int) -> SnapshotBytes | None:
        """Return bytes from `position` on. None: the snapshot does not exist (any more)."""

    async def restart_at(self, snapshot: EpochEnd) -> None:
        """Replace the log by a finished snapshot: it is empty and begins at the snapshot's end. Durable on return."""

    async def forget_before(self, snapshot: EpochEnd) -> None:
        """Delete the log below the end of this snapshot, and all earlier snapshots. Deletion may be deferred."""


class RaftNetwork(Protocol):
    """The network to the other nodes. Messages may be lost, duplicated and reordered."""

    def send(self, message: Message) -> None:
        """Send `message` to node `message.target`."""
