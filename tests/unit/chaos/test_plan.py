"""The fault plan of a chaos run: it depends only on the seed, and fits the length and the brokers of the run."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.chaos.clients.common import SESSION_MS
from tests.chaos.plan import CLUSTER_FAULTS, FAULT_FREE_SECONDS, FAULT_SECONDS, MEMBER_FAULTS, generate

SECONDS = 600.0


def test_same_seed_generates_the_same_plan() -> None:
    assert generate(7, SECONDS, 3) == generate(7, SECONDS, 3)
    assert generate(7, SECONDS, 3) != generate(8, SECONDS, 3)


@pytest.mark.parametrize("seed", range(20))
def test_start_is_free_of_faults_and_each_fault_is_within_its_burst(seed: int) -> None:
    bursts = generate(seed, SECONDS, 3)
    assert bursts[0].begin == FAULT_FREE_SECONDS
    assert bursts[0].faults
    for before, after in pairwise(bursts):
        assert before.end == after.begin
    for burst in bursts:
        for fault in burst.faults:
            assert burst.begin <= fault.at
            assert fault.at + fault.seconds <= burst.end
            assert fault.seconds <= FAULT_SECONDS[1]
            if fault.kind not in MEMBER_FAULTS:  # faults of clients have no target node
                assert fault.node in {1, 2, 3}
                assert fault.other != fault.node


def test_a_quarter_of_the_bursts_is_empty() -> None:
    bursts = [burst for seed in range(200) for burst in generate(seed, SECONDS, 3)]
    empty = sum(1 for burst in bursts if not burst.faults)
    assert 0.15 < empty / len(bursts) < 0.35


def test_plan_for_one_broker_contains_no_cluster_fault() -> None:
    kinds_of_three = {
        fault.kind for seed in range(100) for burst in generate(seed, SECONDS, 3) for fault in burst.faults
    }
    kinds_of_one = {fault.kind for seed in range(100) for burst in generate(seed, SECONDS, 1) for fault in burst.faults}
    assert kinds_of_three >= set(CLUSTER_FAULTS)
    assert kinds_of_three - kinds_of_one == set(CLUSTER_FAULTS)


def test_plan_contains_all_member_faults_and_pauses_longer_than_a_session() -> None:
    faults = [fault for seed in range(50) for burst in generate(seed, SECONDS, 3) for fault in burst.faults]
    assert {fault.kind for fault in faults} >= set(MEMBER_FAULTS)
    pauses = [fault.seconds for fault in faults if fault.kind == "member_pause"]
    assert min(pauses) > SESSION_MS / 1000
