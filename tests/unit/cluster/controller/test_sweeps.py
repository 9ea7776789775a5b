"""Changes of brokers with many partitions: leaders move in slices before the broker is fenced."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from odradek.cluster.controller import sweeps
from odradek.cluster.controller.commands import (
    AlterPartition,
    Bootstrap,
    CreateTopics,
    ElectLeaders,
    ExpireSessions,
    FenceBroker,
    Heartbeat,
    RegisterBroker,
    UnfenceBroker,
    UnregisterBroker,
)
from odradek.cluster.controller.core import Controller
from odradek.cluster.controller.election import Election
from odradek.cluster.controller.messages.brokers import BrokerHeartbeat
from odradek.cluster.controller.messages.partitions import PartitionIsr
from odradek.cluster.controller.messages.topics import NewTopic
from odradek.cluster.controller.state import ControllerState
from odradek.cluster.controller.sweeps import CHANGES_PER_SLICE
from odradek.protocol.errors import ErrorCode
from odradek.runtime.shard import RetryAfter
from tests.support.controller_node import ControllerNode
from tests.support.raft_memory import ControllerRig, MemoryRaftStorage, registration

if TYPE_CHECKING:
    from collections.abc import Callable

    from odradek.cluster.controller.commands import Command
    from odradek.cluster.metadata.delta import MetadataDelta
    from odradek.cluster.metadata.image import MetadataImage, PartitionImage

PARTITIONS = 2 * CHANGES_PER_SLICE + 50


def cluster(*replicas: int, elr: bool = True) -> ControllerRig:
    rig = ControllerRig().with_brokers(1, 2, 3, elr=elr)
    assignments = tuple((index, replicas) for index in range(PARTITIONS))
    rig.do(CreateTopics((NewTopic("t", assignments=assignments),)))
    rig.batches.clear()
    return rig


def partitions(rig: ControllerRig) -> list[PartitionImage]:
    return list(rig.core.state.image.topics["t"].partitions.values())


def shutdown(rig: ControllerRig, broker_id: int = 2) -> Command:
    epoch = rig.core.state.image.brokers[broker_id].epoch
    return Heartbeat(BrokerHeartbeat(broker_id, epoch, len(rig.log), want_shut_down=True), rig.now_ms)


def states(rig: ControllerRig) -> dict[int, tuple[bool, bool]]:
    """Return whether each broker is fenced, and whether it is in a controlled shutdown."""
    brokers = rig.core.state.image.brokers
    return {broker_id: (broker.fenced, broker.in_controlled_shutdown) for broker_id, broker in brokers.items()}


REMOVALS: dict[str, Callable[[ControllerRig], Command]] = {
    "fence": lambda _: FenceBroker(2),
    "unregister": lambda _: UnregisterBroker(2),
    "unclean restart": lambda rig: RegisterBroker(registration(2, incarnation=8), rig.now_ms),
    "controlled shutdown": shutdown,
    "expired session": lambda rig: ExpireSessions(rig.now_ms + 1_000_000),
}


@pytest.mark.parametrize("elr", [True, False])
@pytest.mark.parametrize(
    ("removal", "replicas"),
    [
        (removal, replicas)
        for removal in REMOVALS
        for replicas in ((2, 3), (2,), (3, 2))
        if (removal, replicas) != ("controlled shutdown", (3, 2))
    ],
)
def test_slices_have_the_result_of_one_decision(
    removal: str, replicas: tuple[int, ...], elr: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    divided, whole = cluster(*replicas, elr=elr), cluster(*replicas, elr=elr)
    reply = divided.do(REMOVALS[removal](divided))
    records = [len(batch) for batch in divided.batches]
    monkeypatch.setattr(sweeps, "CHANGES_PER_SLICE", PARTITIONS)
    expected = whole.do(REMOVALS[removal](whole))
    assert partitions(divided) == partitions(whole)
    assert states(divided) == states(whole)
    if removal != "unclean restart":
        assert reply == expected
    assert len(whole.batches) == 1
    assert sum(records) == len(whole.batches[0])
    assert max(records) <= CHANGES_PER_SLICE
    assert divided.core.state.draining == {}


def test_broker_that_leads_nothing_stops_after_all_brokers_know_its_drain() -> None:
    rig = cluster(3, 2)
    assert not rig.do(shutdown(rig)).should_shut_down
    assert rig.core.state.image.brokers[2].in_controlled_shutdown
    for broker_id in (1, 3):
        epoch = rig.core.state.image.brokers[broker_id].epoch
        rig.do(Heartbeat(BrokerHeartbeat(broker_id, epoch, len(rig.log)), rig.now_ms))
    assert rig.do(shutdown(rig)).should_shut_down
    assert max(len(batch) for batch in rig.batches) <= CHANGES_PER_SLICE


def test_slice_visits_a_bounded_number_of_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = cluster(2, 3)
    monkeypatch.setattr(sweeps, "CHECKS_PER_SLICE", 101)
    rig.do(FenceBroker(2))
    assert [len(batch) for batch in rig.batches[:5]] == [100, 100, 100, 100, 50]
    assert {partition.leader for partition in partitions(rig)} == {3}


def half_drained(*replicas: int) -> ControllerRig:
    """Return a controller that has moved a part of the leaders of broker 2, before it fences the broker."""
    rig = cluster(*replicas)
    assert isinstance(rig.decide(FenceBroker(2)), RetryAfter)
    rig.run_next_due()
    assert sum(partition.leader == 2 for partition in partitions(rig)) == PARTITIONS - CHANGES_PER_SLICE
    return rig


def test_draining_broker_is_not_elected_and_does_not_join_an_isr() -> None:
    rig = half_drained(2, 3)
    moved = partitions(rig)[0]
    (result,) = rig.decide(ElectLeaders((("t", 0),), Election.PREFERRED))
    assert result.error is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    topic = rig.core.state.image.topics["t"]
    epochs = moved.leader_epoch, moved.partition_epoch
    change = PartitionIsr(topic.topic_id, 0, *epochs, ((3, -1), (2, -1)))
    (altered,) = rig.decide(AlterPartition(3, rig.core.state.image.brokers[3].epoch, (change,)))
    assert altered.error is ErrorCode.INELIGIBLE_REPLICA
    rig.decide(CreateTopics((NewTopic("new", 30, 2),)))
    created = rig.core.state.image.topics["new"].partitions.values()
    assert all(2 not in partition.isr for partition in created)


def test_second_command_for_a_draining_broker_waits_for_the_same_drain() -> None:
    rig = half_drained(2, 3)
    due = dict(rig.due)
    assert isinstance(rig.decide(UnregisterBroker(2)), RetryAfter)
    assert rig.due == due
    rig.run_due()
    rig.do(FenceBroker(2))
    rig.do(UnregisterBroker(2))
    assert 2 not in rig.core.state.image.brokers


def test_broker_that_no_command_removes_after_its_drain_leads_again() -> None:
    rig = half_drained(2)
    rig.run_due()
    assert {partition.leader for partition in partitions(rig)} == {-1}
    assert rig.core.state.draining == {2: True}
    (release,) = rig.later.values()
    rig.decide(release)
    rig.run_due()
    assert {partition.leader for partition in partitions(rig)} == {2}


def test_new_controller_elects_leaders_that_the_former_one_has_moved_to_none() -> None:
    rig = half_drained(2)
    state = rig.core.state
    core = Controller(ControllerState(state.config, state.configs, state.rng, state.next_offset))
    for offset, record in enumerate(rig.log):
        core.apply(offset, record, 1)
    (timer,) = (timer for timer in core.on_loaded(2, 0).timers if timer.delay_ms == 0)
    rig.core = core
    rig.due.clear()
    rig.do(Bootstrap(at_ms=rig.now_ms))
    assert sum(partition.has_leader for partition in partitions(rig)) == PARTITIONS - CHANGES_PER_SLICE
    rig.due[timer.key] = timer.command
    rig.run_due()
    assert {partition.leader for partition in partitions(rig)} == {2}
    rig.do(FenceBroker(2))
    assert {partition.leader for partition in partitions(rig)} == {-1}


def test_brokers_that_stop_together_keep_their_partitions() -> None:
    rig = cluster(1, 2, 3)
    before = partitions(rig)
    for broker_id in (1, 2, 3):
        assert isinstance(rig.decide(shutdown(rig, broker_id)), RetryAfter)
    rig.run_next_due()
    for broker_id in (1, 2, 3):
        assert rig.decide(shutdown(rig, broker_id)).should_shut_down
    rig.run_due()
    rig.core.state.draining.clear()
    for broker_id in (1, 2, 3):
        assert rig.decide(shutdown(rig, broker_id)).should_shut_down, "another controller"
    assert partitions(rig) == before
    assert [len(batch) for batch in rig.batches] == [3]
    assert set(states(rig).values()) == {(False, True)}


def test_drain_ends_when_the_last_broker_stops_too() -> None:
    rig = cluster(1, 2, 3)
    assert isinstance(rig.decide(shutdown(rig, 1)), RetryAfter)
    rig.run_next_due()
    assert sum(partition.leader == 2 for partition in partitions(rig)) == CHANGES_PER_SLICE
    assert isinstance(rig.decide(shutdown(rig, 2)), RetryAfter)
    assert isinstance(rig.decide(shutdown(rig, 3)), RetryAfter)
    rig.run_due()
    assert all(rig.decide(shutdown(rig, broker_id)).should_shut_down for broker_id in (1, 2, 3))
    assert len(rig.batches[0]) == CHANGES_PER_SLICE
    assert [len(batch) for batch in rig.batches[1:]] == [3]


def test_broker_that_stays_leads_the_partitions_of_those_that_stop() -> None:
    rig = cluster(1, 2, 3)
    for broker_id in (1, 2):
        assert isinstance(rig.decide(shutdown(rig, broker_id)), RetryAfter)
    rig.run_due()
    assert {(partition.leader, partition.isr) for partition in partitions(rig)} == {(3, (3,))}


def test_broker_that_stopped_together_and_does_not_start_is_fenced_at_the_end_of_its_session() -> None:
    rig = cluster(1, 2, 3)
    for broker_id in (1, 2, 3):
        rig.decide(shutdown(rig, broker_id))
    rig.run_due()
    for broker_id in (1, 2, 3):
        rig.decide(shutdown(rig, broker_id))
    rig.core.state.draining.clear()
    epoch = rig.core.state.image.brokers[2].epoch
    rig.do(RegisterBroker(registration(2, incarnation=8, previous=epoch), rig.now_ms))
    rig.do(FenceBroker(3))
    assert states(rig)[3] == (False, True)
    rig.do(Heartbeat(BrokerHeartbeat(2, rig.core.state.image.brokers[2].epoch, len(rig.log)), rig.now_ms + 1_000_000))
    rig.do(ExpireSessions(rig.now_ms + 1_000_000))
    assert states(rig)[3] == (True, True)
    assert {partition.isr for partition in partitions(rig)} == {(1, 2)}


def test_unfenced_broker_is_elected_in_slices() -> None:
    rig = cluster(2)
    rig.do(FenceBroker(2))
    rig.batches.clear()
    rig.do(UnfenceBroker(2))
    rig.run_due()
    assert [len(batch) for batch in rig.batches] == [CHANGES_PER_SLICE + 1, CHANGES_PER_SLICE, 50]
    assert {partition.leader for partition in partitions(rig)} == {2}


async def test_fencing_completes_after_the_last_slice_and_other_callbacks_run_in_between() -> None:
    """Count the changed partitions between two turns of another task."""
    node = await ControllerNode(MemoryRaftStorage()).start()
    service = node.service
    await service.register_broker(registration(2))
    await service.unfence_broker(2)
    assignments = tuple((index, (2, 1)) for index in range(PARTITIONS))
    await service.create_topics([NewTopic("t", assignments=assignments)])
    since_turn, largest = 0, 0

    async def other_work() -> None:
        nonlocal since_turn
        while True:
            since_turn = 0
            await asyncio.sleep(0)

    def count(delta: MetadataDelta, _image: MetadataImage) -> None:
        nonlocal since_turn, largest
        since_turn += len(list(delta.changed_partitions()))
        largest = max(largest, since_turn)

    node.cache.subscribe(count)
    largest = since_turn = 0
    other = asyncio.create_task(other_work())
    await service.fence_broker(2)
    other.cancel()
    assert 0 < largest <= CHANGES_PER_SLICE
    assert node.cache.image.brokers[2].fenced
    assert {partition.leader for partition in node.cache.image.topics["t"].partitions.values()} == {1}
    await node.stop()
