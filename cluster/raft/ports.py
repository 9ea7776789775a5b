"""What the raft driver needs from outside: a log, a small file, and a way to the other nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cluster.raft.messages import HardState, Message
    from protocol.schema import Buffer


class RaftStorage(Protocol):
    """One replica's log of batches and its quorum-state. All errors are OSError, after which the driver gives up."""

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read."""

    @property
    def log_end_offset(self) -> int:
        """Behind the last batch that was written."""

    def epochs(self) -> Sequence[tuple[int, int]]:
        """(epoch, start offset) of every epoch in the log, ascending."""

    def load_hard_state(self) -> HardState | None:
        """What `save_hard_state` saved last; None when never. Raises BadQuorumState for a file that cannot be trusted."""

    async def save_hard_state(self, state: HardState) -> None:
        """Durable on return."""

    def write(self, truncate_to: int | None, batches: Sequence[bytes]) -> None:
        """Cut the log to `truncate_to` if given, then append the batches, whose offsets and epochs stand in them.

        Not durable before `sync`.
        """

    async def sync(self) -> None:
        """Everything that was written before the call is durable on return."""

    async def read(self, offset: int, end: int, max_bytes: int) -> Buffer:
        """Whole batches from the one holding `offset` on, none of them behind `end`, at least one if there is any."""

    def set_high_watermark(self, offset: int) -> None:
        """Everything below is committed. A hint, kept for tools; agreement does not depend on it."""


class RaftNetwork(Protocol):
    """The way to the other voters. Messages may be lost, doubled and reordered."""

    def send(self, message: Message) -> None:
        """Send `message` to node `message.target`."""


class NoNetwork:
    """For a quorum of one, which has nobody to talk to."""

    def send(self, message: Message) -> None:
        raise AssertionError(f"a quorum of one sends nothing: {message}")
