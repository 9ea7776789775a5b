"""AlterPartition: the checks of the controller in Kafka's order, and the records of a change."""

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


def isr_request(rig: ControllerRig, *isr: int, **changes: Any) -> PartitionIsr:
    """Return the AlterPartition item that the leader would send now."""
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
    assert len(rig.log) == before, "a caught change writes no record"
    assert replace(result, error=E.NONE) == AlteredPartition(item.topic_id, item.index)
    return result.error


# ---- changes --------------------------------------------------------------------------------------------------------


def test_shrink_and_expansion_raise_the_partition_epoch_only() -> None:
    rig = cluster()
    (shrunk,) = alter(rig, isr_request(rig, 1, 3))
    assert (shrunk.leader, shrunk.leader_epoch, shrunk.partition_epoch, shrunk.isr) == (1, 0, 1, (1, 3))
    assert (partition(rig).isr, partition(rig).leader_epoch, partition(rig).partition_epoch) == ((1, 3), 0, 1)
    (expanded,) = alter(rig, isr_request(rig, 1, 3, 2))
    assert (expanded.partition_epoch, expanded.isr) == (2, (1, 3, 2))


def test_unchanged_isr_writes_no_record_and_succeeds() -> None:
    rig = cluster()
    before = len(rig.log)
    (same,) = alter(rig, isr_request(rig, 1, 2, 3))
    assert (same.error, same.partition_epoch, same.isr) == (E.NONE, 0, (1, 2, 3))
    assert len(rig.log) == before


def test_isr_members_without_an_epoch_are_accepted_by_id() -> None:
    rig = cluster()
    (done,) = alter(rig, isr_request(rig, isr=((1, -1), (2, -1))))
    assert done.isr == (1, 2)


def test_fifty_partitions_are_one_batch() -> None:
    rig = ControllerRig().with_brokers(1, 2)
    rig.do(CreateTopics((NewTopic("t", assignments=tuple((index, (1, 2)) for index in range(50))),)))
    topic_id, batches = rig.core.state.image.topics["t"].topic_id, len(rig.batches)
    results = alter(rig, *(PartitionIsr(topic_id, index, 0, 0, ((1, -1),)) for index in range(50)))
    assert [result.isr for result in results] == [(1,)] * 50
    assert (len(rig.batches), len(rig.batches[-1])) == (batches + 1, 50)


def test_second_item_for_a_partition_sees_the_change_of_the_first() -> None:
    rig = cluster()
    first, second = alter(rig, isr_request(rig, 1, 2), isr_request(rig, 1))
    assert (first.isr, second.error) == ((1, 2), E.INVALID_UPDATE_VERSION)
    assert partition(rig).isr == (1, 2)


# ---- checks ---------------------------------------------------------------------------------------------------------


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
def test_invalid_request_is_refused(change: dict[str, Any], error: ErrorCode) -> None:
    rig = cluster()
    image = rig.core.state.image
    topic = image.topics["t"]
    # Leader epoch 5 and partition epoch 1, so that lower and higher epochs exist.
    changed = replace(topic, partitions={0: replace(topic.partitions[0], leader_epoch=5, partition_epoch=1)})
    later = replace(image, topics={"t": changed}, topics_by_id={topic.topic_id: changed})
    rig.core.state._delta = MetadataDelta(later)
    assert error_of(rig, isr_request(rig, 1, 2, **change)) is error


def test_request_of_a_broker_that_is_not_the_leader_is_refused() -> None:
    rig = cluster()
    assert error_of(rig, isr_request(rig, 1, 2), sender=2) is E.INVALID_REQUEST


def test_broker_epoch_of_the_sender_applies_to_the_whole_request() -> None:
    rig = cluster()
    for sender, broker_epoch, error in ((1, 0, E.STALE_BROKER_EPOCH), (9, 0, E.BROKER_ID_NOT_REGISTERED)):
        with pytest.raises(Refusal) as caught:
            rig.do(AlterPartition(sender, broker_epoch, (isr_request(rig, 1, 2),)))
        assert caught.value.error is error


@pytest.mark.parametrize("member", ["fenced", "shutting down", "unregistered", "restarted"])
def test_isr_member_that_is_inactive_or_restarted_is_ineligible(member: str) -> None:
    rig = cluster()
    request = isr_request(rig, 1, 2, 3)
    alter(rig, isr_request(rig, 1, 3))
    if member == "shutting down":
        rig.do(CreateTopics((NewTopic("led", assignments=((0, (2,)),)),)))
        rig.do(Heartbeat(BrokerHeartbeat(2, epoch(rig, 2), 0, want_shut_down=True), 0))
        assert rig.core.state.image.brokers[2].in_controlled_shutdown
    elif member == "unregistered":
        rig.do(UnregisterBroker(2))
    else:
        rig.do(FenceBroker(2))
    if member == "restarted":
        rig.do(RegisterBroker(registration(2, incarnation=8), 0))
        rig.do(UnfenceBroker(2))
    current = partition(rig)
    outdated = replace(request, leader_epoch=current.leader_epoch, partition_epoch=current.partition_epoch)
    assert error_of(rig, outdated) is E.INELIGIBLE_REPLICA


# ---- recovery from an unclean election ------------------------------------------------------------------------------


def cluster_in_recovery() -> ControllerRig:
    rig = cluster((1, 2), config=("unclean.leader.election.enable", "true"))
    rig.do(FenceBroker(2))
    rig.do(FenceBroker(1))
    rig.do(UnfenceBroker(2))
    assert (partition(rig).leader, partition(rig).leader_recovery_state) == (2, 1)
    rig.do(UnfenceBroker(1))
    return rig


def test_recovering_leader_stays_alone_in_the_isr() -> None:
    rig = cluster_in_recovery()
    assert error_of(rig, isr_request(rig, 2, 1, recovering=True), sender=2) is E.INVALID_REQUEST
    (still,) = alter(rig, isr_request(rig, 2, recovering=True), sender=2)
    assert (still.recovering, still.isr) == (True, (2,))
    (done,) = alter(rig, isr_request(rig, 2, 1), sender=2)
    assert (done.recovering, done.isr) == (False, (2, 1))
    assert partition(rig).leader_recovery_state == 0
    assert error_of(rig, isr_request(rig, 2, recovering=True), sender=2) is E.INVALID_REQUEST


# ---- eligible leader replicas and lost directories ------------------------------------------------------------------


def test_replicas_that_leave_an_isr_below_min_isr_become_eligible_leaders() -> None:
    rig = cluster(config=("min.insync.replicas", "2"))
    alter(rig, isr_request(rig, 1, 2))
    assert (partition(rig).isr, partition(rig).elr) == ((1, 2), ())
    alter(rig, isr_request(rig, 1))
    assert (partition(rig).isr, partition(rig).elr) == ((1,), (2,))
    alter(rig, isr_request(rig, 1, 3))
    assert (partition(rig).isr, partition(rig).elr) == ((1, 3), ())


def test_new_directory_of_a_replica_is_recorded_when_it_joins_the_isr() -> None:
    rig = cluster()
    disk = (UUID(int=(1 << 100) + 77),)
    rig.do(FenceBroker(2))
    rig.do(RegisterBroker(replace(registration(2, incarnation=8), directories=disk), 0))
    rig.do(UnfenceBroker(2))
    former = partition(rig).directories
    assert former[1] != disk[0]
    alter(rig, isr_request(rig, 1, 3, 2))
    assert partition(rig).directories == (former[0], disk[0], former[2])
    rig.do(FenceBroker(1))
    rig.do(FenceBroker(3))
    assert partition(rig).leader == 2


def test_replica_with_a_new_directory_leads_when_its_isr_change_ends_the_reassignment() -> None:
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
    alter(rig, isr_request(rig, 1, 3, 2))
    after = partition(rig)
    assert (after.replicas, after.directories, after.isr, after.leader) == ((2,), disk, (2,), 2)
