"""Raft core: rules that no transcript shows separately, and the parts of the core."""

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


def test_replicated_entries_of_an_old_epoch_are_not_committed() -> None:
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
    assert core.high_watermark == 0  # a majority has both old entries, and they are not committed yet
    fetch(core, 2, 3, 2)
    assert core.high_watermark == 3


def test_own_copy_of_the_leader_counts_when_it_is_durable() -> None:
    core = leader_of_three()
    start = core.high_watermark
    core.propose(b"x", 1)
    assert core.take_ready() is not None
    fetch(core, 2, start + 1, core.epoch)
    assert core.high_watermark == start
    core.advance(1_100)
    assert core.high_watermark == start + 1


def test_append_on_a_follower_is_refused() -> None:
    env = RaftInterpreter()
    env.do_nodes("3")
    with pytest.raises(NotLeader):
        env.cores[2].propose(b"x", 1)


@pytest.mark.parametrize(
    ("epoch_ahead", "error"),
    [(-1, ErrorCode.FENCED_LEADER_EPOCH), (1, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_fetch_of_another_epoch_is_refused(epoch_ahead: int, error: ErrorCode) -> None:
    core = leader_of_three()
    core.step(FetchRequest(2, 1, core.epoch + epoch_ahead, 0, 0, 0, 77), 1_100)
    ready = core.take_ready()
    assert ready is not None
    (reply,) = ready.early_messages
    assert isinstance(reply, FetchReply)
    assert (reply.error, reply.epoch, reply.leader_id, reply.request_id) == (error, core.epoch, 1, 77)


def fetch_replies(core: RaftCore) -> list[tuple[int, ErrorCode]]:
    """Return (request id, error) of the fetch replies since the last call."""
    errors = []
    while (ready := core.take_ready()) is not None:
        errors += [(m.request_id, m.error) for m in ready.early_messages if isinstance(m, FetchReply)]
        core.advance(1_100)
    return errors


def park(core: RaftCore, source: int, request_id: int, now_ms: int = 1_100) -> None:
    end, high_watermark = core.log.end_offset, core.high_watermark
    core.step(FetchRequest(source, 1, core.epoch, end, core.log.last_epoch, high_watermark, request_id), now_ms)


def test_earlier_fetches_of_a_replica_are_completed_with_an_error() -> None:
    """A fetch must not stay open when its connection broke unnoticed and the replica fetches again.

    The reply is an error, after which a follower waits: two processes with one id do not fetch in a loop.
    """
    core = leader_of_three()
    park(core, 2, 999)
    fetch_replies(core)
    for request_id in (1_000, 1_001, 1_002):
        park(core, 2, request_id)
    assert fetch_replies(core) == [(request_id, ErrorCode.NETWORK_EXCEPTION) for request_id in (999, 1_000, 1_001)]
    core.tick(1_100 + core.config.fetch_wait_ms_max)
    assert (1_002, ErrorCode.NONE) in fetch_replies(core)


def test_fetch_of_an_evicted_observer_gets_a_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader, "OBSERVERS_MAX", 1)
    core = leader_of_three()
    fetch_replies(core)
    park(core, 7, 1_000)
    park(core, 8, 1_001)
    assert core.leader_state is not None
    assert 7 not in core.leader_state.progress
    assert fetch_replies(core) == [(1_000, ErrorCode.NETWORK_EXCEPTION)]


def test_flood_of_unknown_observers_does_not_evict_observers_that_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader, "OBSERVERS_MAX", 3)
    core = leader_of_three()
    for node_id in (7, 8):
        park(core, node_id, node_id)
    for node_id in (100, 200, 2**31 - 1, 300):
        park(core, node_id, node_id)
    assert core.leader_state is not None
    assert list(core.leader_state.progress) == [1, 2, 3, 7, 8, 300]
    later_ms = 1_100 + core.config.check_quorum_timeout_ms
    park(core, 8, 9, later_ms - 1)
    park(core, 300, 301, later_ms - 1)
    park(core, 400, 400, later_ms)
    assert list(core.leader_state.progress) == [1, 2, 3, 8, 300, 400]


def test_observer_is_not_a_preferred_successor() -> None:
    """An observer in the list would delay the election: each voter waits according to its position in the list."""
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
def test_invalid_vote_request_changes_no_state(request_: VoteRequest, error: ErrorCode) -> None:
    core = leader_of_three()
    core.step(request_, 1_100)
    ready = core.take_ready()
    assert ready is not None
    assert [(m.granted, m.error) for m in ready.messages if isinstance(m, VoteReply)] == [(False, error)]
    assert (core.role, core.epoch) == (Role.LEADER, 1)


def test_candidate_with_a_shorter_log_gets_no_vote_but_its_epoch_is_adopted() -> None:
    core = leader_of_three()
    core.step(VoteRequest(2, 1, 5, 0, 0, pre_vote=False), 1_100)
    ready = core.take_ready()
    assert ready is not None
    assert ready.hard_state == HardState(epoch=5)
    assert [m.granted for m in ready.messages if isinstance(m, VoteReply)] == [False]


def test_restart_adopts_the_last_epoch_of_the_log() -> None:
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
def test_divergence_is_found_for_a_fetch_of_another_log(
    fetch_offset: int, last_epoch: int, diverging: EpochEnd | None
) -> None:
    log = LogView([(1, 0), (3, 3)], end_offset=10)
    assert log.divergence(fetch_offset, last_epoch) == diverging


def test_entries_truncated_during_a_write_are_not_durable() -> None:
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
def test_committed_offset_is_on_a_majority(ends: list[int]) -> None:
    committed = committed_offset(ends)
    assert sum(end >= committed for end in ends) > len(ends) // 2
    assert sum(end > committed for end in ends) <= len(ends) // 2


def test_successors_are_ordered_by_log_end_offset() -> None:
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
        (b"[]", "not a JSON object"),
        (b"{}", "data_version is missing"),
        (b'{"data_version":2}', "data_version 2 is not supported"),
        (b'{"data_version":0,"leaderEpoch":1,"leaderId":1}', "votedId is missing"),
        (b'{"data_version":0,"leaderEpoch":-1,"leaderId":1,"votedId":1}', "negative"),
        (b'{"data_version":0,"leaderEpoch":1,"leaderId":true,"votedId":1}', "leaderId is missing or not a number"),
        (encode_quorum_state(HardState(), [1, 4]), r"written for the voters \[1, 4\], but \[1\] are configured"),
        (b"[" * 20_000, "quorum-state"),
    ],
)
def test_invalid_quorum_state_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(BadQuorumState, match=message):
        decode_quorum_state(data, [1])


def test_encoded_batches_are_decoded_unchanged() -> None:
    data = encode_records([(None, b"x"), (b"k", None)], base_offset=5, epoch=3, now_ms=1_000)
    change = encode_entry(Entry(7, 7, 4, LeaderChange(1, (1, 2), (1,))), 1_000)
    first, second = decode_batches(data + change)
    assert (first.base_offset, first.last_offset, first.epoch) == (5, 6, 3)
    assert first.records == ((None, b"x"), (b"k", None))
    assert (second.base_offset, second.epoch, second.records) == (7, 4, ())
