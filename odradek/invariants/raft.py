"""Invariants of the Raft replica: epoch and vote, leader, log, commit, output."""

from __future__ import annotations

from typing import Final

from odradek.invariants.invariant import Cost, Invariant

# ---- epoch, vote and leader -----------------------------------------------------------------------------------------

RAFT_EPOCH: Final = Invariant(
    "raft-epoch",
    "Replica",
    "The epoch never decreases.",
    "Raft paper 5.1",
)
RAFT_EPOCH_RANGE: Final = Invariant(
    "raft-epoch-range",
    "Replica",
    "The epoch is at most 2^31-2. The wire and the log store it as int32.",
    "KIP-595",
)
RAFT_ONE_VOTE: Final = Invariant(
    "raft-one-vote",
    "Replica",
    "A replica votes for at most one node per epoch.",
    "Raft paper 5.2, KIP-595",
)
RAFT_ONE_LEADER: Final = Invariant(
    "raft-one-leader",
    "Replica",
    "A replica follows at most one leader per epoch.",
    "Raft paper 5.2 (Election Safety), KIP-595",
)
RAFT_VOTERS_CAMPAIGN: Final = Invariant(
    "raft-voters-campaign",
    "RaftCore",
    "Only a voter starts a pre-vote round or an election.",
    "KIP-595, KIP-996",
)
RAFT_ELECTED_LEADER: Final = Invariant(
    "raft-elected-leader",
    "RaftCore",
    "Only a candidate becomes leader. A replica does not follow itself.",
    "KIP-595",
)
RAFT_MESSAGE_TARGET: Final = Invariant(
    "raft-message-target",
    "RaftCore",
    "A replica receives only messages that are addressed to it.",
    "KIP-595",
)

# ---- log and commit -------------------------------------------------------------------------------------------------

RAFT_LOG_APPEND: Final = Invariant(
    "raft-log-append",
    "LogView",
    "An appended entry begins at the log end offset. Its epoch is not below the epoch of the last entry.",
    "Raft paper 5.3 (Log Matching)",
)
RAFT_LOG_TRUNCATION: Final = Invariant(
    "raft-log-truncation",
    "LogView",
    "A truncation ends between the log start offset and the log end offset.",
    "KIP-595",
)
RAFT_COMMITTED: Final = Invariant(
    "raft-committed",
    "Replica",
    "The high watermark is at most the log end offset.",
    "Raft paper 5.4",
)
RAFT_COMMIT_DURABLE: Final = Invariant(
    "raft-commit-durable",
    "LeaderState",
    "A leader commits an offset only if a majority of the voters has it durably, and only together with an entry of its"
    " own epoch.",
    "Raft paper 5.4.2",
    Cost.EXPENSIVE,
)
RAFT_SNAPSHOT_ORDER: Final = Invariant(
    "raft-snapshot-order",
    "LogView",
    "A snapshot ends above the previous one, and at or below the durable end of the log.",
    "KIP-630",
)
RAFT_SNAPSHOT_INSTALL: Final = Invariant(
    "raft-snapshot-install",
    "LogView",
    "A snapshot of the leader replaces the log only while no write or truncation is pending.",
    "KIP-630",
)
RAFT_FETCH_POSITION: Final = Invariant(
    "raft-fetch-position",
    "FollowerState",
    "The entries of a fetch response are appended at the offset of the request.",
    "KIP-595",
)

# ---- output ---------------------------------------------------------------------------------------------------------

RAFT_READY_ORDER: Final = Invariant(
    "raft-ready-order",
    "RaftCore",
    "The driver carries out each Ready before it takes the next one.",
    "etcd's raft (Ready, Advance)",
)
RAFT_SNAPSHOT_PART: Final = Invariant(
    "raft-snapshot-part",
    "Outbox",
    "At most one part of a snapshot waits to be written.",
    "KIP-630",
)
