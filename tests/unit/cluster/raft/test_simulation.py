"""Hundreds of short lives of a quorum, and the proof that the checks would see it if a rule of agreement were missing."""

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
from tests.support.raft_sim import RaftSim
from tests.support.raft_watch import Violated

if TYPE_CHECKING:
    from collections.abc import Callable

    from odradek.cluster.raft.messages import Ready

LIFE_MS = 3_000
SEEDS = 200
SEEDS_TO_FIND_A_BUG = 300


RARE = (Role.LEADER, Event.LEADER_DISCOVERED), (Role.PROSPECTIVE, Event.VOTE_GRANTED)
"""Transitions that a few hundred runs need not contain; test_roles.py takes them."""


def live(seed: int, voters: int) -> RaftSim:
    sim = RaftSim(seed, voters, observers=seed % 2)
    sim.run(LIFE_MS)
    sim.settle()
    return sim


@pytest.mark.parametrize("voters", [1, 2, 3, 4, 5])
def test_what_is_agreed_stays_agreed(voters: int) -> None:
    counts = count(TRANSITIONS)
    lives = [live(seed, voters).watch for seed in range(SEEDS)]
    assert sum(len(life.leaders) for life in lives) > SEEDS
    assert sum(len(life.committed) for life in lives) > 10 * SEEDS
    assert sum(life.lost for life in lives) > SEEDS // 10
    if voters >= 3:
        assert sum(life.truncations for life in lives) > 10
        assert sum(life.installed for life in lives) > 2
        assert sum(life.replaced for life in lives) > 10
        cells = [cell for cell in counts.possible if cell not in RARE]
        assert (
            note(TRANSITIONS.name, ((event.name, role.name, counts.visits[role, event]) for role, event in cells)) == []
        )


# ---- rules taken away -----------------------------------------------------------------------------------------------


def votes_without_looking_at_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LogView, "is_at_most", lambda *_: True)


def answers_before_its_vote_is_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    take = RaftCore.take_ready

    def forgetful(core: RaftCore) -> Ready | None:
        ready = take(core)
        state = None if ready is None else ready.hard_state
        if ready is not None and state is not None and state.voted_id not in {-1, core.node_id}:
            return replace(ready, hard_state=None)
        return ready

    monkeypatch.setattr(RaftCore, "take_ready", forgetful)


def acknowledges_before_it_has_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    append = LogView.append

    def at_once(log: LogView, entry: object) -> None:
        append(log, entry)  # type: ignore[arg-type]
        log.stable_end = log.end_offset

    monkeypatch.setattr(LogView, "append", at_once)


def counts_votes_of_voters_that_have_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Election, "_counted", lambda self: len(self.granted))


PLANTED = [
    votes_without_looking_at_the_log,
    answers_before_its_vote_is_durable,
    acknowledges_before_it_has_synced,
    counts_votes_of_voters_that_have_forgotten,
]


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_missing_rule_is_found(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises((Violated, AssertionError, LostCommitted)):
        for seed in range(SEEDS_TO_FIND_A_BUG):
            live(seed, 3)
