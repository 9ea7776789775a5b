"""AlterPartition: each check of the controller, in Kafka's order, and what a change becomes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from odradek.cluster.controller.commands import (
    AlterPartition,
    AlterReassignments,
    CreateTopics,
    FenceBroker,
    Heartbeat,
    RegisterBroker,
    UnfenceBroker,
    UnregisterBroker,
)
from odradek.cluster.controller.messages.brokers import BrokerHeartbeat
from odradek.cluster.controller.messages.partitions import AlteredPartition, NewReplicas, PartitionIsr
from odradek.cluster.controller.messages.topics import NewTopic
from odradek.cluster.metadata.delta import MetadataDelta
from odradek.protocol.errors import ErrorCode, Refusal
from tests.support.raft_memory import ControllerRig, registration

if TYPE_CHECKING:
    from odradek.cluster.metadata.image import PartitionImage

E = ErrorCode


def cluster(replicas: tuple[int, ...] = (1, 2, 3), *, config: tuple[str, str] | None = None) -> ControllerRig:
    rig = ControllerRig().with_brokers(1, 2, 3, 4)
    rig.do(CreateTopics((NewTopic("t", assignments=((0, replicas),), configs=() if config is None else (config,)),)))
    return rig


def partition(rig: ControllerRig) -> PartitionImage:
    return rig.core.state.image.topics["t"].partitions[0]


def epoch(rig: ControllerRig, broker_id: int) -> int:
    return rig.core.state.image.brokers[broker_id].epoch


def asked(rig: ControllerRig, *isr: int, **changes: Any) -> PartitionIsr:
    """What the leader would ask for now."""
    current = partition(rig)
    members = tuple((broker_id, epoch(rig, broker_id)) for broker_id in isr)
    topic_id = rig.core.state.image.topics["t"].topic_id
    return replace(PartitionIsr(topic_id, 0, current.leader_epoch, current.partition_epoch, members), **changes)


def alter(rig: ControllerRig, *items: PartitionIsr, sender: int = 1) -> tuple[AlteredPartition, ...]:
    results: tuple[AlteredPartition, ...] = rig.do(AlterPartition(sender, epoch(rig, sender), items))
    return results


def error_of(rig: ControllerRig, item: PartitionIsr, sender: int = 1) -> ErrorCode:
    before = len(rig.log)
    (result,) = alter(rig, item, sender=sender)
    assert len(rig.log) == before, "a refused change leaves nothing behind"
    assert replace(result, error=E.NONE) == AlteredPartition(item.topic_id, item.index)
    return result.error


# ---- changes ----------------------------------------------------------------------------------------------------------


def test_shrinking_and_expanding_raise_the_partition_epoch_alone() -> None:
    rig = cluster()
    (shrunk,) = alter(rig, asked(rig, 1, 3))
    assert (shrunk.leader, shrunk.leader_epoch, shrunk.partition_epoch, shrunk.isr) == (1, 0, 1, (1, 3))
    assert (partition(rig).isr, partition(rig).leader_epoch, partition(rig).partition_epoch) == ((1, 3), 0, 1)
    (expanded,) = alter(rig, asked(rig, 1, 3, 2))
    assert (expanded.partition_epoch, expanded.isr) == (2, (1, 3, 2))


def test_an_isr_that_is_the_same_writes_nothing_and_is_answered() -> None:
    rig = cluster()
    before = len(rig.log)
    (same,) = alter(rig, asked(rig, 1, 2, 3))
    assert (same.error, same.partition_epoch, same.isr) == (E.NONE, 0, (1, 2, 3))
    assert len(rig.log) == before


def test_members_whose_epoch_is_not_known_are_taken_by_their_id() -> None:
    rig = cluster()
    (done,) = alter(rig, asked(rig, isr=((1, -1), (2, -1))))
    assert done.isr == (1, 2)


def test_fifty_partitions_are_one_batch() -> None:
    rig = ControllerRig().with_brokers(1, 2)
    rig.do(CreateTopics((NewTopic("t", assignments=tuple((index, (1, 2)) for index in range(50))),)))
    topic_id, batches = rig.core.state.image.topics["t"].topic_id, len(rig.batches)
    results = alter(rig, *(PartitionIsr(topic_id, index, 0, 0, ((1, -1),)) for index in range(50)))
    assert [result.isr for result in results] == [(1,)] * 50
    assert (len(rig.batches), len(rig.batches[-1])) == (batches + 1, 50)


def test_the_second_item_for_a_partition_is_judged_by_what_the_first_one_made_of_it() -> None:
    rig = cluster()
    first, second = alter(rig, asked(rig, 1, 2), asked(rig, 1))
    assert (first.isr, second.error) == ((1, 2), E.INVALID_UPDATE_VERSION)
    assert partition(rig).isr == (1, 2)


# ---- checks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"topic_id": UUID(int=99)}, E.UNKNOWN_TOPIC_ID),
        ({"index": 7}, E.UNKNOWN_TOPIC_OR_PARTITION),
        ({"leader_epoch": 6}, E.NOT_CONTROLLER),
        ({"partition_epoch": 2}, E.NOT_CONTROLLER),
        ({"leader_epoch": 4}, E.FENCED_LEADER_EPOCH),
        ({"leader_epoch": 4, "partition_epoch": 2}, E.NOT_CONTROLLER),
        ({"leader_epoch": 4, "partition_epoch": 0}, E.FENCED_LEADER_EPOCH),
        ({"partition_epoch": 0}, E.INVALID_UPDATE_VERSION),
        ({"partition_epoch": 0, "isr": ((9, -1),)}, E.INVALID_UPDATE_VERSION),
        ({"isr": ((1, -1), (4, -1))}, E.INVALID_REQUEST),
        ({"isr": ((1, -1), (1, -1))}, E.INVALID_REQUEST),
        ({"isr": ((2, -1), (3, -1))}, E.INVALID_REQUEST),
        ({"isr": ()}, E.INVALID_REQUEST),
        ({"recovering": True}, E.INVALID_REQUEST),
        ({"isr": ((1, -1),), "recovering": True}, E.INVALID_REQUEST),
        ({"isr": ((1, 0), (2, -1))}, E.INELIGIBLE_REPLICA),
        ({"isr": ((1, -1), (2, 99_999))}, E.INELIGIBLE_REPLICA),
    ],
)
def test_each_check(change: dict[str, Any], error: ErrorCode) -> None:
    rig = cluster()
    image = rig.core.state.image
    topic = image.topics["t"]
    # leader epoch 5 and partition epoch 1: there is something below and above
    changed = replace(topic, partitions={0: replace(topic.partitions[0], leader_epoch=5, partition_epoch=1)})
    later = replace(image, topics={"t": changed}, topics_by_id={topic.topic_id: changed})
    rig.core.state._delta = MetadataDelta(later)
    assert error_of(rig, asked(rig, 1, 2, **change)) is error


def test_only_the_leader_may_ask() -> None:
    rig = cluster()
    assert error_of(rig, asked(rig, 1, 2), sender=2) is E.INVALID_REQUEST


def test_the_epoch_of_the_sender_counts_for_the_whole_call() -> None:
    rig = cluster()
    for sender, broker_epoch, error in ((1, 0, E.STALE_BROKER_EPOCH), (9, 0, E.BROKER_ID_NOT_REGISTERED)):
        with pytest.raises(Refusal) as refused:
            rig.do(AlterPartition(sender, broker_epoch, (asked(rig, 1, 2),)))
        assert refused.value.error is error


@pytest.mark.parametrize("why", ["fenced", "leaving", "unregistered", "restarted"])
def test_a_member_that_is_not_alive_as_the_leader_knew_it_is_ineligible(why: str) -> None:
    rig = cluster()
    wish = asked(rig, 1, 2, 3)
    alter(rig, asked(rig, 1, 3))
    if why == "leaving":
        rig.do(CreateTopics((NewTopic("led", assignments=((0, (2,)),)),)))
        rig.do(Heartbeat(BrokerHeartbeat(2, epoch(rig, 2), 0, want_shut_down=True), 0))
        assert rig.core.state.image.brokers[2].in_controlled_shutdown
    elif why == "unregistered":
        rig.do(UnregisterBroker(2))
    else:
        rig.do(FenceBroker(2))
    if why == "restarted":
        rig.do(RegisterBroker(registration(2, incarnation=8), 0))
        rig.do(UnfenceBroker(2))
    current = partition(rig)
    late = replace(wish, leader_epoch=current.leader_epoch, partition_epoch=current.partition_epoch)
    assert error_of(rig, late) is E.INELIGIBLE_REPLICA


# ---- recovery from an unclean election --------------------------------------------------------------------------------


def recovering() -> ControllerRig:
    rig = cluster((1, 2), config=("unclean.leader.election.enable", "true"))
    rig.do(FenceBroker(2))
    rig.do(FenceBroker(1))
    rig.do(UnfenceBroker(2))
    assert (partition(rig).leader, partition(rig).leader_recovery_state) == (2, 1)
    rig.do(UnfenceBroker(1))
    return rig


def test_a_leader_that_recovers_stays_alone_in_sync() -> None:
    rig = recovering()
    assert error_of(rig, asked(rig, 2, 1, recovering=True), sender=2) is E.INVALID_REQUEST
    (still,) = alter(rig, asked(rig, 2, recovering=True), sender=2)
    assert (still.recovering, still.isr) == (True, (2,))
    (done,) = alter(rig, asked(rig, 2, 1), sender=2)
    assert (done.recovering, done.isr) == (False, (2, 1))
    assert partition(rig).leader_recovery_state == 0
    assert error_of(rig, asked(rig, 2, recovering=True), sender=2) is E.INVALID_REQUEST


# ---- eligible leader replicas and lost directories --------------------------------------------------------------------


def test_replicas_that_leave_an_isr_too_small_to_acknowledge_stay_eligible() -> None:
    rig = cluster(config=("min.insync.replicas", "2"))
    alter(rig, asked(rig, 1, 2))
    assert (partition(rig).isr, partition(rig).elr) == ((1, 2), ())
    alter(rig, asked(rig, 1))
    assert (partition(rig).isr, partition(rig).elr) == ((1,), (2,))
    alter(rig, asked(rig, 1, 3))
    assert (partition(rig).isr, partition(rig).elr) == ((1, 3), ())


def test_a_replica_with_another_directory_counts_from_the_moment_on_at_which_it_is_in_sync() -> None:
    rig = cluster()
    disk = (UUID(int=(1 << 100) + 77),)
    rig.do(FenceBroker(2))
    rig.do(RegisterBroker(replace(registration(2, incarnation=8), directories=disk), 0))
    rig.do(UnfenceBroker(2))
    former = partition(rig).directories
    assert former[1] != disk[0]
    alter(rig, asked(rig, 1, 3, 2))
    assert partition(rig).directories == (former[0], disk[0], former[2])
    rig.do(FenceBroker(1))
    rig.do(FenceBroker(3))
    assert partition(rig).leader == 2


def test_a_replica_with_a_new_directory_that_ends_the_reassignment_of_its_leader_leads() -> None:
    """
    1. Broker 2 loses its directory and registers with a new one.
    2. A reassignment removes brokers 1 and 3. Broker 1 leads until broker 2 is in sync.
    3. The leader adds broker 2 to the ISR. The same change ends the reassignment, so broker 2 must lead.
    """
    rig = cluster()
    disk = (UUID(int=(1 << 100) + 77),)
    rig.do(FenceBroker(2))
    rig.do(RegisterBroker(replace(registration(2, incarnation=8), directories=disk), 0))
    rig.do(UnfenceBroker(2))
    rig.do(AlterReassignments((NewReplicas("t", 0, (2,)),)))
    assert partition(rig).leader == 1
    alter(rig, asked(rig, 1, 3, 2))
    after = partition(rig)
    assert (after.replicas, after.directories, after.isr, after.leader) == ((2,), disk, (2,), 2)
