"""Messages and snapshot parts that the Raft core passes to its driver with the next `Ready`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.invariants.raft import RAFT_SNAPSHOT_PART

if TYPE_CHECKING:
    from odradek.cluster.raft.messages import Message, SnapshotPart


class Outbox:
    """Messages to send, and the snapshot part to write, since the last `Ready`."""

    def __init__(self, last_request_id: int) -> None:
        """`last_request_id` is random: a response to an earlier incarnation must not match a request of this one."""
        self._request_id = last_request_id
        self._early: list[Message] = []
        self._messages: list[Message] = []
        self._snapshot_part: SnapshotPart | None = None

    def new_request_id(self) -> int:
        self._request_id += 1
        return self._request_id

    def send(self, message: Message) -> None:
        """Send `message` when all appended entries and the vote are durable."""
        self._messages.append(message)

    def send_early(self, message: Message) -> None:
        """Send `message` when all appended entries are written. For messages that acknowledge nothing."""
        self._early.append(message)

    def write(self, part: SnapshotPart) -> None:
        """Write `part` of the leader's snapshot."""
        if self._snapshot_part is not None:
            raise RAFT_SNAPSHOT_PART.violated(waiting=self._snapshot_part.snapshot, added=part.snapshot)
        self._snapshot_part = part

    def take(self) -> tuple[tuple[Message, ...], tuple[Message, ...], SnapshotPart | None]:
        """Return and forget (early messages, messages, snapshot part)."""
        taken = tuple(self._early), tuple(self._messages), self._snapshot_part
        self._early, self._messages, self._snapshot_part = [], [], None
        return taken
