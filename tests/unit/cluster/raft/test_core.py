"""Rules of the raft core that no transcript shows by itself, and the parts it is made of."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.cluster.raft.batches import decode_batches, encode_entry, encode_records
from odradek.cluster.raft.core import RaftCore
from odradek.cluster.raft.errors import NotLeader
from odradek.cluster.raft.log_view import LogView
from odradek.cluster.raft.messages import (
    EndQuorumEpochRequest,
    Entry,
    EpochEnd,
    FetchReply,
    FetchRequest,
    HardState,
    LeaderChange,
    VoteReply,
    VoteRequest,
)
from odradek.cluster.raft.progress import Progress, committed_offset, successor_wait_ms, successors
from odradek.cluster.raft.quorum_state import BadQuorumState, decode_quorum_state, encode_quorum_state
from odradek.cluster.raft.roles import leader
from odradek.cluster.raft.roles.campaign import CandidateState
from odradek.cluster.raft.roles.transitions import Role
from odradek.protocol.errors import ErrorCode
from tests.support.transcripts.raft import Fixed, RaftInterpreter


def leader_of_three() -> RaftCore:
    env = RaftInterpreter()
    env.do_nodes("3")
    env.do_tick("1100")
    core = env.cores[1]
    assert core.role is Role.LEADER
    return core


def fetch(core: RaftCore, source: int, offset: int, epoch: int) -> None:
    core.step(FetchRequest(source, 1, core.epoch, offset, epoch, core.high_watermark), 1_100)


def test_copies_of_an_old_epoch_do_not_commit_it() -> None:
    log = LogView([(1, 0)], end_offset=2)  # entries 0 and 1 of epoch 1, never committed
    core = RaftCore(1, [1, 2, 3], log, HardState(epoch=1), rng=Fixed(1))
    core.start(0)
    core.become_candidate(0)
    assert isinstance(core.state, CandidateState)
    core.state.election.record(2, granted=True)
    core.become_leader(0)
    core.take_ready()
    core.advance(0)
    assert core.leader_state is not None
    assert (core.leader_state.epoch_start_offset, core.log.stable_end) == (2, 3)
    fetch(core, 2, 2, 1)
    assert core.high_watermark == 0  # both old entries are on a majority, and still not committed
    fetch(core, 2, 3, 2)
    assert core.high_watermark == 3


def test_the_leaders_own_copy_counts_only_when_it_is_durable() -> None:
    core = leader_of_three()
    start = core.high_watermark
    core.propose(b"x", 1)
    assert core.take_ready() is not None
    fetch(core, 2, start + 1, core.epoch)
    assert core.high_watermark == start
    core.advance(1_100)
    assert core.high_watermark == start + 1


def test_only_a_leader_appends() -> None:
    env = RaftInterpreter()
    env.do_nodes("3")
    with pytest.raises(NotLeader):
        env.cores[2].propose(b"x", 1)


@pytest.mark.parametrize(
    ("epoch_ahead", "error"),
    [(-1, ErrorCode.FENCED_LEADER_EPOCH), (1, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_fetches_of_another_epoch_are_refused(epoch_ahead: int, error: ErrorCode) -> None:
    core = leader_of_three()
    core.step(FetchRequest(2, 1, core.epoch + epoch_ahead, 0, 0, 0, 77), 1_100)
    ready = core.take_ready()
    assert ready is not None
    (reply,) = ready.early_messages
    assert isinstance(reply, FetchReply)
    assert (reply.error, reply.epoch, reply.leader_id, reply.request_id) == (error, core.epoch, 1, 77)


def answers(core: RaftCore) -> list[tuple[int, ErrorCode]]:
    """(request id, error) of the answers to fetches that have come out of the core since."""
    found = []
    while (ready := core.take_ready()) is not None:
        found += [(m.request_id, m.error) for m in ready.early_messages if isinstance(m, FetchReply)]
        core.advance(1_100)
    return found


def park(core: RaftCore, source: int, request_id: int) -> None:
    end, high_watermark = core.log.end_offset, core.high_watermark
    core.step(FetchRequest(source, 1, core.epoch, end, core.log.last_epoch, high_watermark, request_id), 1_100)


def test_every_fetch_is_answered_also_one_whose_asker_has_asked_again() -> None:
    """Its connection broke, perhaps, and this side has not noticed: the question must not stay open for ever.

    Nor may two processes of one id drive each other round: the answer is an error, after which a follower waits.
    """
    core = leader_of_three()
    park(core, 2, 999)
    answers(core)
    for request_id in (1_000, 1_001, 1_002):
        park(core, 2, request_id)
    assert answers(core) == [(each, ErrorCode.NETWORK_EXCEPTION) for each in (999, 1_000, 1_001)]
    core.tick(1_100 + core.config.fetch_wait_ms_max)
    assert (1_002, ErrorCode.NONE) in answers(core)


def test_a_fetch_of_an_observer_that_is_forgotten_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader, "OBSERVERS_MAX", 1)
    core = leader_of_three()
    answers(core)
    park(core, 7, 1_000)
    park(core, 8, 1_001)
    assert core.leader_state is not None
    assert 7 not in core.leader_state.progress
    assert answers(core) == [(1_000, ErrorCode.NETWORK_EXCEPTION)]


def test_an_observer_is_not_a_preferred_successor() -> None:
    """An observer in the list would delay the election: the voters behind it wait for their turn."""
    core = leader_of_three()
    fetch(core, 7, core.log.end_offset, core.epoch)
    core.resign(1_100)
    ready = core.take_ready()
    assert ready is not None
    orders = [m.preferred_successors for m in ready.messages if isinstance(m, EndQuorumEpochRequest)]
    assert orders == [(2, 3), (2, 3)]


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (VoteRequest(2, 1, 0, 0, 0, pre_vote=False), ErrorCode.FENCED_LEADER_EPOCH),
        (VoteRequest(9, 1, 5, 0, 0, pre_vote=False), ErrorCode.INVALID_REQUEST),
        (VoteRequest(2, 1, 5, 5, 0, pre_vote=False), ErrorCode.INVALID_REQUEST),
        (VoteRequest(2, 1, 5, 6, 0, pre_vote=True), ErrorCode.INVALID_REQUEST),
        (VoteRequest(2, 1, 5, 0, -1, pre_vote=False), ErrorCode.INVALID_REQUEST),
    ],
)
def test_bad_vote_requests_change_nothing(request_: VoteRequest, error: ErrorCode) -> None:
    core = leader_of_three()
    core.step(request_, 1_100)
    ready = core.take_ready()
    assert ready is not None
    assert [(m.granted, m.error) for m in ready.messages if isinstance(m, VoteReply)] == [(False, error)]
    assert (core.role, core.epoch) == (Role.LEADER, 1)


def test_a_candidate_whose_log_is_behind_gets_no_vote_but_its_epoch_is_taken_over() -> None:
    core = leader_of_three()
    core.step(VoteRequest(2, 1, 5, 0, 0, pre_vote=False), 1_100)
    ready = core.take_ready()
    assert ready is not None
    assert ready.hard_state == HardState(epoch=5)
    assert [m.granted for m in ready.messages if isinstance(m, VoteReply)] == [False]


def test_a_restart_never_goes_back_to_an_epoch_that_its_log_has_passed() -> None:
    log = LogView([(1, 0), (7, 3)], end_offset=5)
    core = RaftCore(1, [1, 2], log, HardState(epoch=6, leader_id=2, voted_id=-1), rng=Fixed(1))
    core.start(0)
    assert (core.epoch, core.leader_id, core.role) == (7, -1, Role.UNATTACHED)


# ---- parts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fetch_offset", "last_epoch", "diverging"),
    [
        (0, 0, None),
        (3, 1, None),
        (10, 3, None),
        (4, 1, EpochEnd(1, 3)),
        (11, 3, EpochEnd(3, 10)),
        (5, 2, EpochEnd(1, 3)),
        (12, 4, EpochEnd(3, 10)),
    ],
)
def test_where_another_log_diverges(fetch_offset: int, last_epoch: int, diverging: EpochEnd | None) -> None:
    log = LogView([(1, 0), (3, 3)], end_offset=10)
    assert log.divergence(fetch_offset, last_epoch) == diverging


def test_what_was_cut_during_a_write_is_not_durable() -> None:
    log = LogView()
    log.append(Entry(0, 4, 1, b"a"))
    log.append(Entry(5, 9, 1, b"b"))
    log.take()
    log.truncate_to(5)
    log.append(Entry(5, 6, 2, b"c"))
    log.stable_to(10)
    assert (log.stable_end, log.end_offset, log.last_epoch) == (5, 7, 2)
    assert log.take() == (5, (Entry(5, 6, 2, b"c"),))


@given(st.lists(st.integers(-1, 50), min_size=1, max_size=7))
def test_a_majority_has_what_is_committed(ends: list[int]) -> None:
    committed = committed_offset(ends)
    assert sum(end >= committed for end in ends) > len(ends) // 2
    assert sum(end > committed for end in ends) <= len(ends) // 2


def test_successors_in_order_of_their_logs() -> None:
    progress = {1: Progress(5), 2: Progress(9), 3: Progress(5), 4: Progress()}
    assert successors(progress) == (2, 1, 3, 4)
    assert [successor_wait_ms(n, 4, 1_000) for n in range(4)] == [0, 125, 250, 500]


def test_quorum_state_round_trip() -> None:
    state = HardState(7, 2, -1)
    data = encode_quorum_state(state, [1, 2, 3])
    assert decode_quorum_state(data, [3, 2, 1]) == state


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "quorum-state"),
        (b"[]", "not an object"),
        (b"{}", "data_version is missing"),
        (b'{"data_version":2}', "data_version 2 is not supported"),
        (b'{"data_version":0,"leaderEpoch":1,"leaderId":1}', "votedId is missing"),
        (b'{"data_version":0,"leaderEpoch":-1,"leaderId":1,"votedId":1}', "negative"),
        (b'{"data_version":0,"leaderEpoch":1,"leaderId":true,"votedId":1}', "leaderId is missing or not a number"),
        (encode_quorum_state(HardState(), [1, 4]), r"written for the voters \[1, 4\], but \[1\] are configured"),
        (b"[" * 20_000, "quorum-state"),
    ],
)
def test_a_quorum_state_that_cannot_be_trusted_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(BadQuorumState, match=message):
        decode_quorum_state(data, [1])


def test_batches_hold_what_was_put_into_them() -> None:
    data = encode_records([(None, b"x"), (b"k", None)], base_offset=5, epoch=3, now_ms=1_000)
    change = encode_entry(Entry(7, 7, 4, LeaderChange(1, (1, 2), (1,))), 1_000)
    first, second = decode_batches(data + change)
    assert (first.base_offset, first.last_offset, first.epoch) == (5, 6, 3)
    assert first.records == ((None, b"x"), (b"k", None))
    assert (second.base_offset, second.epoch, second.records) == (7, 4, ())
