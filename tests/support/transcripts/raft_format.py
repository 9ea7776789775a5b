"""Text forms of Raft messages, entries and states in a golden transcript."""

from __future__ import annotations

from itertools import groupby

from odradek.cluster.raft.messages import (
    BeginQuorumEpochReply,
    BeginQuorumEpochRequest,
    EndQuorumEpochReply,
    EndQuorumEpochRequest,
    Entry,
    EpochEnd,
    FetchReply,
    FetchRequest,
    FetchSnapshotReply,
    FetchSnapshotRequest,
    LeaderChange,
    Message,
    Standing,
    VoteReply,
    VoteRequest,
)
from odradek.protocol.errors import ErrorCode


def snapshot_bytes(snapshot: EpochEnd) -> bytes:
    """Return fake snapshot content that names its snapshot and takes more than one part."""
    return f"state at {snapshot.end_offset} of epoch {snapshot.epoch}".encode()


def describe_snapshot(snapshot: EpochEnd) -> str:
    return f"snapshot ({snapshot.epoch},{snapshot.end_offset})"


def describe_standing(standing: Standing) -> str:
    return "" if standing is Standing.ORDINARY else f" {standing.value}"


def describe_snapshots(snapshots: list[EpochEnd]) -> str:
    return " ".join(f"({snapshot.epoch},{snapshot.end_offset})" for snapshot in snapshots)


def folded(lines: list[str]) -> list[str]:
    """The same line again and again is shown once, with a count."""
    return [
        line if count == 1 else f"{line} (x{count})" for line, count in ((k, len(list(g))) for k, g in groupby(lines))
    ]


def brings_nothing(message: Message) -> bool:
    if isinstance(message, FetchReply):
        news = message.entries or message.diverging or message.snapshot
        return not news and message.error is ErrorCode.NONE
    return isinstance(message, FetchRequest)


def describe_entry(entry: Entry) -> str:
    if isinstance(entry.data, LeaderChange):
        granting = ",".join(str(voter) for voter in entry.data.granting_voters)
        return f"{entry.base_offset}@{entry.epoch}:leader={entry.data.leader_id},votes={granting}"
    return f"{entry.base_offset}@{entry.epoch}:{entry.data.decode()}"


def describe(message: Message) -> str:
    text = f"{message.source}->{message.target} {SHORT[type(message)]} epoch={message.epoch}"
    if isinstance(message, VoteRequest):
        kind = "pre-vote" if message.pre_vote else "vote"
        return f"{text} {kind} log=({message.last_epoch},{message.last_offset})"
    if isinstance(message, VoteReply):
        kind = "pre-vote" if message.pre_vote else "vote"
        return f"{text} {kind} {'granted' if message.granted else 'refused'}{error(message.error)}"
    if isinstance(message, FetchRequest):
        return f"{text} from=({message.last_fetched_epoch},{message.fetch_offset})"
    if isinstance(message, FetchReply):
        if message.diverging is not None:
            return f"{text} diverging=({message.diverging.epoch},{message.diverging.end_offset})"
        if message.snapshot is not None:
            return f"{text} {describe_snapshot(message.snapshot)}"
        entries = " ".join(describe_entry(entry) for entry in message.entries)
        return f"{text} committed={message.high_watermark} [{entries}]{error(message.error)}"
    if isinstance(message, FetchSnapshotRequest):
        return f"{text} {describe_snapshot(message.snapshot)} from byte {message.position}"
    if isinstance(message, FetchSnapshotReply):
        end = message.position + len(message.data)
        return f"{text} bytes [{message.position},{end}) of {message.size}{error(message.error)}"
    if isinstance(message, EndQuorumEpochRequest):
        return f"{text} successors={','.join(str(voter) for voter in message.preferred_successors)}"
    if isinstance(message, BeginQuorumEpochReply | EndQuorumEpochReply):
        return text + error(message.error)
    return text


def error(code: ErrorCode) -> str:
    return "" if code is ErrorCode.NONE else f" {code.name}"


SHORT: dict[type[Message], str] = {
    VoteRequest: "Vote",
    VoteReply: "VoteReply",
    BeginQuorumEpochRequest: "BeginQuorumEpoch",
    BeginQuorumEpochReply: "BeginQuorumEpochReply",
    EndQuorumEpochRequest: "EndQuorumEpoch",
    EndQuorumEpochReply: "EndQuorumEpochReply",
    FetchRequest: "Fetch",
    FetchReply: "FetchReply",
    FetchSnapshotRequest: "FetchSnapshot",
    FetchSnapshotReply: "FetchSnapshotReply",
}
