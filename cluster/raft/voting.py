"""Elections: the roles Unattached, Prospective, Candidate and Resigned. Functions over the raft core."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.cluster.raft import follower
from odradek.cluster.raft.election import Election, Role, may_grant
from odradek.cluster.raft.messages import (
    NOBODY,
    EndQuorumEpochReply,
    EndQuorumEpochRequest,
    Standing,
    VoteReply,
    VoteRequest,
)
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.cluster.raft.core import RaftCore


def open_round(core: RaftCore, now_ms: int, *, pre_vote: bool) -> None:
    """Vote for oneself and ask the others; a quorum of one has won with that."""
    counted = Standing.LOST if core.standing is Standing.NEW and core.log.end_offset > 0 else core.standing
    core.election = Election(core.voters, counted, granted={core.node_id: core.standing})
    core.deadline_ms = now_ms + core.election_wait_ms()
    core.rounds += pre_vote
    if not _conclude(core, now_ms):
        _ask_for_votes(core, now_ms, pre_vote=pre_vote)


def _ask_for_votes(core: RaftCore, now_ms: int, *, pre_vote: bool) -> None:
    assert core.election is not None
    for voter in core.election.unanswered():
        sent_ms = core.election.sent_ms.get(voter)
        if sent_ms is None or now_ms - sent_ms >= core.config.request_timeout_ms:
            core.election.sent_ms[voter] = now_ms
            log = core.log
            request_id = core.new_request_id()
            core.send(
                VoteRequest(core.node_id, voter, core.epoch, log.last_epoch, log.end_offset, pre_vote, request_id)
            )


def _conclude(core: RaftCore, now_ms: int) -> bool:
    """Has the round been won, or lost? The next role follows at once."""
    assert core.election is not None
    if core.election.won:
        if core.role is Role.PROSPECTIVE:
            core.become_candidate(now_ms)
        else:
            core.become_leader(now_ms)
        return True
    if not core.election.lost or core.backing_off:
        return False
    if core.role is Role.PROSPECTIVE:
        if core.leader_id in {NOBODY, core.node_id}:
            core.become_unattached(core.epoch, now_ms, voted_id=core.voted_id)
        else:
            core.become_follower(core.epoch, core.leader_id, now_ms)
    else:
        # Two candidates that lost to each other must not ask again at the same moment.
        core.backing_off = True
        core.deadline_ms = now_ms + core.rng.randrange(core.backoff_ms_max()) + 1
    return True


def on_vote_request(core: RaftCore, request: VoteRequest, now_ms: int) -> None:
    error = _vote_error(core, request)
    if error is None and request.epoch > core.epoch:
        core.become_unattached(request.epoch, now_ms)
    granted = error is None and may_grant(
        core.role,
        request,
        core.log,
        voted_id=core.voted_id,
        leader_id=core.leader_id,
        content=core.has_fetched and not core.hurried,
    )
    if granted and not request.pre_vote and core.voted_id != request.source:
        core.become_unattached(core.epoch, now_ms, voted_id=request.source)
    core.send(
        VoteReply(
            core.node_id,
            request.source,
            core.epoch,
            core.announced_leader_id,
            granted,
            request.pre_vote,
            error or ErrorCode.NONE,
            request.request_id,
            core.standing,
        )
    )


def _vote_error(core: RaftCore, request: VoteRequest) -> ErrorCode | None:
    if request.epoch < core.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    last_epoch_max = request.epoch if request.pre_vote else request.epoch - 1
    bad_log = request.last_offset < 0 or not 0 <= request.last_epoch <= last_epoch_max
    if bad_log or request.source not in core.voters or not core.is_voter:
        return ErrorCode.INVALID_REQUEST
    return None


def on_vote_reply(core: RaftCore, reply: VoteReply, now_ms: int) -> None:
    if reply.epoch != core.epoch:
        core.follow_newer(reply.epoch, reply.leader_id, now_ms)
        return
    asking = core.role is (Role.PROSPECTIVE if reply.pre_vote else Role.CANDIDATE)
    if asking and reply.source == reply.leader_id == core.leader_id and not reply.granted:
        # The leader itself says that it is alive.
        core.become_follower(core.epoch, core.leader_id, now_ms)
        return
    if asking and core.election is not None:
        core.election.record(reply.source, granted=reply.granted, standing=reply.standing)
        if _conclude(core, now_ms):
            return
    # Whoever refuses may know a leader of this epoch that this node has not heard of.
    core.follow_newer(reply.epoch, reply.leader_id, now_ms)


def tell_resigned(core: RaftCore) -> None:
    for voter in core.voters:
        if voter != core.node_id:
            request_id = core.new_request_id()
            core.send(EndQuorumEpochRequest(core.node_id, voter, core.epoch, core.preferred_successors, request_id))


def on_end_quorum_epoch_reply(core: RaftCore, reply: EndQuorumEpochReply, now_ms: int) -> None:
    core.follow_newer(reply.epoch, reply.leader_id, now_ms)


def next_deadline_ms(core: RaftCore) -> int:
    deadlines = [core.deadline_ms]
    if core.election is not None and not core.backing_off:
        sent = core.election.sent_ms
        deadlines += [sent[v] + core.config.request_timeout_ms for v in core.election.unanswered() if v in sent]
    return min(deadlines)


def tick_unattached(core: RaftCore, now_ms: int) -> None:
    if not core.is_voter:
        follower.tick_observer(core, now_ms)
    elif now_ms >= core.deadline_ms:
        core.become_prospective(now_ms)


def tick_prospective(core: RaftCore, now_ms: int) -> None:
    if now_ms >= core.deadline_ms:
        core.become_prospective(now_ms)
    else:
        _ask_for_votes(core, now_ms, pre_vote=True)


def tick_candidate(core: RaftCore, now_ms: int) -> None:
    if now_ms >= core.deadline_ms:
        core.become_prospective(now_ms)
    elif not core.backing_off:
        _ask_for_votes(core, now_ms, pre_vote=False)


def tick_resigned(core: RaftCore, now_ms: int) -> None:
    if now_ms >= core.deadline_ms:
        # Its epoch is over for everybody; the next one has no leader yet.
        core.become_unattached(core.epoch + 1, now_ms)
