"""One raft core under a test's hand, in the middle of a quorum that is made of messages."""

from __future__ import annotations

from odradek.cluster.raft.core import RaftCore
from odradek.cluster.raft.log_view import LogView
from odradek.cluster.raft.messages import (
    BeginQuorumEpochRequest,
    Entry,
    EpochEnd,
    FetchReply,
    FetchRequest,
    HardState,
    Message,
    VoteReply,
    VoteRequest,
)
from odradek.cluster.raft.roles.transitions import Role
from tests.support.transcripts.raft import Fixed

NOW = 10_000


def a_log(*epochs: int) -> LogView:
    """One entry for each epoch, all of them durable."""
    starts: dict[int, int] = {}
    for offset, epoch in enumerate(epochs):
        starts.setdefault(epoch, offset)
    return LogView(starts.items(), end_offset=len(epochs))


def a_node(*epochs: int, epoch: int = 0, voted: int = -1, voters: int = 3) -> RaftCore:
    """Node 1 as it starts with that log."""
    state = HardState(max(epoch, *epochs, 0) if epochs else epoch, voted_id=voted)
    core = RaftCore(1, range(1, voters + 1), a_log(*(epochs or (1,))), state, rng=Fixed(1))
    core.start(NOW)
    sent(core)
    return core


def sent(core: RaftCore) -> list[Message]:
    """Run the core's pending work as a driver does, and return its messages."""
    messages: list[Message] = []
    while (ready := core.take_ready()) is not None:
        messages += [*ready.early_messages, *ready.messages]
        core.advance(NOW)
    return messages


def votes(core: RaftCore, *, pre_vote: bool = False) -> list[VoteRequest]:
    return [m for m in sent(core) if isinstance(m, VoteRequest) and m.pre_vote is pre_vote]


def elect(core: RaftCore) -> RaftCore:
    """Make the node the leader of the next epoch by the votes of all others."""
    core.become_prospective(NOW)
    for pre_vote in (True, False):
        for request in votes(core, pre_vote=pre_vote):
            core.step(VoteReply(request.target, 1, request.epoch, -1, True, pre_vote), NOW)
    assert core.role is Role.LEADER
    sent(core)
    return core


def follow(core: RaftCore, epoch: int, leader: int = 2) -> FetchRequest:
    core.step(BeginQuorumEpochRequest(leader, 1, epoch), NOW)
    (fetch,) = [m for m in sent(core) if isinstance(m, FetchRequest)]
    return fetch


def reply_to_fetch(
    core: RaftCore, fetch: FetchRequest, *entries: Entry, committed: int = 0, diverging: EpochEnd | None = None
) -> list[Message]:
    offset, request_id = fetch.fetch_offset, fetch.request_id
    core.step(FetchReply(2, 1, fetch.epoch, 2, offset, committed, 0, entries, diverging, request_id=request_id), NOW)
    return sent(core)


def fetch_of(core: RaftCore, node: int, offset: int, epoch: int) -> list[Message]:
    core.step(FetchRequest(node, 1, core.epoch, offset, epoch, 0), NOW)
    return sent(core)
