"""Clusters of cores in bad weather: who is gone is found by all, and who is not is not.

Time is the rig's own, so bounds on it are facts of the run and not of the machine.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from odradek.cluster.membership.transitions import Event, State
from tests.support.membership_rig import Rig, Weather

if TYPE_CHECKING:
    from odradek.cluster.membership.members import Change

SIZES = (3, 5, 9)
SEEDS = range(6)
ROUGH = Weather(delay_ms=(1, 20), loss=0.2, duplication=0.02)
FOUND_WITHIN_MS = 2_500


class Watched:
    def __init__(self, size: int, seed: int, weather: Weather = ROUGH) -> None:
        self.failures: list[tuple[int, int, Change]] = []
        self.rig = Rig(seed=seed, weather=weather, on_change=self.hear)
        for node_id in range(1, size + 1):
            self.rig.start(node_id)

    def hear(self, node_id: int, change: Change) -> None:
        if change.is_failure_declaration:
            self.failures.append((self.rig.now_ms, node_id, change))

    def without_tcp(self) -> Watched:
        """Knocks come to nothing: UDP alone has to do."""
        self.rig.replies_to_tcp_probes = False
        return self


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_node_that_falls_silent_is_found_by_all(size: int, seed: int) -> None:
    watched = Watched(size, seed).without_tcp()
    rig = watched.rig
    rig.run(1_000 + 37 * seed)
    rig.stop(size)
    rig.run(FOUND_WITHIN_MS)
    assert {node: rig.states(node)[size] for node in rig.running_nodes()} == dict.fromkeys(range(1, size), State.FAILED)
    assert {change.node_id for _, _, change in watched.failures} == {size}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_process_that_is_killed_is_found_by_all_and_nobody_else_is(size: int, seed: int) -> None:
    watched = Watched(size, seed)
    rig = watched.rig
    rig.run(1_000 + 37 * seed)
    rig.crash(1 + seed % size, resets=bool(seed % 2))
    rig.run(FOUND_WITHIN_MS // 2)
    gone = 1 + seed % size
    assert {rig.states(node)[gone] for node in rig.running_nodes()} == {State.FAILED}
    assert {change.node_id for _, _, change in watched.failures} == {gone}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("seed", SEEDS)
def test_one_datagram_in_five_lost_condemns_nobody(size: int, seed: int) -> None:
    watched = Watched(size, seed).without_tcp()
    watched.rig.run(20_000)
    assert watched.failures == []
    assert any(watched.rig.nodes[node].core.counters.suspicions for node in watched.rig.nodes)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_partition_is_seen_from_both_sides_and_heals(size: int, seed: int) -> None:
    watched = Watched(size, seed)
    rig = watched.rig
    rig.run(1_000)
    minority = range(1, (size + 1) // 2)
    majority = range((size + 1) // 2, size + 1)
    for a in minority:
        for b in majority:
            rig.partition(a, b)
            rig.partition(b, a)
    rig.run(FOUND_WITHIN_MS)
    for side, other in ((minority, majority), (majority, minority)):
        for node in side:
            states = rig.states(node)
            assert all(states[each] is State.FAILED for each in other)
            assert all(states[each] is not State.FAILED for each in side if each != node)
    rig.heal()
    rig.run(4_000)
    for node in rig.nodes:
        assert State.FAILED not in rig.states(node).values()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("seed", SEEDS)
def test_one_way_that_is_cut_between_two_nodes_harms_nobody(size: int, seed: int) -> None:
    watched = Watched(size, seed, Weather(delay_ms=(1, 20), loss=0.05)).without_tcp()
    watched.rig.partition(1, 2)
    watched.rig.run(15_000)
    assert watched.failures == []


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("seed", SEEDS)
def test_nodes_that_get_no_processor_accuse_nobody(size: int, seed: int) -> None:
    """Everybody's timers are late, by up to three seconds, again and again; datagrams are read when the node runs."""
    watched = Watched(size, seed, Weather(delay_ms=(1, 5))).without_tcp()
    rig = watched.rig
    for node_id in rig.nodes:
        for _ in range(20):
            rig.at(rig.rng.randrange(20_000), partial(setattr, rig.nodes[node_id], "late_ms", rig.rng.randrange(3_000)))
    rig.run(25_000)
    assert watched.failures == []


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_node_that_was_stopped_is_condemned_and_condemns_nobody(size: int, seed: int) -> None:
    watched = Watched(size, seed, Weather(delay_ms=(1, 5)))
    rig = watched.rig
    rig.run(1_000 + 37 * seed)
    rig.stop(1)
    rig.run(5_000)
    assert {change.node_id for _, _, change in watched.failures} == {1}
    rig.resume(1)
    rig.run(3_000)
    assert {change.node_id for _, _, change in watched.failures} == {1}
    assert {rig.states(node)[1] for node in rig.nodes if node != 1} == {State.ALIVE}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_short_stop_is_forgiven(size: int, seed: int) -> None:
    watched = Watched(size, seed, Weather(delay_ms=(1, 5)))
    rig = watched.rig
    rig.run(1_000 + 37 * seed)
    for node_id in range(1, size + 1):
        rig.stop(node_id)
        rig.run(600)
        rig.resume(node_id)
        rig.run(400)
    assert watched.failures == []


@pytest.mark.parametrize("seed", SEEDS)
def test_a_verdict_names_the_life_that_is_over(seed: int) -> None:
    watched = Watched(3, seed)
    rig = watched.rig
    rig.run(1_000)
    epoch = rig.nodes[2].epoch
    rig.crash(2, resets=True)
    rig.start(2, register=False)
    rig.run(2_000)
    rig.register(2)
    rig.run(5_000)
    assert {(change.node_id, change.broker_epoch) for _, _, change in watched.failures} == {(2, epoch)}
    assert {change.event for _, _, change in watched.failures} <= {Event.REPLACED, Event.NOT_LISTENING}
    assert {rig.states(node)[2] for node in (1, 3)} != {State.FAILED}


def test_a_seed_is_a_run() -> None:
    def run() -> list[tuple[int, int, Change]]:
        watched = Watched(5, 11)
        watched.rig.stop(3)
        watched.rig.run(4_000)
        return watched.failures

    assert run() == run()
