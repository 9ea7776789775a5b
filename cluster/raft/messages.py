"""Messages and output of the raft core.

Each request has the epoch of its sender, and a `request_id` that the reply repeats. A driver can therefore encode the
messages as Kafka's Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch and FetchSnapshot (KIP-595, KIP-630, KIP-996), and
match the responses.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, TypeAlias

from odradek.frozen import frozen_dataclass
from odradek.protocol.errors import ErrorCode

NO_NODE = -1
"""The node id for: no leader, or no vote."""


class Standing(Enum):
    """The reliability of a voter's memory of its votes and acknowledgments (docs/decisions/0040)."""

    ORDINARY = "ordinary"
    """Remembers all of them, or has since received all committed entries."""
    NEW = "new"
    """Started with an empty disk: the cluster is new, or the disk was replaced."""
    LOST = "lost"
    """Possibly lost votes or entries: its log is incomplete, or its disk was replaced in an existing cluster."""


@frozen_dataclass(frozen=True, slots=True)
class LeaderChange:
    """The first entry of each epoch (control record LEADER_CHANGE)."""

    leader_id: int
    voters: tuple[int, ...]
    granting_voters: tuple[int, ...]


@frozen_dataclass(frozen=True, slots=True)
class Entry:
    """One batch of the log, with the offsets `base_offset` to `last_offset`.

    The core does not decode `data`, its bytes.
    """

    base_offset: int
    last_offset: int
    epoch: int
    data: bytes | LeaderChange


@frozen_dataclass(frozen=True, slots=True)
class EpochEnd:
    """The end of an epoch in a log: the offset after its last entry. Also the id of a snapshot (KIP-630)."""

    epoch: int
    end_offset: int


@frozen_dataclass(frozen=True, slots=True)
class VoteRequest:
    """Request for a vote.

    `last_epoch` and `last_offset` are the end of the candidate's log. A pre-vote changes no epoch.
    """

    source: int
    target: int
    epoch: int
    last_epoch: int
    last_offset: int
    pre_vote: bool
    request_id: int = 0


@frozen_dataclass(frozen=True, slots=True)
class VoteReply:
    source: int
    target: int
    epoch: int
    leader_id: int
    granted: bool
    pre_vote: bool
    error: ErrorCode = ErrorCode.NONE
    request_id: int = 0
    standing: Standing = Standing.ORDINARY


@frozen_dataclass(frozen=True, slots=True)
class BeginQuorumEpochRequest:
    """Announcement of `source` as the leader of `epoch`."""

    source: int
    target: int
    epoch: int
    request_id: int = 0


@frozen_dataclass(frozen=True, slots=True)
class BeginQuorumEpochReply:
    source: int
    target: int
    epoch: int
    leader_id: int
    error: ErrorCode = ErrorCode.NONE
    request_id: int = 0


@frozen_dataclass(frozen=True, slots=True)
class EndQuorumEpochRequest:
    """Announcement that `source` no longer leads `epoch`. The first successor has the longest log."""

    source: int
    target: int
    epoch: int
    preferred_successors: tuple[int, ...]
    request_id: int = 0


@frozen_dataclass(frozen=True, slots=True)
class EndQuorumEpochReply:
    source: int
    target: int
    epoch: int
    leader_id: int
    error: ErrorCode = ErrorCode.NONE
    request_id: int = 0


@frozen_dataclass(frozen=True, slots=True)
class FetchRequest:
    """Request for entries. It acknowledges all entries below `fetch_offset`."""

    source: int
    target: int
    epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    high_watermark: int
    request_id: int = 0


@frozen_dataclass(frozen=True, slots=True)
class FetchReply:
    """The reply to a FetchRequest.

    The sender's driver attaches entries of [fetch_offset, read_end). Instead of entries, a reply has one of:
    `diverging`: the follower's log does not match the leader's and must be truncated to this point.
    `snapshot`: the entries are before the leader's log; the follower must fetch this snapshot (KIP-630).
    """

    source: int
    target: int
    epoch: int
    leader_id: int
    fetch_offset: int
    high_watermark: int = -1
    read_end: int = 0
    entries: tuple[Entry, ...] = ()
    diverging: EpochEnd | None = None
    snapshot: EpochEnd | None = None
    error: ErrorCode = ErrorCode.NONE
    request_id: int = 0


@frozen_dataclass(frozen=True, slots=True)
class FetchSnapshotRequest:
    """Request for at most `max_bytes` of `snapshot`, from `position` on."""

    source: int
    target: int
    epoch: int
    snapshot: EpochEnd
    position: int
    max_bytes: int
    request_id: int = 0


@frozen_dataclass(frozen=True, slots=True)
class FetchSnapshotReply:
    """The reply to a FetchSnapshotRequest.

    The sender's driver attaches `data` and the `size` of the whole snapshot in bytes.
    """

    source: int
    target: int
    epoch: int
    leader_id: int
    snapshot: EpochEnd
    position: int
    max_bytes: int = 0
    size: int = 0
    data: bytes = b""
    error: ErrorCode = ErrorCode.NONE
    request_id: int = 0


Message: TypeAlias = (
    VoteRequest
    | VoteReply
    | BeginQuorumEpochRequest
    | BeginQuorumEpochReply
    | EndQuorumEpochRequest
    | EndQuorumEpochReply
    | FetchRequest
    | FetchReply
    | FetchSnapshotRequest
    | FetchSnapshotReply
)
REPLIES: Final = (VoteReply, BeginQuorumEpochReply, EndQuorumEpochReply, FetchReply, FetchSnapshotReply)


@frozen_dataclass(frozen=True, slots=True)
class HardState:
    """The state that must survive a restart (`quorum-state`). A node votes once in an epoch and leads an epoch once."""

    epoch: int = 0
    leader_id: int = NO_NODE
    voted_id: int = NO_NODE
    standing: Standing = Standing.ORDINARY


@frozen_dataclass(frozen=True, slots=True)
class SnapshotPart:
    """Bytes of a snapshot from the leader. The part at position 0 starts it again; the `last` part completes it."""

    snapshot: EpochEnd
    position: int
    data: bytes
    last: bool


@frozen_dataclass(frozen=True, slots=True)
class Leadership:
    """The leader of an epoch, as this node knows it."""

    epoch: int
    leader_id: int
    is_leader: bool


@frozen_dataclass(frozen=True, slots=True)
class Ready:
    """The steps that the driver must carry out, in this order, before it calls `advance`:

    1. Make `hard_state` durable, if it is set.
    2. Write `snapshot_part`, if it is set. After the last part, make the snapshot durable and replace the log by it:
       the log is then empty and begins at the snapshot's end.
    3. Truncate the log to `truncate_to`, if it is set, and append `entries`.
    4. Send `early_messages`. Fetch responses of a leader do not wait for its own disk: the leader counts its own log
       towards a majority only after `advance`.
    5. Make the log durable.
    6. Send `messages`: votes, and fetches, which acknowledge the written entries.

    `leadership` and `high_watermark` are for the driver's listeners, at any time. None: unchanged.
    """

    hard_state: HardState | None
    truncate_to: int | None
    entries: tuple[Entry, ...]
    early_messages: tuple[Message, ...]
    messages: tuple[Message, ...]
    leadership: Leadership | None
    high_watermark: int | None
    log_end_offset: int
    snapshot_part: SnapshotPart | None = None

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to do."""
        news = (self.hard_state, self.truncate_to, self.leadership, self.high_watermark, self.snapshot_part)
        return not (self.entries or self.early_messages or self.messages) and all(item is None for item in news)

    @property
    def must_sync(self) -> bool:
        return bool(self.entries) or self.truncate_to is not None
