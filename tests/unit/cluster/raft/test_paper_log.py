"""Claims of the Raft paper about logs, safety and snapshots, one test for each claim that applies.

Ongaro, Ousterhout: In Search of an Understandable Consensus Algorithm (extended version). Sections are the paper's.
Its "term" is "epoch" here. Followers fetch, so AppendEntries of a new leader is BeginQuorumEpoch, and a fetch is the
acknowledgment.
"""

from __future__ import annotations

import pytest

from odradek.cluster.raft.messages import (
    BeginQuorumEpochRequest,
    Entry,
    EpochEnd,
    FetchReply,
    FetchRequest,
    FetchSnapshotReply,
    FetchSnapshotRequest,
    LeaderChange,
    VoteReply,
    VoteRequest,
)
from odradek.cluster.raft.roles.transitions import Role
from tests.support.raft_node import NOW, a_log, a_node, elect, fetch_of, follow, reply_to_fetch, sent

# ---- 5.3 Log replication --------------------------------------------------------------------------------------------


def test_entry_on_a_majority_is_committed_with_all_preceding_entries() -> None:
    """5.3: "A log entry is committed once the leader that created the entry has replicated it on a majority of the
    servers. This also commits all preceding entries in the leader's log, including entries created by previous
    leaders."
    """
    core = elect(a_node(1, 1, voters=5))
    core.propose(b"x", 1)
    end = core.log.end_offset
    sent(core)
    fetch_of(core, 2, end, core.epoch)
    assert core.high_watermark == 0
    fetch_of(core, 3, end, core.epoch)
    assert core.high_watermark == end


def test_leader_sends_the_committed_offset() -> None:
    """5.3: "The leader keeps track of the highest index it knows to be committed, and it includes that index in future
    AppendEntries RPCs so that the other servers eventually find out."
    """
    core = elect(a_node(1))
    fetch_of(core, 2, 2, core.epoch)
    replies = [m for m in fetch_of(core, 3, 1, 1) if isinstance(m, FetchReply)]
    assert [m.high_watermark for m in replies] == [2]
    fetch = follow(a := a_node(1, epoch=1), 2)
    reply_to_fetch(a, fetch, Entry(1, 1, 2, b"l"), committed=2)
    assert a.high_watermark == 2


@pytest.mark.parametrize(
    ("leaders", "fetched", "diverging"),
    [
        ((1, 1, 1, 4, 4, 5, 5, 6, 6, 6), (9, 6), None),  # figure 7 (a): one entry is missing
        ((1, 1, 1, 4, 4, 5, 5, 6, 6, 6), (4, 4), None),  # (b)
        ((1, 1, 1, 4, 4, 5, 5, 6, 6, 6), (11, 6), EpochEnd(6, 10)),  # (c): one entry too many
        ((1, 1, 1, 4, 4, 5, 5, 6, 6, 6), (12, 7), EpochEnd(6, 10)),  # (d)
        ((1, 1, 1, 4, 4, 5, 5, 6, 6, 6), (7, 4), EpochEnd(4, 5)),  # (e)
        ((1, 1, 1, 4, 4, 5, 5, 6, 6, 6), (11, 3), EpochEnd(1, 3)),  # (f)
    ],
)
def test_fetch_that_does_not_match_the_log_gets_the_divergence(
    leaders: tuple[int, ...], fetched: tuple[int, int], diverging: EpochEnd | None
) -> None:
    """5.3, the consistency check, with the logs of figure 7: "If the follower does not find an entry in its log with
    the same index and term, then it refuses the new entries."
    """
    core = a_node(*leaders, epoch=7)
    core.become_candidate(NOW)
    core.become_leader(NOW)
    sent(core)
    replies = [m for m in fetch_of(core, 2, *fetched) if isinstance(m, FetchReply)]
    assert [m.diverging for m in replies] == [diverging]


@pytest.mark.parametrize(
    ("mine", "rounds"),
    [
        ((1, 1, 1, 4, 4, 5, 5, 6, 6), 1),  # figure 7 (a)
        ((1, 1, 1, 4), 1),  # (b)
        ((1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 6), 2),  # (c)
        ((1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 7, 7), 2),  # (d)
        ((1, 1, 1, 4, 4, 4, 4), 2),  # (e)
        ((1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3), 2),  # (f)
    ],
)
def test_every_follower_log_of_figure_7_becomes_the_log_of_the_leader(mine: tuple[int, ...], rounds: int) -> None:
    """5.3: "the leader must find the latest log entry where the two logs agree, delete any entries in the follower's
    log after that point, and send the follower all of the leader's entries after that point." Here this takes few
    rounds, for any difference.
    """
    leader = a_log(1, 1, 1, 4, 4, 5, 5, 6, 6, 6)
    core = a_node(*mine)
    fetch = follow(core, 8)
    for _ in range(rounds):
        diverging = leader.divergence(fetch.fetch_offset, fetch.last_fetched_epoch)
        entries = [] if diverging else [Entry(n, n, leader.epoch_of(n), b"e") for n in range(fetch.fetch_offset, 10)]
        out = reply_to_fetch(core, fetch, *entries, diverging=diverging)
        (fetch,) = [m for m in out if isinstance(m, FetchRequest)]
    assert [core.log.epoch_of(n) for n in range(10)] == [1, 1, 1, 4, 4, 5, 5, 6, 6, 6]
    assert core.log.end_offset == 10


def test_leader_ignores_replies_that_would_change_its_log() -> None:
    """5.3: "A leader never overwrites or deletes entries in its own log" (Leader Append-Only)."""
    core = elect(a_node(1, 1))
    before = core.log.end_offset
    for message in (
        FetchReply(2, 1, core.epoch, 2, 0, 0, diverging=EpochEnd(0, 0)),
        FetchReply(2, 1, core.epoch, 2, 0, 0, snapshot=EpochEnd(9, 900)),
        FetchSnapshotReply(2, 1, core.epoch, 2, EpochEnd(9, 900), 0, size=1, data=b"x"),
        BeginQuorumEpochRequest(2, 1, core.epoch),
    ):
        core.step(message, NOW)
    assert (core.role, core.log.end_offset) == (Role.LEADER, before)


# ---- 5.4 Safety -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pre_vote", [True, False])
@pytest.mark.parametrize(
    ("mine", "last_epoch", "last_offset", "granted"),
    [
        ((1, 1), 1, 2, True),
        ((1, 1), 1, 3, True),
        ((1, 1), 1, 1, False),
        ((1, 1), 2, 1, True),
        ((1, 1, 3), 2, 9, False),
        ((1, 1, 3), 3, 3, True),
    ],
)
def test_vote_is_denied_to_a_candidate_with_a_less_up_to_date_log(
    mine: tuple[int, ...], last_epoch: int, last_offset: int, granted: bool, pre_vote: bool
) -> None:
    """5.4.1: "the voter denies its vote if its own log is more up-to-date than that of the candidate. Raft determines
    which of two logs is more up-to-date by comparing the index and term of the last entries in the logs."
    """
    core = a_node(*mine)
    core.step(VoteRequest(2, 1, 5, last_epoch, last_offset, pre_vote=pre_vote), NOW)
    assert [m.granted for m in sent(core) if isinstance(m, VoteReply)] == [granted]


def test_entries_of_earlier_terms_are_not_committed_by_counting() -> None:
    """5.4.2: "Raft never commits log entries from previous terms by counting replicas. Only log entries from the
    leader's current term are committed by counting replicas". Figure 8 is scenarios/raft/old_epoch_overwritten.txt.
    """
    core = a_node(1, 2, voters=5)
    core.become_candidate(NOW)
    core.become_leader(NOW)
    sent(core)
    for node in (2, 3, 4):
        fetch_of(core, node, 2, 2)
    assert core.high_watermark == 0
    for node in (2, 3):
        fetch_of(core, node, 3, core.epoch)
    assert core.high_watermark == 3


# ---- 5.5, 6, 7, 8 ---------------------------------------------------------------------------------------------------


def test_repeated_messages_have_no_effect() -> None:
    """5.5: "Raft RPCs are idempotent, so this causes no harm." """
    core = a_node(1, epoch=1)
    fetch = follow(core, 2)
    reply = FetchReply(2, 1, 2, 2, 1, 2, 0, (Entry(1, 1, 2, b"l"),), request_id=fetch.request_id)
    for _ in range(3):
        core.step(reply, NOW)
        core.step(BeginQuorumEpochRequest(2, 1, 2), NOW)
        sent(core)
    assert (core.log.end_offset, core.high_watermark, core.role) == (2, 2, Role.FOLLOWER)


def test_follower_of_an_active_leader_refuses_pre_votes() -> None:
    """6: "servers disregard RequestVote RPCs when they believe a current leader exists", so that a partitioned server
    does not disrupt the cluster. Here the pre-vote is refused, and no server raises its term without a won pre-vote.
    """
    core = a_node(1, epoch=1)
    reply_to_fetch(core, follow(core, 2), Entry(1, 1, 2, b"l"))
    core.step(VoteRequest(3, 1, 2, 2, 9, pre_vote=True), NOW)
    assert [m.granted for m in sent(core) if isinstance(m, VoteReply)] == [False]
    core.suspect(2, NOW)
    core.step(VoteRequest(3, 1, 2, 2, 9, pre_vote=True), NOW)
    assert [m.granted for m in sent(core) if isinstance(m, VoteReply)] == [True]


def test_snapshot_replaces_the_log_of_a_follower_that_is_too_far_behind() -> None:
    """7: "the leader must occasionally send snapshots to followers that lag behind (...) the follower discards its
    entire log; it is all superseded by the snapshot".
    """
    core = a_node(1, 1, epoch=1)
    fetch = follow(core, 6)
    snapshot = EpochEnd(5, 100)
    core.step(FetchReply(2, 1, 6, 2, 2, 0, snapshot=snapshot, request_id=fetch.request_id), NOW)
    for position, data in ((0, b"abc"), (3, b"de")):
        (request,) = [m for m in sent(core) if isinstance(m, FetchSnapshotRequest)]
        assert (request.snapshot, request.position) == (snapshot, position)
        reply = FetchSnapshotReply(2, 1, 6, 2, snapshot, position, 9, 5, data, request_id=request.request_id)
        core.step(reply, NOW)
    assert (core.log.start_offset, core.log.end_offset, core.log.last_epoch) == (100, 100, 5)
    assert core.high_watermark == 100
    (fetch,) = [m for m in sent(core) if isinstance(m, FetchRequest)]
    assert (fetch.fetch_offset, fetch.last_fetched_epoch) == (100, 5)


def test_leader_begins_its_term_with_an_entry() -> None:
    """8: "having each leader commit a blank no-op entry into the log at the start of its term"."""
    core = a_node(1, 1)
    core.become_candidate(NOW)
    sent(core)
    core.step(VoteReply(3, 1, core.epoch, -1, True, False), NOW)
    ready = core.take_ready()
    assert ready is not None
    assert ready.entries == (Entry(2, 2, core.epoch, LeaderChange(1, (1, 2, 3), (1, 3))),)
