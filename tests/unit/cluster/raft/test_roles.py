"""Transitions between the roles of a Raft replica. The simulated quorums of test_simulation.py take all of them."""

from __future__ import annotations

import pytest

from odradek.cluster.raft.messages import BeginQuorumEpochRequest, VoteReply, VoteRequest
from odradek.cluster.raft.roles.transitions import TRANSITIONS, Event, Role
from odradek.runtime.machine import TransitionBug
from tests.support.raft_node import NOW, a_node, elect, sent


@pytest.mark.parametrize("role", list(Role))
def test_higher_epoch_ends_every_role(role: Role) -> None:
    assert TRANSITIONS.look_up(role, Event.HIGHER_EPOCH) is Role.UNATTACHED
    assert TRANSITIONS.look_up(role, Event.LEADER_DISCOVERED) is Role.FOLLOWER


@pytest.mark.parametrize("role", [role for role in Role if role is not Role.CANDIDATE])
def test_only_a_candidate_becomes_leader(role: Role) -> None:
    with pytest.raises(TransitionBug):
        TRANSITIONS.look_up(role, Event.ELECTION_WON)


def test_leader_with_begin_quorum_epoch_of_a_higher_epoch_becomes_follower() -> None:
    core = elect(a_node(1, epoch=2))
    core.step(BeginQuorumEpochRequest(2, 1, 9), NOW)
    assert (core.role, core.epoch, core.leader_id, core.leader_state) == (Role.FOLLOWER, 9, 2, None)


def test_prospective_replica_grants_a_vote_of_its_epoch_and_becomes_unattached() -> None:
    core = a_node(1, epoch=2)
    core.become_prospective(NOW)
    sent(core)
    core.step(VoteRequest(3, 1, 2, 1, 1, pre_vote=False), NOW)
    assert [m.granted for m in sent(core) if isinstance(m, VoteReply)] == [True]
    assert (core.role, core.epoch, core.voted_id) == (Role.UNATTACHED, 2, 3)
