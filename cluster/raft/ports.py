"""What the raft driver needs from outside: a log, snapshots, a small file, and a way to the other nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from odradek.cluster.raft.messages import EpochEnd, HardState, Message
    from odradek.protocol.schema import Buffer


@dataclass(frozen=True, slots=True)
class SnapshotBytes:
    """A piece of a snapshot; `size` is that of the whole, in bytes. None to be had at that position: `data` is empty."""

    size: int
    data: bytes


class SnapshotWriter(Protocol):
    """A snapshot that comes into being. It is there for others when `finish` has returned, and not before."""

    def append(self, data: Buffer) -> None:
        """Write the next bytes. Raises OSError."""

    async def finish(self) -> None:
        """Durable and complete on return. Raises OSError."""

    def abandon(self) -> None:
        """Drop what has been written; nothing after `finish`."""


class RaftStorage(Protocol):
    """One replica's log of batches, its snapshots and its quorum-state. All errors are OSError; the driver gives up then."""

    async def open(self) -> bool:
        """Make log and snapshots fit each other after whatever has happened. Call it before everything else.

        True: nothing that was committed is missing, as far as can be known. False: something is, and has to come from the
        leader again; only where there are other voters to have it from, otherwise OSError.
        """

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read: 0, or the end of one of the snapshots."""

    @property
    def log_end_offset(self) -> int:
        """Behind the last batch that was written."""

    def epochs(self) -> Sequence[tuple[int, int]]:
        """(epoch, start offset) of every epoch in the log, ascending."""

    def load_hard_state(self) -> HardState | None:
        """What `save_hard_state` saved last; None when never. Raises BadQuorumState for a file that cannot be trusted."""

    async def save_hard_state(self, state: HardState) -> None:
        """Durable on return."""

    async def truncate_to(self, offset: int) -> None:
        """Cut the log so that it ends at `offset`. Not durable before `sync`; a crash may bring back what was cut."""

    def write(self, batches: Sequence[bytes]) -> None:
        """Append the batches, whose offsets and epochs stand in them. Not durable before `sync`."""

    async def sync(self) -> None:
        """Everything that was written before the call is durable on return."""

    async def read(self, offset: int, end: int, max_bytes: int) -> Buffer:
        """Whole batches from the one holding `offset` on, none of them behind `end`, at least one if there is any."""

    def set_high_watermark(self, offset: int) -> None:
        """Everything below is committed. Kept as a hint: by tools, and by `open` to notice what got lost."""

    def snapshots(self) -> Sequence[EpochEnd]:
        """Those that are complete, ascending."""

    def begin_snapshot(self, snapshot: EpochEnd) -> SnapshotWriter:
        """Write one, from this node's own state or from the leader's bytes. An unfinished one of that name is gone."""

    async def read_snapshot(self, snapshot: EpochEnd, position: int, max_bytes: int) -> SnapshotBytes | None:
        """None: there is no such snapshot (any more)."""

    async def restart_at(self, snapshot: EpochEnd) -> None:
        """A finished snapshot takes the place of the log, which is empty and begins at its end. Durable on return."""

    async def forget_before(self, snapshot: EpochEnd) -> None:
        """The log below the end of this snapshot, and snapshots older than it, are not needed any more."""


class RaftNetwork(Protocol):
    """The way to the other voters. Messages may be lost, doubled and reordered."""

    def send(self, message: Message) -> None:
        """Send `message` to node `message.target`."""


class NoNetwork:
    """For a quorum of one, which has nobody to talk to."""

    def send(self, message: Message) -> None:
        raise AssertionError(f"a quorum of one sends nothing: {message}")
