"""Epochs in messages are bounded: no forged message brings a replica close to the end of the int32 range."""

from __future__ import annotations

import pytest

from odradek.cluster.raft.core import RaftCore
from odradek.cluster.raft.epoch_limits import (
    EPOCH_JUMP_MAX,
    EPOCH_LAST,
    EPOCHS_PER_SECOND,
    REPLY_EPOCH_MAX,
    EpochBudget,
)
from odradek.cluster.raft.messages import (
    NO_NODE,
    BeginQuorumEpochReply,
    BeginQuorumEpochRequest,
    EndQuorumEpochReply,
    EndQuorumEpochRequest,
    EpochEnd,
    FetchRequest,
    FetchSnapshotRequest,
    HardState,
    Message,
    VoteReply,
    VoteRequest,
)
from odradek.cluster.raft.quorum_state import BadQuorumState, decode_quorum_state, encode_quorum_state
from odradek.cluster.raft.roles.transitions import Role
from odradek.protocol.errors import ErrorCode
from tests.support.raft_node import NOW, a_log, a_node, elect, sent
from tests.support.transcripts.raft import Fixed

INT32_MAX = 2**31 - 1
OWN_EPOCH = 7


def requests_of(epoch: int) -> list[Message]:
    """Return each request that can raise the epoch of its receiver."""
    return [
        VoteRequest(2, 1, epoch, 1, 1, pre_vote=False),
        VoteRequest(2, 1, epoch, 1, 1, pre_vote=True),
        BeginQuorumEpochRequest(2, 1, epoch),
        EndQuorumEpochRequest(2, 1, epoch, ()),
    ]


@pytest.mark.parametrize("kind", range(4))
@pytest.mark.parametrize("epoch", [OWN_EPOCH + EPOCH_JUMP_MAX + 1, REPLY_EPOCH_MAX, EPOCH_LAST, INT32_MAX])
def test_request_with_epoch_far_ahead_is_refused_and_changes_no_state(kind: int, epoch: int) -> None:
    core = a_node(1, epoch=OWN_EPOCH)
    core.step(requests_of(epoch)[kind], NOW)
    (reply,) = sent(core)
    assert isinstance(reply, VoteReply | BeginQuorumEpochReply | EndQuorumEpochReply)
    assert (reply.error, reply.epoch) == (ErrorCode.UNKNOWN_LEADER_EPOCH, OWN_EPOCH)
    assert (core.role, core.replica.hard_state) == (Role.UNATTACHED, HardState(OWN_EPOCH))


@pytest.mark.parametrize("kind", range(4))
def test_request_with_largest_permitted_jump_raises_the_epoch(kind: int) -> None:
    core = a_node(1, epoch=OWN_EPOCH)
    core.step(requests_of(OWN_EPOCH + EPOCH_JUMP_MAX)[kind], NOW)
    assert core.epoch == OWN_EPOCH + EPOCH_JUMP_MAX


@pytest.mark.parametrize("kind", range(4))
def test_requests_that_raise_no_epoch_leave_the_budget_to_others(kind: int) -> None:
    core = a_node(1, epoch=OWN_EPOCH)
    far = OWN_EPOCH + EPOCH_JUMP_MAX
    refused: list[Message] = [
        *(VoteRequest(9, 1, far, 1, 1, pre_vote=pre_vote) for pre_vote in (True, False)),  # no voter
        *(VoteRequest(2, 1, far, 1, -1, pre_vote=pre_vote) for pre_vote in (True, False)),  # no valid log
        BeginQuorumEpochRequest(9, 1, far),
        EndQuorumEpochRequest(9, 1, far, ()),
        *requests_of(far + 1),
        *requests_of(OWN_EPOCH - 1),
    ]
    for _ in range(10):
        for request in (*refused, VoteRequest(2, 1, OWN_EPOCH, 1, 1, pre_vote=True)):
            core.step(request, NOW)
    assert core.epoch == OWN_EPOCH
    core.step(requests_of(far)[kind], NOW)
    assert core.epoch == far


def test_repeated_jumps_are_limited_by_their_rate() -> None:
    core = a_node(1, epoch=OWN_EPOCH)
    for _ in range(100):
        core.step(VoteRequest(2, 1, core.epoch + EPOCH_JUMP_MAX // 2, 1, 1, pre_vote=False), NOW)
    assert core.epoch == OWN_EPOCH + EPOCH_JUMP_MAX
    core.step(VoteRequest(2, 1, core.epoch + 1, 1, 1, pre_vote=False), NOW)
    assert core.epoch == OWN_EPOCH + EPOCH_JUMP_MAX
    core.step(VoteRequest(2, 1, core.epoch + EPOCHS_PER_SECOND, 1, 1, pre_vote=False), NOW + 1_000)
    assert core.epoch == OWN_EPOCH + EPOCH_JUMP_MAX + EPOCHS_PER_SECOND


def test_budget_refills_in_fractions_of_a_second_up_to_the_largest_jump() -> None:
    budget = EpochBudget()
    assert budget.take(EPOCH_JUMP_MAX, 0)
    assert not any(budget.take(1, ms) for ms in range(0, 1_000 // EPOCHS_PER_SECOND, 7))
    assert budget.take(1, 1_000 // EPOCHS_PER_SECOND)
    assert not budget.take(EPOCH_JUMP_MAX + 1, 10**12)
    assert budget.take(EPOCH_JUMP_MAX, 10**12)


@pytest.mark.parametrize("kind", range(4))
def test_request_that_claims_the_id_of_its_receiver_is_refused(kind: int) -> None:
    core = elect(a_node(1, epoch=OWN_EPOCH))
    before = core.replica.hard_state
    forged: list[Message] = [
        VoteRequest(1, 1, 99, 1, 1, pre_vote=False),
        VoteRequest(1, 1, 99, 1, 1, pre_vote=True),
        BeginQuorumEpochRequest(1, 1, 99),
        EndQuorumEpochRequest(1, 1, 99, ()),
    ]
    core.step(forged[kind], NOW)
    (reply,) = sent(core)
    assert isinstance(reply, VoteReply | BeginQuorumEpochReply | EndQuorumEpochReply)
    assert reply.error is ErrorCode.INVALID_REQUEST
    assert (core.role, core.replica.hard_state) == (Role.LEADER, before)


@pytest.mark.parametrize(
    "request_",
    [
        FetchRequest(2, 1, INT32_MAX, 1, INT32_MAX, 0),
        FetchSnapshotRequest(2, 1, INT32_MAX, EpochEnd(INT32_MAX, 1), 0, 1),
    ],
)
def test_fetch_with_epoch_far_ahead_changes_no_state(request_: Message) -> None:
    core = elect(a_node(1, epoch=OWN_EPOCH))
    core.step(request_, NOW)
    assert (core.role, core.epoch) == (Role.LEADER, OWN_EPOCH + 1)


@pytest.mark.parametrize("epoch", [5_000_000, REPLY_EPOCH_MAX])
def test_lagging_voter_learns_the_leader_of_a_far_epoch_from_a_reply(epoch: int) -> None:
    core = a_node(1, epoch=OWN_EPOCH)
    core.step(BeginQuorumEpochRequest(2, 1, epoch), NOW)  # any process can send it
    assert core.epoch == OWN_EPOCH
    core.become_prospective(NOW)
    core.step(VoteReply(2, 1, epoch, 2, False, True, ErrorCode.FENCED_LEADER_EPOCH), NOW)
    assert (core.role, core.epoch, core.leader_id) == (Role.FOLLOWER, epoch, 2)


@pytest.mark.parametrize("epoch", [REPLY_EPOCH_MAX + 1, INT32_MAX])
def test_reply_of_an_impossible_epoch_is_ignored(epoch: int) -> None:
    core = a_node(1, epoch=OWN_EPOCH)
    core.become_prospective(NOW)
    core.step(VoteReply(2, 1, epoch, 2, False, True, ErrorCode.FENCED_LEADER_EPOCH), NOW)
    assert (core.role, core.epoch) == (Role.PROSPECTIVE, OWN_EPOCH)


def test_elections_continue_above_the_limit_of_replies() -> None:
    core = a_node(1, epoch=REPLY_EPOCH_MAX)
    core.step(VoteRequest(2, 1, REPLY_EPOCH_MAX + 1, 1, 1, pre_vote=False), NOW)
    assert (core.epoch, core.voted_id) == (REPLY_EPOCH_MAX + 1, 2)
    core.become_prospective(NOW)
    core.step(VoteReply(3, 1, REPLY_EPOCH_MAX + 2, 3, False, True, ErrorCode.FENCED_LEADER_EPOCH), NOW)
    assert (core.epoch, core.leader_id) == (REPLY_EPOCH_MAX + 2, 3)


def test_no_election_starts_after_the_last_epoch() -> None:
    core = a_node(1, epoch=EPOCH_LAST - 1)
    elect(core)
    assert core.epoch == EPOCH_LAST
    core.resign(NOW)
    core.tick(NOW + 1_000_000)
    assert (core.role, core.epoch) == (Role.RESIGNED, EPOCH_LAST)
    assert core.next_deadline_ms is not None
    assert core.next_deadline_ms > NOW + 1_000_000


def test_won_pre_vote_in_the_last_epoch_starts_no_election() -> None:
    core = RaftCore(1, [1, 2, 3], a_log(1), HardState(EPOCH_LAST), rng=Fixed(1))
    core.start(NOW)
    core.become_prospective(NOW)
    sent(core)
    core.step(VoteReply(2, 1, EPOCH_LAST, NO_NODE, True, True), NOW)
    assert (core.role, core.epoch) == (Role.UNATTACHED, EPOCH_LAST)


@pytest.mark.parametrize("epoch", [EPOCH_LAST, INT32_MAX, INT32_MAX + 1])
def test_impossible_epoch_in_quorum_state_is_refused_with_instructions(epoch: int) -> None:
    data = encode_quorum_state(HardState(epoch), [1])
    with pytest.raises(BadQuorumState, match=rf"epoch {epoch} in leaderEpoch of quorum-state .* docs/operations\.md"):
        decode_quorum_state(data, [1])
