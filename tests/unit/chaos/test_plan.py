"""The plan of a chaos run: drawn from the seed alone, and fit for the run it is drawn for."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.chaos.clients.common import SESSION_MS
from tests.chaos.plan import FREE_SECONDS, MEMBER_FAULTS, OF_A_GROUP, PAUSE_SECONDS, draw

MINUTES = 600.0


def test_a_seed_draws_the_same_faults_again() -> None:
    assert draw(7, MINUTES, 3) == draw(7, MINUTES, 3)
    assert draw(7, MINUTES, 3) != draw(8, MINUTES, 3)


@pytest.mark.parametrize("seed", range(20))
def test_the_start_is_free_and_every_fault_lies_in_its_burst(seed: int) -> None:
    bursts = draw(seed, MINUTES, 3)
    assert bursts[0].begin == FREE_SECONDS
    assert bursts[0].faults
    for before, after in pairwise(bursts):
        assert before.end == after.begin
    for burst in bursts:
        for fault in burst.faults:
            assert burst.begin <= fault.at
            assert fault.at + fault.seconds <= burst.end
            assert fault.seconds <= PAUSE_SECONDS[1]
            if fault.kind not in MEMBER_FAULTS:  # these strike no node
                assert fault.node in {1, 2, 3}
                assert fault.other != fault.node


def test_a_quarter_of_the_bursts_is_quiet() -> None:
    bursts = [burst for seed in range(200) for burst in draw(seed, MINUTES, 3)]
    quiet = sum(1 for burst in bursts if not burst.faults)
    assert 0.15 < quiet / len(bursts) < 0.35


def test_every_kind_of_fault_is_drawn_for_three_brokers_and_none_that_needs_others_for_one() -> None:
    three = {fault.kind for seed in range(100) for burst in draw(seed, MINUTES, 3) for fault in burst.faults}
    one = {fault.kind for seed in range(100) for burst in draw(seed, MINUTES, 1) for fault in burst.faults}
    assert three >= set(OF_A_GROUP)
    assert three - one == set(OF_A_GROUP)


def test_members_of_groups_get_every_fault_and_their_pauses_outlast_their_sessions() -> None:
    faults = [fault for seed in range(50) for burst in draw(seed, MINUTES, 3) for fault in burst.faults]
    assert {fault.kind for fault in faults} >= set(MEMBER_FAULTS)
    pauses = [fault.seconds for fault in faults if fault.kind == "member_pause"]
    assert min(pauses) > SESSION_MS / 1000
