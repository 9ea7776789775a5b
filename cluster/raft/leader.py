"""Leading: fetches, commitment, keeping the quorum. Functions over the raft core."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.cluster.raft.election import Role
from odradek.cluster.raft.messages import (
    NOBODY,
    BeginQuorumEpochReply,
    BeginQuorumEpochRequest,
    EpochEnd,
    FetchReply,
    FetchRequest,
    FetchSnapshotReply,
    FetchSnapshotRequest,
)
from odradek.cluster.raft.progress import UNKNOWN_OFFSET, Progress, committed_offset, majority
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.cluster.raft.core import RaftCore

OBSERVERS_MAX = 1_000
"""Replicas that are not voters and that a leader remembers; the one that has been silent longest is forgotten."""


def on_fetch(core: RaftCore, request: FetchRequest, now_ms: int) -> None:
    error = _fetch_error(core, request)
    if error is not None:
        _answer(core, request, error=error)
        return
    progress = _progress_of(core, request.source)
    progress.heard(now_ms)
    snapshot = core.log.snapshot_for(request.fetch_offset, request.last_fetched_epoch)
    diverging = core.log.divergence(request.fetch_offset, request.last_fetched_epoch) if snapshot is None else None
    if snapshot is not None or diverging is not None:
        progress.end_offset = UNKNOWN_OFFSET  # whatever it may have had in an earlier life
        _answer(core, request, diverging=diverging, snapshot=snapshot)
        return
    progress.fetched(request.fetch_offset, core.log.end_offset, now_ms)
    _give_up_parked(core, progress)  # its connection broke, most likely, and it asks over a new one
    progress.parked = request
    progress.parked_until_ms = now_ms + core.config.fetch_wait_ms_max
    advance_high_watermark(core)
    answer_parked(core)


def on_fetch_snapshot(core: RaftCore, request: FetchSnapshotRequest, now_ms: int) -> None:
    error = _leader_error(core, request.epoch)
    if error is None and (request.position < 0 or request.max_bytes <= 0):
        error = ErrorCode.POSITION_OUT_OF_RANGE if request.position < 0 else ErrorCode.INVALID_REQUEST
    if error is None and request.snapshot not in core.log.snapshots:
        error = ErrorCode.SNAPSHOT_NOT_FOUND
    if error is None:
        _progress_of(core, request.source).heard(now_ms)
    core.send_early(
        FetchSnapshotReply(
            core.node_id,
            request.source,
            core.epoch,
            core.announced_leader_id,
            request.snapshot,
            request.position,
            request.max_bytes,
            error=error or ErrorCode.NONE,
            request_id=request.request_id,
        )
    )


def _fetch_error(core: RaftCore, request: FetchRequest) -> ErrorCode | None:
    error = _leader_error(core, request.epoch)
    if error is None and (request.fetch_offset < 0 or request.last_fetched_epoch < 0 or request.source < 0):
        return ErrorCode.INVALID_REQUEST
    return error


def _leader_error(core: RaftCore, epoch: int) -> ErrorCode | None:
    if epoch < core.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if epoch > core.epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    return None if core.role is Role.LEADER else ErrorCode.NOT_LEADER_OR_FOLLOWER


def _progress_of(core: RaftCore, replica: int) -> Progress:
    progress = core.progress.get(replica)
    if progress is None:
        observers = [node for node in core.progress if node not in core.voters]
        if len(observers) >= OBSERVERS_MAX:
            _give_up_parked(core, core.progress.pop(min(observers, key=lambda node: core.progress[node].last_fetch_ms)))
        progress = core.progress[replica] = Progress()
    return progress


def _answer(
    core: RaftCore,
    request: FetchRequest,
    *,
    read_end: int | None = None,
    diverging: EpochEnd | None = None,
    snapshot: EpochEnd | None = None,
    error: ErrorCode = ErrorCode.NONE,
) -> None:
    core.send_early(
        FetchReply(
            core.node_id,
            request.source,
            core.epoch,
            core.announced_leader_id,
            request.fetch_offset,
            core.high_watermark if core.role is Role.LEADER else -1,
            request.fetch_offset if read_end is None else read_end,
            diverging=diverging,
            snapshot=snapshot,
            error=error,
            request_id=request.request_id,
        )
    )


def answer_parked(core: RaftCore) -> None:
    """Answer every fetch for which there are entries, or a high watermark that the asker does not know (KIP-1166)."""
    for progress in core.progress.values():
        request = progress.parked
        if request is None:
            continue
        if request.fetch_offset < core.log.end_offset or request.high_watermark < core.high_watermark:
            progress.parked = None
            _answer(core, request, read_end=core.log.end_offset)


def _give_up_parked(core: RaftCore, progress: Progress) -> None:
    """Every question is answered, also one that nobody waits for any more: whoever carries it keeps it open until then.

    By an error, after which a follower pauses: two processes of one id would drive each other round without it.
    """
    request, progress.parked = progress.parked, None
    if request is not None:
        _answer(core, request, error=ErrorCode.NETWORK_EXCEPTION)


def refuse_parked(core: RaftCore, epoch: int) -> None:
    """The leadership ends (the node goes to `epoch`): nobody shall wait for it."""
    for progress in core.progress.values():
        request = progress.parked
        if request is not None:
            progress.parked = None
            core.send_early(
                FetchReply(
                    core.node_id,
                    request.source,
                    epoch,
                    NOBODY,
                    request.fetch_offset,
                    read_end=request.fetch_offset,
                    error=ErrorCode.NOT_LEADER_OR_FOLLOWER,
                    request_id=request.request_id,
                )
            )


def advance_high_watermark(core: RaftCore) -> None:
    """Commit what a majority has durably, this node's own disk included.

    Not before an entry of this epoch is among it (Raft paper 5.4.2, figure 8): 1. a leader of epoch 2 replicates an entry
    to a minority and dies; 2. the leader of epoch 3 never saw it; 3. the first one leads again in epoch 4 and copies the
    old entry to a majority; 4. it dies, and the one of epoch 3 may still win and overwrite it.
    """
    if core.role is not Role.LEADER:
        return
    ends = [core.log.stable_end if v == core.node_id else core.progress[v].end_offset for v in core.voters]
    committed = committed_offset(ends)
    if committed > core.epoch_start_offset and committed > core.high_watermark:
        core.high_watermark = committed
        core.note_committed(committed)
        answer_parked(core)


def tell_voters(core: RaftCore, now_ms: int) -> None:
    """BeginQuorumEpoch for every voter that has not fetched for a while."""
    for voter in core.voters:
        progress = core.progress[voter]
        if voter == core.node_id or now_ms < _begin_due_ms(core, progress):
            continue
        progress.begin_sent_ms = now_ms
        core.send(BeginQuorumEpochRequest(core.node_id, voter, core.epoch, core.new_request_id()))


def _begin_due_ms(core: RaftCore, progress: Progress) -> int:
    interval_ms = core.config.begin_quorum_interval_ms
    if progress.begin_sent_ms is None:
        return progress.last_fetch_ms
    return max(progress.begin_sent_ms, progress.last_fetch_ms) + interval_ms


def on_begin_quorum_epoch_reply(core: RaftCore, reply: BeginQuorumEpochReply, now_ms: int) -> None:
    if reply.epoch > core.epoch:
        core.follow_newer(reply.epoch, reply.leader_id, now_ms)
    elif core.role is Role.LEADER and reply.epoch == core.epoch and reply.source in core.progress:
        core.progress[reply.source].knows_leader = True


def _quorum_lost_ms(core: RaftCore) -> int | None:
    """When the last fetch of the voter that makes the majority becomes too old. None for a quorum of one."""
    needed = majority(len(core.voters)) - 1
    if needed == 0:
        return None
    fetches = sorted((core.progress[v].last_fetch_ms for v in core.voters if v != core.node_id), reverse=True)
    return fetches[needed - 1] + core.config.check_quorum_timeout_ms


def next_deadline_ms(core: RaftCore) -> int | None:
    deadlines = [progress.parked_until_ms for progress in core.progress.values() if progress.parked is not None]
    deadlines += [_begin_due_ms(core, core.progress[voter]) for voter in core.voters if voter != core.node_id]
    lost_ms = _quorum_lost_ms(core)
    if lost_ms is not None:
        deadlines.append(lost_ms)
    return min(deadlines, default=None)


def tick(core: RaftCore, now_ms: int) -> None:
    lost_ms = _quorum_lost_ms(core)
    if lost_ms is not None and now_ms >= lost_ms:
        core.become_resigned(now_ms)
        return
    for progress in core.progress.values():
        request = progress.parked
        if request is not None and now_ms >= progress.parked_until_ms:
            progress.parked = None
            _answer(core, request)
    tell_voters(core, now_ms)
