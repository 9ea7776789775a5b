"""Simulated clusters of failure-detector cores with lossy networks: every node detects failures, and only failures.

Time is virtual, so bounds on it do not depend on the machine.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from odradek.cluster.membership.transitions import Event, State
from tests.support.membership_rig import DatagramFaults, Rig

if TYPE_CHECKING:
    from odradek.cluster.membership.members import Change

SIZES = (3, 5, 9)
SEEDS = range(6)
LOSSY = DatagramFaults(delay_ms=(1, 20), loss=0.2, duplication=0.02)
DETECTED_WITHIN_MS = 2_500


class ObservedCluster:
    def __init__(self, size: int, seed: int, datagram_faults: DatagramFaults = LOSSY) -> None:
        self.failures: list[tuple[int, int, Change]] = []
        self.rig = Rig(seed=seed, datagram_faults=datagram_faults, on_change=self.on_change)
        for node_id in range(1, size + 1):
            self.rig.start(node_id)

    def on_change(self, node_id: int, change: Change) -> None:
        if change.is_failure_declaration:
            self.failures.append((self.rig.now_ms, node_id, change))

    def without_tcp(self) -> ObservedCluster:
        """Let TCP probes time out, so that detection uses UDP only."""
        self.rig.replies_to_tcp_probes = False
        return self


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("seed", SEEDS)
def test_silent_node_is_detected_by_every_node(size: int, seed: int) -> None:
    cluster = ObservedCluster(size, seed).without_tcp()
    rig = cluster.rig
    rig.run(1_000 + 37 * seed)
    rig.stop(size)
    rig.run(DETECTED_WITHIN_MS)
    assert {node: rig.states(node)[size] for node in rig.running_nodes()} == dict.fromkeys(range(1, size), State.FAILED)
    assert {change.node_id for _, _, change in cluster.failures} == {size}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("seed", SEEDS)
def test_killed_process_is_detected_by_every_node_and_no_other_fails(size: int, seed: int) -> None:
    cluster = ObservedCluster(size, seed)
    rig = cluster.rig
    rig.run(1_000 + 37 * seed)
    rig.crash(1 + seed % size, resets=bool(seed % 2))
    rig.run(DETECTED_WITHIN_MS // 2)
    failed = 1 + seed % size
    assert {rig.states(node)[failed] for node in rig.running_nodes()} == {State.FAILED}
    assert {change.node_id for _, _, change in cluster.failures} == {failed}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("seed", SEEDS)
def test_loss_of_one_datagram_in_five_causes_no_failure_declaration(size: int, seed: int) -> None:
    cluster = ObservedCluster(size, seed).without_tcp()
    cluster.rig.run(20_000)
    assert cluster.failures == []
    assert any(cluster.rig.nodes[node].core.counters.suspicions for node in cluster.rig.nodes)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("seed", SEEDS)
def test_partition_is_detected_on_both_sides_and_heals(size: int, seed: int) -> None:
    cluster = ObservedCluster(size, seed)
    rig = cluster.rig
    rig.run(1_000)
    minority = range(1, (size + 1) // 2)
    majority = range((size + 1) // 2, size + 1)
    for a in minority:
        for b in majority:
            rig.partition(a, b)
            rig.partition(b, a)
    rig.run(DETECTED_WITHIN_MS)
    for side, other in ((minority, majority), (majority, minority)):
        for node in side:
            states = rig.states(node)
            assert all(states[node_id] is State.FAILED for node_id in other)
            assert all(states[node_id] is not State.FAILED for node_id in side if node_id != node)
    rig.heal()
    rig.run(4_000)
    for node in rig.nodes:
        assert State.FAILED not in rig.states(node).values()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("seed", SEEDS)
def test_one_way_partition_between_two_nodes_causes_no_failure_declaration(size: int, seed: int) -> None:
    cluster = ObservedCluster(size, seed, DatagramFaults(delay_ms=(1, 20), loss=0.05)).without_tcp()
    cluster.rig.partition(1, 2)
    cluster.rig.run(15_000)
    assert cluster.failures == []


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("seed", SEEDS)
def test_late_timers_cause_no_failure_declaration(size: int, seed: int) -> None:
    """The timers of every node are late by up to three seconds, repeatedly. A node reads its datagrams when it runs."""
    cluster = ObservedCluster(size, seed, DatagramFaults(delay_ms=(1, 5))).without_tcp()
    rig = cluster.rig
    for node_id in rig.nodes:
        for _ in range(20):
            rig.at(rig.rng.randrange(20_000), partial(setattr, rig.nodes[node_id], "late_ms", rig.rng.randrange(3_000)))
    rig.run(25_000)
    assert cluster.failures == []


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("seed", SEEDS)
def test_stopped_node_is_declared_failed_and_declares_no_other_failed(size: int, seed: int) -> None:
    cluster = ObservedCluster(size, seed, DatagramFaults(delay_ms=(1, 5)))
    rig = cluster.rig
    rig.run(1_000 + 37 * seed)
    rig.stop(1)
    rig.run(5_000)
    assert {change.node_id for _, _, change in cluster.failures} == {1}
    rig.resume(1)
    rig.run(3_000)
    assert {change.node_id for _, _, change in cluster.failures} == {1}
    assert {rig.states(node)[1] for node in rig.nodes if node != 1} == {State.ALIVE}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("seed", SEEDS)
def test_short_stop_causes_no_failure_declaration(size: int, seed: int) -> None:
    cluster = ObservedCluster(size, seed, DatagramFaults(delay_ms=(1, 5)))
    rig = cluster.rig
    rig.run(1_000 + 37 * seed)
    for node_id in range(1, size + 1):
        rig.stop(node_id)
        rig.run(600)
        rig.resume(node_id)
        rig.run(400)
    assert cluster.failures == []


@pytest.mark.parametrize("seed", SEEDS)
def test_failure_declaration_names_the_failed_incarnation(seed: int) -> None:
    cluster = ObservedCluster(3, seed)
    rig = cluster.rig
    rig.run(1_000)
    epoch = rig.nodes[2].epoch
    rig.crash(2, resets=True)
    rig.start(2, register=False)
    rig.run(2_000)
    rig.register(2)
    rig.run(5_000)
    assert {(change.node_id, change.broker_epoch) for _, _, change in cluster.failures} == {(2, epoch)}
    assert {change.event for _, _, change in cluster.failures} <= {Event.REPLACED, Event.NOT_LISTENING}
    assert {rig.states(node)[2] for node in (1, 3)} != {State.FAILED}


def test_same_seed_gives_the_same_run() -> None:
    def run() -> list[tuple[int, int, Change]]:
        cluster = ObservedCluster(5, 11)
        cluster.rig.stop(3)
        cluster.rig.run(4_000)
        return cluster.failures

    assert run() == run()
