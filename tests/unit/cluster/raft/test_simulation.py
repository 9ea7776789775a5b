"""Simulated quorums: random short runs keep the agreement, and the checks detect each removed rule."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from odradek.cluster.raft.core import RaftCore
from odradek.cluster.raft.election import Election
from odradek.cluster.raft.errors import LostCommitted
from odradek.cluster.raft.log_view import LogView
from odradek.cluster.raft.roles.transitions import TRANSITIONS, Event, Role
from tests.machines.transition_visits import note
from tests.support.cell_counts import count
from tests.support.effort import effort
from tests.support.raft_sim import RaftSim
from tests.support.raft_watch import Violated

if TYPE_CHECKING:
    from collections.abc import Callable

    from odradek.cluster.raft.messages import Ready

RUN_MS = 3_000
SEEDS = effort(100)
SEEDS_TO_FIND_A_BUG = 300


RARE = (Role.LEADER, Event.LEADER_DISCOVERED), (Role.PROSPECTIVE, Event.VOTE_GRANTED)
"""Transitions that a few hundred runs may not contain. test_roles.py covers them."""


def simulate(seed: int, voters: int) -> RaftSim:
    sim = RaftSim(seed, voters, observers=seed % 2)
    sim.run(RUN_MS)
    sim.settle()
    return sim


@pytest.mark.parametrize("voters", [1, 2, 3, pytest.param(4, marks=pytest.mark.full), 5])
def test_committed_entries_stay_committed(voters: int) -> None:
    counts = count(TRANSITIONS)
    watches = [simulate(seed, voters).watch for seed in range(SEEDS)]
    assert sum(len(watch.leaders) for watch in watches) > SEEDS
    assert sum(len(watch.committed) for watch in watches) > 10 * SEEDS
    assert sum(watch.lost for watch in watches) > SEEDS // 10
    if voters >= 3:
        assert sum(watch.truncations for watch in watches) > 10
        assert sum(watch.installed for watch in watches) > 2
        assert sum(watch.replaced for watch in watches) > 10
        cells = [cell for cell in counts.possible if cell not in RARE]
        assert (
            note(TRANSITIONS.name, ((event.name, role.name, counts.visits[role, event]) for role, event in cells)) == []
        )


# ---- planted bugs ---------------------------------------------------------------------------------------------------


def plant_votes_without_log_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LogView, "is_at_most", lambda *_: True)


def plant_response_before_the_vote_is_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    take = RaftCore.take_ready

    def without_vote(core: RaftCore) -> Ready | None:
        ready = take(core)
        state = None if ready is None else ready.hard_state
        if ready is not None and state is not None and state.voted_id not in {-1, core.node_id}:
            return replace(ready, hard_state=None)
        return ready

    monkeypatch.setattr(RaftCore, "take_ready", without_vote)


def plant_acknowledgment_before_the_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    append = LogView.append

    def durable_immediately(log: LogView, entry: object) -> None:
        append(log, entry)  # type: ignore[arg-type]
        log.stable_end = log.end_offset

    monkeypatch.setattr(LogView, "append", durable_immediately)


def plant_votes_of_voters_with_lost_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Election, "_counted", lambda self: len(self.granted))


PLANTED = [
    plant_votes_without_log_check,
    plant_response_before_the_vote_is_durable,
    plant_acknowledgment_before_the_sync,
    plant_votes_of_voters_with_lost_logs,
]


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_planted_bug_is_found(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises((Violated, AssertionError, LostCommitted)):
        for seed in range(SEEDS_TO_FIND_A_BUG):
            simulate(seed, 3)
