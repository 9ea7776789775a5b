"""Claims of the Raft paper about terms and elections, one test for each claim that applies.

Ongaro, Ousterhout: In Search of an Understandable Consensus Algorithm (extended version). Sections are the paper's.
Its "term" is "epoch" here. Followers fetch, so AppendEntries of a new leader is BeginQuorumEpoch, and a fetch is the
acknowledgment.
"""

from __future__ import annotations

import random

import pytest

from odradek.cluster.raft.core import RaftCore
from odradek.cluster.raft.messages import (
    BeginQuorumEpochReply,
    BeginQuorumEpochRequest,
    FetchRequest,
    HardState,
    VoteReply,
    VoteRequest,
)
from odradek.cluster.raft.roles.transitions import Role
from odradek.protocol.errors import ErrorCode
from tests.support.raft_node import NOW, a_log, a_node, elect, follow, sent, votes
from tests.support.transcripts.raft import Fixed

# ---- 5.1 Raft basics ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", [Role.LEADER, Role.CANDIDATE, Role.FOLLOWER])
def test_larger_term_is_adopted_and_ends_leader_and_candidate_roles(role: Role) -> None:
    """5.1: "If one server's current term is smaller than the other's, then it updates its current term to the larger
    value. If a candidate or leader discovers that its term is out of date, it immediately reverts to follower state."
    """
    core = a_node(1, epoch=2)
    if role is Role.LEADER:
        elect(core)
    elif role is Role.CANDIDATE:
        core.become_candidate(NOW)
    else:
        follow(core, 3)
    assert core.role is role
    core.step(VoteRequest(3, 1, 9, 1, 1, pre_vote=False), NOW)
    assert (core.epoch, core.role) == (9, Role.UNATTACHED)


def test_request_of_an_old_term_is_rejected() -> None:
    """5.1: "If a server receives a request with a stale term number, it rejects the request." """
    core = a_node(1, epoch=5)
    core.step(VoteRequest(2, 1, 4, 1, 9, pre_vote=False), NOW)
    core.step(BeginQuorumEpochRequest(2, 1, 4), NOW)
    core.step(FetchRequest(2, 1, 4, 1, 1, 0), NOW)
    assert [m.error for m in sent(core)] == [ErrorCode.FENCED_LEADER_EPOCH] * 3  # type: ignore[union-attr]
    assert core.epoch == 5


# ---- 5.2 Leader election --------------------------------------------------------------------------------------------


def test_follower_without_messages_begins_an_election() -> None:
    """5.2: "If a follower receives no communication over a period of time called the election timeout, then it assumes
    there is no viable leader and begins an election". Here a pre-vote comes first (Ongaro's thesis, 9.6).
    """
    core = a_node(1, epoch=2)
    follow(core, 2)
    core.tick(NOW + core.config.fetch_timeout_ms - 1)
    assert (core.role, core.epoch) == (Role.FOLLOWER, 2)
    core.tick(NOW + core.config.fetch_timeout_ms)
    assert (core.role, core.epoch) == (Role.PROSPECTIVE, 2)


def test_candidate_raises_the_term_votes_for_itself_and_requests_all_votes() -> None:
    """5.2: "a follower increments its current term and transitions to candidate state. It then votes for itself and
    issues RequestVote RPCs in parallel to each of the other servers".
    """
    core = a_node(1, 1, 2, voters=5)
    core.become_candidate(NOW)
    ready = core.take_ready()
    assert ready is not None
    assert ready.hard_state == HardState(3, -1, 1)
    requests = [m for m in ready.messages if isinstance(m, VoteRequest)]
    assert [(m.target, m.epoch, m.last_epoch, m.last_offset) for m in requests] == [(n, 3, 2, 3) for n in (2, 3, 4, 5)]


def test_majority_of_votes_for_the_same_term_wins() -> None:
    """5.2: "A candidate wins an election if it receives votes from a majority of the servers in the full cluster for
    the same term."
    """
    core = a_node(1, voters=5)
    core.become_candidate(NOW)
    sent(core)
    core.step(VoteReply(2, 1, core.epoch, -1, True, False), NOW)
    core.step(VoteReply(2, 1, core.epoch, -1, True, False), NOW)  # a repeated vote counts once
    core.step(VoteReply(3, 1, core.epoch - 1, -1, True, False), NOW)  # a vote of an earlier term
    core.step(VoteReply(4, 1, core.epoch, -1, True, True), NOW)  # a pre-vote
    core.step(VoteReply(9, 1, core.epoch, -1, True, False), NOW)  # a node that is no voter
    assert (core.role, core.epoch) == (Role.CANDIDATE, 2)
    core.step(VoteReply(5, 1, core.epoch, -1, True, False), NOW)
    assert (core.role, core.epoch) == (Role.LEADER, 2)


def test_voter_grants_one_vote_per_term_to_the_first_candidate() -> None:
    """5.2: "Each server will vote for at most one candidate in a given term, on a first-come-first-served basis"."""
    core = a_node(1, epoch=2)
    for candidate in (2, 3, 2):
        core.step(VoteRequest(candidate, 1, 3, 1, 1, pre_vote=False), NOW)
    granted = [(m.target, m.granted) for m in sent(core) if isinstance(m, VoteReply)]
    assert granted == [(2, True), (3, False), (2, True)]


def test_vote_survives_a_restart() -> None:
    """Figure 2: "Persistent state on all servers (updated on stable storage before responding to RPCs): currentTerm,
    votedFor, log[]".
    """
    core = a_node(1, epoch=2)
    core.step(VoteRequest(2, 1, 3, 1, 1, pre_vote=False), NOW)
    ready = core.take_ready()
    assert ready is not None
    assert ready.hard_state is not None
    replies = [m.granted for m in ready.messages if isinstance(m, VoteReply)]
    assert replies == [True], "sent after the state is durable"
    assert not ready.early_messages
    restarted = RaftCore(1, [1, 2, 3], a_log(1), ready.hard_state, rng=Fixed(1))
    restarted.start(NOW)
    restarted.step(VoteRequest(3, 1, 3, 1, 1, pre_vote=False), NOW)
    assert [m.granted for m in sent(restarted) if isinstance(m, VoteReply)] == [False]


def test_elected_leader_sends_begin_quorum_epoch_to_all_voters_immediately() -> None:
    """5.2: "Once a candidate wins an election, it becomes leader. It then sends heartbeat messages to all of the other
    servers to establish its authority and prevent new elections."
    """
    core = a_node(1)
    core.become_candidate(NOW)
    sent(core)
    core.step(VoteReply(2, 1, core.epoch, -1, True, False), NOW)
    assert [m.target for m in sent(core) if isinstance(m, BeginQuorumEpochRequest)] == [2, 3]


@pytest.mark.parametrize("pre_vote", [True, False])
def test_candidate_follows_a_leader_of_its_term(pre_vote: bool) -> None:
    """5.2: "If the leader's term is at least as large as the candidate's current term, then the candidate recognizes
    the leader as legitimate and returns to follower state."
    """
    core = a_node(1, epoch=2)
    if pre_vote:
        core.become_prospective(NOW)
    else:
        core.become_candidate(NOW)
    core.step(BeginQuorumEpochRequest(3, 1, core.epoch), NOW)
    assert (core.role, core.leader_id) == (Role.FOLLOWER, 3)


def test_candidate_rejects_a_leader_of_an_older_term() -> None:
    """5.2: "If the term in the RPC is smaller than the candidate's current term, then the candidate rejects the RPC
    and continues in candidate state."
    """
    core = a_node(1, epoch=2)
    core.become_candidate(NOW)
    sent(core)
    core.step(BeginQuorumEpochRequest(3, 1, 2), NOW)
    assert [m.error for m in sent(core) if isinstance(m, BeginQuorumEpochReply)] == [ErrorCode.FENCED_LEADER_EPOCH]
    assert core.role is Role.CANDIDATE


def test_split_vote_is_followed_by_an_election_in_a_new_term() -> None:
    """5.2: "each candidate will time out and start a new election by incrementing its term and initiating another
    round".
    """
    core = a_node(1, epoch=2)
    core.become_candidate(NOW)
    sent(core)
    for voter in (2, 3):
        core.step(VoteReply(voter, 1, 3, -1, False, False), NOW)
    assert core.next_deadline_ms is not None
    core.tick(core.next_deadline_ms)
    for request in votes(core, pre_vote=True):
        core.step(VoteReply(request.target, 1, 3, -1, True, True), NOW)
    assert (core.role, core.epoch) == (Role.CANDIDATE, 4)


def test_election_timeouts_are_randomized() -> None:
    """5.2: "Raft uses randomized election timeouts to ensure that split votes are rare and that they are resolved
    quickly".
    """
    rng = random.Random(1)
    core = RaftCore(1, [1, 2, 3], a_log(1), HardState(1), rng=rng)
    base = core.config.election_timeout_ms
    waits = [core.replica.timing.election_wait_ms() for _ in range(300)]
    assert base <= min(waits) < base * 1.1
    assert base * 1.9 < max(waits) < base * 2
    core.replica.timing.expedite()
    assert max(core.replica.timing.election_wait_ms() for _ in range(100)) < base
