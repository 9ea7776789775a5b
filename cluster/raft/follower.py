"""Following and observing: fetches, truncation, news about the leader. Functions over the raft core."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.raft.election import Role
from cluster.raft.messages import (
    NOBODY,
    BeginQuorumEpochReply,
    BeginQuorumEpochRequest,
    EndQuorumEpochReply,
    EndQuorumEpochRequest,
    FetchReply,
    FetchRequest,
)
from cluster.raft.progress import successor_wait_ms
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from cluster.raft.core import RaftCore


def fetch_if_due(core: RaftCore, now_ms: int) -> None:
    """Ask the leader for more; one fetch at a time, and never before what it acknowledges is durable."""
    if core.fetching is None and now_ms >= core.next_fetch_ms and core.log.stable_end == core.log.end_offset:
        _fetch_from(core, core.leader_id, now_ms)


def _fetch_from(core: RaftCore, node: int, now_ms: int) -> None:
    log = core.log
    core.fetching = FetchRequest(
        core.node_id, node, core.epoch, log.end_offset, log.last_epoch, core.high_watermark, core.new_request_id()
    )
    core.fetch_deadline_ms = now_ms + core.config.request_timeout_ms
    core.send(core.fetching)


def on_fetch_reply(core: RaftCore, reply: FetchReply, now_ms: int) -> None:
    asked = core.fetching
    if asked is None or reply.request_id != asked.request_id or reply.source != asked.target:
        return  # an answer to a question that is not open any more
    core.fetching = None
    core.next_fetch_ms = now_ms
    if reply.error is not ErrorCode.NONE or reply.epoch != core.epoch:
        core.next_fetch_ms = now_ms + core.config.retry_backoff_ms
        core.follow_newer(reply.epoch, reply.leader_id, now_ms)
        return
    if core.role is not Role.FOLLOWER:
        core.follow_newer(reply.epoch, reply.leader_id, now_ms)
        return
    core.has_fetched = True
    core.deadline_ms = now_ms + core.config.fetch_timeout_ms
    if reply.diverging is not None:
        point = core.log.truncation_point(reply.diverging)
        # What is committed is in every leader's log: a leader that says otherwise must not be believed.
        assert point >= core.high_watermark, (point, core.high_watermark)
        core.log.truncate_to(point)
    else:
        assert reply.fetch_offset == core.log.end_offset
        for entry in reply.entries:
            core.log.append(entry)
        core.high_watermark = max(core.high_watermark, min(reply.high_watermark, core.log.end_offset))
    fetch_if_due(core, now_ms)


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
    if core.is_voter or core.role is Role.FOLLOWER:
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
