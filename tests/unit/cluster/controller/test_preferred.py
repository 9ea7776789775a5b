"""Preferred leaders are elected soon after their broker has joined the ISRs again, in slices."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from odradek.cluster.controller import sweeps
from odradek.cluster.controller.commands import (
    AlterPartition,
    BalanceLeaders,
    CreateTopics,
    ElectPreferred,
    FenceBroker,
    UnfenceBroker,
)
from odradek.cluster.controller.messages.partitions import PartitionIsr
from odradek.cluster.controller.messages.topics import NewTopic
from odradek.cluster.controller.preferred import PREFERRED_ELECTION_DELAY_MS
from tests.support.raft_memory import ControllerRig

if TYPE_CHECKING:
    import pytest

    from odradek.runtime.shard import Timer

PARTITIONS = 10


def after_restart_of_broker_1(rig: ControllerRig | None = None) -> ControllerRig:
    """Make partitions on (1, 2), led by 2 after a restart of broker 1, which is in no ISR."""
    if rig is None:
        rig = ControllerRig().with_brokers(1, 2)
        rig.do(CreateTopics((NewTopic("t", assignments=tuple((index, (1, 2)) for index in range(PARTITIONS))),)))
    rig.do(FenceBroker(1))
    rig.do(UnfenceBroker(1))
    assert led_by_1(rig) == 0
    return rig


def led_by_1(rig: ControllerRig) -> int:
    return [partition.leader for partition in rig.core.state.image.topics["t"].partitions.values()].count(1)


def joins(rig: ControllerRig, *indexes: int) -> tuple[Timer, ...]:
    """Let broker 1 join the ISR of these partitions, or of all. Return the timers of the decision."""
    topic = rig.core.state.image.topics["t"]
    requests = tuple(
        PartitionIsr(topic.topic_id, index, partition.leader_epoch, partition.partition_epoch, ((2, -1), (1, -1)))
        for index, partition in topic.partitions.items()
        if not indexes or index in indexes
    )
    command = AlterPartition(2, rig.core.state.image.brokers[2].epoch, requests)
    timers = rig.core.decide(command, rig.now_ms).timers
    rig.do(command)
    return timers


def run_timers(rig: ControllerRig) -> None:
    while rig.later:
        _, command = rig.later.popitem()
        rig.do(command)
    rig.run_due()


def test_broker_that_joins_isrs_leads_its_preferred_partitions_after_a_delay() -> None:
    rig = after_restart_of_broker_1()
    (timer,) = joins(rig)
    assert (timer.command, timer.delay_ms) == (ElectPreferred(1), PREFERRED_ELECTION_DELAY_MS)
    assert led_by_1(rig) == 0
    run_timers(rig)
    assert led_by_1(rig) == PARTITIONS


def test_each_join_starts_the_delay_again() -> None:
    rig = after_restart_of_broker_1()
    first, second = joins(rig, 0, 1), joins(rig, 2)
    assert [timer.key for timer in first] == [timer.key for timer in second]
    run_timers(rig)
    assert led_by_1(rig) == 3


def test_elections_have_slices_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = after_restart_of_broker_1()
    joins(rig)
    monkeypatch.setattr(sweeps, "CHANGES_PER_SLICE", 4)
    rig.batches.clear()
    run_timers(rig)
    assert [len(batch) for batch in rig.batches] == [4, 4, 2]


def test_join_of_a_broker_that_leads_or_is_not_preferred_starts_no_election() -> None:
    rig = ControllerRig().with_brokers(1, 2)
    rig.do(CreateTopics((NewTopic("t", assignments=((0, (2, 1)),)),)))
    rig.do(FenceBroker(1))
    rig.do(UnfenceBroker(1))
    assert joins(rig) == ()


def test_no_election_if_the_automatic_rebalance_is_disabled() -> None:
    rig = after_restart_of_broker_1()
    rig.core.state.config = replace(rig.core.state.config, leader_balance_interval_ms=None)
    assert joins(rig) == ()


def test_no_election_below_the_imbalance_limit() -> None:
    rig = after_restart_of_broker_1()
    rig.core.state.config = replace(rig.core.state.config, leader_imbalance_percentage=100)
    joins(rig)
    run_timers(rig)
    assert led_by_1(rig) == 0


def test_broker_that_failed_again_is_not_elected() -> None:
    rig = after_restart_of_broker_1()
    joins(rig)
    rig.do(FenceBroker(1))
    before = len(rig.log)
    run_timers(rig)
    assert len(rig.log) == before


def test_delay_doubles_with_each_return_until_the_periodic_check() -> None:
    rig = after_restart_of_broker_1()
    delays = []
    for _ in range(8):
        (timer,) = joins(rig)
        delays.append(timer.delay_ms)
        run_timers(rig)
        after_restart_of_broker_1(rig)
    assert delays[:3] == [PREFERRED_ELECTION_DELAY_MS << returns for returns in range(3)]
    assert delays[-1] == rig.core.state.config.leader_balance_interval_ms
    rig.do(BalanceLeaders())
    (timer,) = joins(rig)
    assert timer.delay_ms == PREFERRED_ELECTION_DELAY_MS


def test_new_controller_starts_the_delay_again() -> None:
    rig = after_restart_of_broker_1()
    joins(rig)
    timers = rig.core.on_loaded(2, 0).timers
    assert [timer.delay_ms for timer in timers if timer.command == ElectPreferred(1)] == [PREFERRED_ELECTION_DELAY_MS]
