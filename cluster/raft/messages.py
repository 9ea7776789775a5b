"""What the raft core receives, sends and hands over. Values only.

Every request carries the epoch of its sender and a `request_id` that the core echoes, so that a driver can put core messages
on the wire as Kafka's Vote, BeginQuorumEpoch, EndQuorumEpoch and Fetch (KIP-595, KIP-996) and match the answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from odradek.protocol.errors import ErrorCode

NOBODY = -1
"""No leader, or no vote."""


class Standing(Enum):
    """Does a voter remember everything that it has ever promised? (docs/decisions/0040)

    NEW: it has started with nothing, be it that the cluster begins or that its disk was replaced. LOST: it has had
    something, or knows that the cluster has begun, and may have forgotten votes and entries that others count on. ORDINARY:
    it has had everything that was committed since, so there is nothing left that it could have forgotten.
    """

    ORDINARY = "ordinary"
    NEW = "new"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class LeaderChange:
    """The first entry of every leader's epoch (control record type 2)."""

    leader_id: int
    voters: tuple[int, ...]
    granting_voters: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """One batch of the log: offsets `base_offset`..`last_offset`. The core never looks into `data`, the bytes of the batch."""

    base_offset: int
    last_offset: int
    epoch: int
    data: bytes | LeaderChange


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """`epoch` ends before `end_offset`."""

    epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class VoteRequest:
    """`last_epoch` and `last_offset` (the log end) say how up to date the asker's log is. A pre-vote changes no epoch."""

    source: int
    target: int
    epoch: int
    last_epoch: int
    last_offset: int
    pre_vote: bool
    request_id: int = 0


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class BeginQuorumEpochRequest:
    """`source` leads `epoch`."""

    source: int
    target: int
    epoch: int
    request_id: int = 0


@dataclass(frozen=True, slots=True)
class BeginQuorumEpochReply:
    source: int
    target: int
    epoch: int
    leader_id: int
    error: ErrorCode = ErrorCode.NONE
    request_id: int = 0


@dataclass(frozen=True, slots=True)
class EndQuorumEpochRequest:
    """`source` no longer leads `epoch`; the successors are in order of how much of its log they have."""

    source: int
    target: int
    epoch: int
    preferred_successors: tuple[int, ...]
    request_id: int = 0


@dataclass(frozen=True, slots=True)
class EndQuorumEpochReply:
    source: int
    target: int
    epoch: int
    leader_id: int
    error: ErrorCode = ErrorCode.NONE
    request_id: int = 0


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """Replication, and at the same time the acknowledgement of everything below `fetch_offset`."""

    source: int
    target: int
    epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    high_watermark: int
    request_id: int = 0


@dataclass(frozen=True, slots=True)
class FetchReply:
    """`read_end`: the sender's driver reads the entries of [fetch_offset, read_end) and attaches as many as it likes.

    Instead of entries: `diverging`, the asker's log does not continue the leader's, it must truncate to there; `snapshot`,
    what it asks for lies before the leader's log and is to be had as this snapshot only (KIP-630).
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


@dataclass(frozen=True, slots=True)
class FetchSnapshotRequest:
    """The bytes of `snapshot` from `position` on, as many as fit `max_bytes`."""

    source: int
    target: int
    epoch: int
    snapshot: EpochEnd
    position: int
    max_bytes: int
    request_id: int = 0


@dataclass(frozen=True, slots=True)
class FetchSnapshotReply:
    """The sender's driver attaches `size` (of the whole snapshot, in bytes) and `data`, or POSITION_OUT_OF_RANGE."""

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


@dataclass(frozen=True, slots=True)
class HardState:
    """What must survive a restart (`quorum-state`): nobody votes twice in an epoch, nobody leads an epoch twice."""

    epoch: int = 0
    leader_id: int = NOBODY
    voted_id: int = NOBODY
    standing: Standing = Standing.ORDINARY


@dataclass(frozen=True, slots=True)
class SnapshotPart:
    """A piece of a snapshot that comes from the leader; the one at position 0 begins it anew, the `last` one completes it."""

    snapshot: EpochEnd
    position: int
    data: bytes
    last: bool


@dataclass(frozen=True, slots=True)
class Leadership:
    """Who leads, as this node knows it."""

    epoch: int
    leader_id: int
    is_leader: bool


@dataclass(frozen=True, slots=True)
class Ready:
    """What the driver has to do, in this order, before it calls `advance`:

    1. make `hard_state` durable, if there is one;
    2. write `snapshot_part`, if there is one; with the last one the snapshot is made durable and takes the place of the log,
       which is empty after it and begins at the snapshot's end;
    3. cut the log to `truncate_to`, if given, and write `entries` behind it;
    4. send `early_messages`: a leader's answers to fetches need not wait for its own disk, for it counts its own copy
       towards a majority only after `advance`;
    5. make the log durable;
    6. send `messages`: votes, and fetches, which acknowledge what was written.

    `leadership` and `high_watermark` are news for the driver's listeners, to be told at any time; None: unchanged.
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
