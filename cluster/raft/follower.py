"""Following and observing: fetches, truncation, snapshots, news about the leader. Functions over the raft core."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odradek.cluster.raft.election import Role
from odradek.cluster.raft.messages import (
    NOBODY,
    BeginQuorumEpochReply,
    BeginQuorumEpochRequest,
    EndQuorumEpochReply,
    EndQuorumEpochRequest,
    EpochEnd,
    FetchReply,
    FetchRequest,
    FetchSnapshotReply,
    FetchSnapshotRequest,
    SnapshotPart,
    Standing,
)
from odradek.cluster.raft.progress import successor_wait_ms
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.cluster.raft.core import RaftCore

SNAPSHOT_PART_BYTES_MAX: Final = 1024 * 1024
"""What a follower asks for at a time of a snapshot."""


class LostCommitted(Exception):
    """The leader lacks entries that this node knows to be committed: the promise of agreement is broken. The node stops."""


class DifferentVoters(Exception):
    """Nodes of one cluster are configured with different voters. The node stops."""


def refuse_stranger(core: RaftCore, leader_id: int) -> None:
    """Only a voter leads: whoever is said to lead and is none by the list of this node was elected by another list."""
    if leader_id not in {NOBODY, *core.voters}:
        raise DifferentVoters(
            f"node {leader_id} leads the metadata, but this node is told that {list(core.voters)} vote: set"
            " controller.quorum.voters to the same on every node"
        )


def fetch_if_due(core: RaftCore, now_ms: int) -> None:
    """Ask the leader for more; one fetch at a time, and never before what it acknowledges is durable."""
    if core.fetching is None and now_ms >= core.next_fetch_ms and core.log.stable_end == core.log.end_offset:
        core.note_committed(core.leader_high_watermark)
        if core.installing is None:
            _fetch_from(core, core.leader_id, now_ms)
        else:
            _fetch_snapshot(core, core.installing, now_ms)


def _fetch_from(core: RaftCore, node: int, now_ms: int) -> None:
    log = core.log
    core.fetching = FetchRequest(
        core.node_id, node, core.epoch, log.end_offset, log.last_epoch, core.high_watermark, core.new_request_id()
    )
    core.fetch_deadline_ms = now_ms + core.config.request_timeout_ms
    core.send(core.fetching)


def _fetch_snapshot(core: RaftCore, part: SnapshotPart, now_ms: int) -> None:
    position = part.position + len(part.data)
    core.fetching = FetchSnapshotRequest(
        core.node_id,
        core.leader_id,
        core.epoch,
        part.snapshot,
        position,
        SNAPSHOT_PART_BYTES_MAX,
        core.new_request_id(),
    )
    core.fetch_deadline_ms = now_ms + core.config.request_timeout_ms
    core.send(core.fetching)


def on_fetch_reply(core: RaftCore, reply: FetchReply, now_ms: int) -> None:
    if not _is_news(core, reply, now_ms):
        return
    if reply.diverging is not None:
        _keep_committed(core, reply.diverging, point := core.log.truncation_point(reply.diverging))
        core.log.truncate_to(point)
        if point == 0 and core.standing is Standing.NEW:
            core.standing = Standing.LOST  # the cluster has begun, and this voter must not begin another one
    elif reply.snapshot is not None:
        _keep_committed(core, reply.snapshot, reply.snapshot.end_offset)
        core.installing = SnapshotPart(reply.snapshot, 0, b"", last=False)
    else:
        assert reply.fetch_offset == core.log.end_offset
        for entry in reply.entries:
            core.log.append(entry)
        core.leader_high_watermark = reply.high_watermark
        core.high_watermark = max(core.high_watermark, min(reply.high_watermark, core.log.end_offset))
    fetch_if_due(core, now_ms)


def on_fetch_snapshot_reply(core: RaftCore, reply: FetchSnapshotReply, now_ms: int) -> None:
    asked = core.fetching
    if not _is_news(core, reply, now_ms):
        if reply.error in {ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE}:
            core.installing = None  # the leader has a newer one by now: its next answer to a fetch names it
        return
    assert isinstance(asked, FetchSnapshotRequest)
    end = reply.position + len(reply.data)
    if (reply.snapshot, reply.position) != (asked.snapshot, asked.position) or not reply.data or end > reply.size:
        core.next_fetch_ms = now_ms + core.config.retry_backoff_ms
        return
    core.installing = part = SnapshotPart(reply.snapshot, reply.position, reply.data, last=end == reply.size)
    core.snapshot_part = part
    if part.last:
        core.installing = None
        core.log.restart_at(part.snapshot)
        core.high_watermark = max(core.high_watermark, part.snapshot.end_offset)
    # The next part is asked for by `advance`, when this one is written.
    core.next_fetch_ms = now_ms


def _is_news(core: RaftCore, reply: FetchReply | FetchSnapshotReply, now_ms: int) -> bool:
    """Is it what this follower has asked its leader for? Whatever else it says is dealt with here."""
    asked = core.fetching
    if asked is None or reply.request_id != asked.request_id or reply.source != asked.target:
        return False  # an answer to a question that is not open any more
    core.fetching = None
    core.next_fetch_ms = now_ms
    if reply.error is not ErrorCode.NONE or reply.epoch != core.epoch:
        core.next_fetch_ms = now_ms + core.config.retry_backoff_ms
        core.follow_newer(reply.epoch, reply.leader_id, now_ms)
        return False
    if core.role is not Role.FOLLOWER:
        core.follow_newer(reply.epoch, reply.leader_id, now_ms)
        return False
    core.has_fetched = True
    core.hurried = False
    core.deadline_ms = now_ms + core.config.fetch_timeout_ms
    return True


def _keep_committed(core: RaftCore, leaders: EpochEnd, cut: int) -> None:
    """What is committed is in every leader's log: a leader that says otherwise must not be believed."""
    if cut < core.high_watermark:
        raise LostCommitted(
            f"node {core.leader_id}, leader of epoch {core.epoch}, has epoch {leaders.epoch} end at offset"
            f" {leaders.end_offset}, but everything below {core.high_watermark} is committed here: a majority of the"
            " voters has lost its data. This node keeps what it has"
        )


def suspect(core: RaftCore, now_ms: int) -> None:
    """The leader is said to be dead. A voter asks the others after a moment, which is random so that they do not split."""
    core.hurried = True
    wait_ms = core.rng.randrange(core.config.suspicion_delay_ms_max + 1) if core.is_voter else 0
    core.deadline_ms = min(core.deadline_ms, now_ms + wait_ms)


def on_begin_quorum_epoch(core: RaftCore, request: BeginQuorumEpochRequest, now_ms: int) -> None:
    error = ErrorCode.NONE
    if request.epoch < core.epoch:
        error = ErrorCode.FENCED_LEADER_EPOCH
    elif request.source not in core.voters or not _can_lead(core, request.source, request.epoch):
        error = ErrorCode.INVALID_REQUEST
    elif request.epoch > core.epoch or core.role is not Role.FOLLOWER:
        core.become_follower(request.epoch, request.source, now_ms)
    core.send(
        BeginQuorumEpochReply(
            core.node_id, request.source, core.epoch, core.announced_leader_id, error, request.request_id
        )
    )


def _can_lead(core: RaftCore, node: int, epoch: int) -> bool:
    """No epoch has two leaders."""
    return epoch > core.epoch or core.leader_id in {NOBODY, node}


def on_end_quorum_epoch(core: RaftCore, request: EndQuorumEpochRequest, now_ms: int) -> None:
    error = ErrorCode.NONE
    if request.epoch < core.epoch:
        error = ErrorCode.FENCED_LEADER_EPOCH
    elif request.source not in core.voters or not _can_lead(core, request.source, request.epoch):
        error = ErrorCode.INVALID_REQUEST
    else:
        core.follow_newer(request.epoch, request.source, now_ms)
        if core.role is Role.FOLLOWER and core.leader_id == request.source and core.is_voter:
            core.hurried = True
            core.deadline_ms = now_ms + _succession_wait_ms(core, request.preferred_successors)
    core.send(
        EndQuorumEpochReply(
            core.node_id, request.source, core.epoch, core.announced_leader_id, error, request.request_id
        )
    )


def _succession_wait_ms(core: RaftCore, order: tuple[int, ...]) -> int:
    if core.node_id not in order:
        return core.rng.randrange(core.config.election_backoff_max_ms)
    return successor_wait_ms(order.index(core.node_id), len(order), core.config.election_backoff_max_ms)


def next_deadline_ms(core: RaftCore) -> int | None:
    deadlines = []
    if core.fetching is not None:
        deadlines.append(core.fetch_deadline_ms)
    elif core.log.stable_end == core.log.end_offset:
        deadlines.append(core.next_fetch_ms)
    if core.role is Role.FOLLOWER:
        deadlines.append(core.deadline_ms)
    return min(deadlines, default=None)


def tick(core: RaftCore, now_ms: int) -> None:
    if now_ms >= core.deadline_ms:
        if core.is_voter:
            core.become_prospective(now_ms)
        else:
            core.become_unattached(core.epoch, now_ms)
        return
    if core.fetching is not None and now_ms >= core.fetch_deadline_ms:
        core.fetching = None
        core.next_fetch_ms = now_ms
    fetch_if_due(core, now_ms)


def tick_observer(core: RaftCore, now_ms: int) -> None:
    """Not a voter and no leader known: ask one voter after the other."""
    if core.fetching is not None and now_ms >= core.fetch_deadline_ms:
        core.fetching = None
        core.next_fetch_ms = now_ms
    if core.fetching is None and now_ms >= core.next_fetch_ms and core.voters:
        _fetch_from(core, core.voters[core.rng.randrange(len(core.voters))], now_ms)
