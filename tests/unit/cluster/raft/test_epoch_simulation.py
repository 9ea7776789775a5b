"""Simulated quorums with far epochs: forged requests at all voters, and a voter with an empty disk that lags far."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from odradek.cluster.raft.epoch_limits import EPOCH_JUMP_MAX, EPOCHS_PER_SECOND
from odradek.cluster.raft.messages import BeginQuorumEpochRequest, EndQuorumEpochRequest, Standing, VoteRequest
from tests.support.effort import effort
from tests.support.raft_sim import RaftSim

if TYPE_CHECKING:
    from odradek.cluster.raft.messages import HardState, Message

SEEDS = effort(20)
FAR_EPOCH = 5_000_000
INT32_MAX = 2**31 - 1
RECOVERY_MS = 2_000
"""Ten election time-outs of RaftSim."""


def settled(seed: int, observers: int = 0) -> RaftSim:
    """Return a quorum that serves, after the disk of each voter has it as an ordinary one.

    A voter that starts again before counts as new, and a new voter alone with another one elects no leader.
    """
    sim = RaftSim(seed, 3, observers)
    sim.settle()
    while not all(is_ordinary(sim.disks[voter].hard_state) for voter in sim.voters):
        sim.run(1)
    return sim


def is_ordinary(state: HardState | None) -> bool:
    return state is not None and state.standing is Standing.ORDINARY


def forged(sim: RaftSim, target: int, own_epoch: int) -> Message:
    """Return a request with a far epoch that claims the id of a voter."""
    source = sim.rng.choice(sim.voters)
    epoch = sim.rng.choice([INT32_MAX, INT32_MAX - 1, own_epoch + EPOCH_JUMP_MAX, own_epoch + sim.rng.randrange(1_000)])
    kind = sim.rng.choice(["vote", "pre-vote", "begin", "end"])
    if kind == "begin":
        return BeginQuorumEpochRequest(source, target, epoch)
    if kind == "end":
        return EndQuorumEpochRequest(source, target, epoch, ())
    return VoteRequest(source, target, epoch, own_epoch, 10**6, pre_vote=kind == "pre-vote")


@pytest.mark.parametrize("seed", range(SEEDS))
def test_quorum_serves_after_a_flood_of_forged_epochs(seed: int) -> None:
    sim = settled(seed)
    for _ in range(200):
        for node in sim.voters:
            sim.step(node, lambda core: core.step(forged(sim, core.node_id, core.epoch), sim.now_ms))
        sim.run(10)
    sim.settle()
    for node in sim.voters:
        sim.crash(node)
        sim.restart(node)
    sim.settle()
    refilled = sim.now_ms * EPOCHS_PER_SECOND // 1_000
    elections = 1_000
    highest = max(member.core.epoch for member in sim.nodes.values())
    # Each voter has a budget of its own, and the others learn its epoch from its replies.
    assert 1_000 < highest <= len(sim.voters) * (EPOCH_JUMP_MAX + refilled) + elections


@pytest.mark.parametrize("pre_vote", [True, False])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_majority_elects_a_leader_soon_after_a_flood_of_votes_has_used_all_budgets(
    seed: int, *, pre_vote: bool
) -> None:
    """The epochs of two voters differ by more than their budgets, and one of the three voters fails."""
    sim = settled(seed)
    for node, disk in sim.disks.items():
        sim.crash(node)
        assert disk.hard_state is not None
        disk.hard_state = replace(disk.hard_state, epoch=node * FAR_EPOCH, leader_id=-1, voted_id=-1)
    for node in sim.voters:
        sim.restart(node)
        source = sim.rng.choice([voter for voter in sim.voters if voter != node])
        for power in reversed(range(EPOCH_JUMP_MAX.bit_length())):
            core = sim.nodes[node].core
            vote = VoteRequest(source, node, core.epoch + 2**power, core.log.last_epoch, 10**6, pre_vote=pre_vote)
            sim.step(node, lambda core, vote=vote: core.step(vote, sim.now_ms))  # type: ignore[misc]
    assert [sim.nodes[node].core.epoch for node in sim.voters] == [
        node * FAR_EPOCH + EPOCH_JUMP_MAX for node in sim.voters
    ]
    sim.crash(sim.rng.choice(sim.voters))
    sim.run(RECOVERY_MS)
    assert sim.unsettled() is None


@pytest.mark.parametrize("seed", range(SEEDS))
def test_voter_with_an_empty_disk_joins_a_quorum_at_a_far_epoch(seed: int) -> None:
    sim = settled(seed, observers=1)
    for node, disk in sim.disks.items():
        sim.crash(node)
        assert disk.hard_state is not None
        disk.hard_state = replace(disk.hard_state, epoch=FAR_EPOCH, leader_id=-1, voted_id=-1)
    for node in sim.disks:
        sim.restart(node)
    sim.settle()
    replaced = sim.rng.choice(sim.voters)
    sim.lose_disk(replaced)
    assert sim.disks[replaced].hard_state is None
    sim.settle()
    assert sim.nodes[replaced].core.epoch > FAR_EPOCH
