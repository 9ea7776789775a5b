"""Partition reassignments: start, progress, completion and cancellation (KIP-455, KIP-860)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from odradek.cluster.controller.commands import (
    AlterPartition,
    AlterReassignments,
    CreateTopics,
    FenceBroker,
    ListReassignments,
    UnfenceBroker,
)
from odradek.cluster.controller.messages.partitions import (
    AlteredPartition,
    NewReplicas,
    OngoingReassignment,
    PartitionIsr,
    PartitionResult,
)
from odradek.cluster.controller.messages.topics import NewTopic
from odradek.protocol.errors import ErrorCode
from tests.support.raft_memory import ControllerRig

if TYPE_CHECKING:
    from odradek.cluster.metadata.image import PartitionImage

E = ErrorCode


def cluster(*replicas: int, configs: tuple[tuple[str, str], ...] = ()) -> ControllerRig:
    rig = ControllerRig().with_brokers(1, 2, 3, 4, 5)
    rig.do(CreateTopics((NewTopic("t", assignments=((0, replicas), (1, replicas)), configs=configs),)))
    return rig


def partition(rig: ControllerRig, index: int = 0) -> PartitionImage:
    return rig.core.state.image.topics["t"].partitions[index]


def move(rig: ControllerRig, *replicas: int, allow_resize: bool = True) -> PartitionResult:
    (result,) = rig.do(AlterReassignments((NewReplicas("t", 0, replicas),), allow_resize))
    assert isinstance(result, PartitionResult)
    return result


def cancel(rig: ControllerRig) -> PartitionResult:
    (result,) = rig.do(AlterReassignments((NewReplicas("t", 0, None),)))
    assert isinstance(result, PartitionResult)
    return result


def in_sync(rig: ControllerRig, *isr: int) -> AlteredPartition:
    """Send the AlterPartition request of the leader with `isr`."""
    current = partition(rig)
    item = PartitionIsr(
        rig.core.state.image.topics["t"].topic_id,
        0,
        current.leader_epoch,
        current.partition_epoch,
        tuple((broker_id, -1) for broker_id in isr),
    )
    sender = current.leader
    (result,) = rig.do(AlterPartition(sender, rig.core.state.image.brokers[sender].epoch, (item,)))
    assert isinstance(result, AlteredPartition)
    return result


def ongoing(rig: ControllerRig) -> tuple[OngoingReassignment, ...]:
    reassignments: tuple[OngoingReassignment, ...] = rig.do(ListReassignments(None))
    return reassignments


def test_replicas_are_added_first_and_removed_when_the_new_ones_are_in_sync() -> None:
    rig = cluster(1, 2)
    assert move(rig, 3, 4) == PartitionResult("t", 0)
    assert (partition(rig).replicas, partition(rig).isr, partition(rig).leader) == ((3, 4, 1, 2), (1, 2), 1)
    assert ongoing(rig) == (OngoingReassignment("t", 0, (3, 4, 1, 2), (3, 4), (1, 2)),)
    assert rig.do(ListReassignments((("t", 1), ("nope", 0)))) == ()
    assert in_sync(rig, 1, 2, 3).error is E.NONE
    assert len(ongoing(rig)) == 1
    # The sender of this request is no longer a replica.
    assert in_sync(rig, 1, 2, 3, 4).error is E.NEW_LEADER_ELECTED
    done = partition(rig)
    assert (done.replicas, done.isr, done.leader, done.leader_epoch) == ((3, 4), (3, 4), 3, 1)
    assert ongoing(rig) == ()


def test_leader_that_stays_gets_a_new_epoch_when_a_replica_is_removed() -> None:
    rig = cluster(1, 2)
    move(rig, 1, 3)
    done = in_sync(rig, 1, 2, 3)
    assert (done.error, done.leader, done.leader_epoch, done.isr) == (E.NONE, 1, 1, (1, 3))
    assert partition(rig).replicas == (1, 3)


def test_reassignment_without_new_replicas_completes_immediately() -> None:
    rig = cluster(1, 2)
    move(rig, 2, 1)
    assert (partition(rig).replicas, partition(rig).leader, partition(rig).leader_epoch) == ((2, 1), 1, 0)
    move(rig, 2)
    assert (partition(rig).replicas, partition(rig).isr, partition(rig).leader) == ((2,), (2,), 2)
    assert ongoing(rig) == ()
    before = len(rig.log)
    assert move(rig, 2).error is E.NONE
    assert len(rig.log) == before


def test_reassignment_can_be_cancelled() -> None:
    rig = cluster(1, 2)
    move(rig, 3, 4)
    in_sync(rig, 1, 2, 3)
    assert cancel(rig).error is E.NONE
    back = partition(rig)
    assert (back.replicas, back.isr, back.leader, back.leader_epoch) == ((1, 2), (1, 2), 1, 1)
    assert (back.adding_replicas, back.removing_replicas) == ((), ())
    assert cancel(rig).error is E.NO_REASSIGNMENT_IN_PROGRESS


def test_cancel_that_needs_an_unclean_election_is_refused() -> None:
    for allowed in ("false", "true"):
        rig = cluster(1, configs=(("unclean.leader.election.enable", allowed),))
        move(rig, 2, 3)
        in_sync(rig, 1, 2)
        rig.do(FenceBroker(1))
        assert (partition(rig).leader, partition(rig).isr) == (2, (2,))
        result = cancel(rig)
        if allowed == "false":
            assert result.error is E.INVALID_REPLICA_ASSIGNMENT
            assert result.message == (
                "Unable to revert partition assignment for t:0 because it would require an unclean leader election."
            )
            assert partition(rig).leader == 2
        else:
            assert result.error is E.INVALID_REPLICA_ASSIGNMENT
            assert result.message is not None
            assert result.message.endswith("none of the replicas before it is alive.")
            rig.do(UnfenceBroker(1))
            assert cancel(rig).error is E.NONE
            back = partition(rig)
            assert (back.replicas, back.isr, back.leader, back.leader_recovery_state) == ((1,), (1,), 1, 1)


def test_reassignment_can_be_replaced_and_then_cancelled_to_its_original_replicas() -> None:
    rig = cluster(1, 2)
    move(rig, 3, 4)
    move(rig, 4, 5)
    moving = partition(rig)
    assert (moving.replicas, moving.adding_replicas, moving.removing_replicas) == ((4, 5, 1, 2), (4, 5), (1, 2))
    cancel(rig)
    assert (partition(rig).replicas, partition(rig).isr) == ((1, 2), (1, 2))


def test_replaced_reassignment_keeps_the_only_in_sync_replica_until_completion() -> None:
    rig = cluster(1)
    move(rig, 2, 3)
    in_sync(rig, 1, 2)
    rig.do(FenceBroker(1))
    assert partition(rig).isr == (2,)
    move(rig, 4)
    moving = partition(rig)
    assert (moving.leader, moving.isr, moving.replicas, moving.removing_replicas) == (2, (2,), (4, 1, 2, 3), (1, 2, 3))
    in_sync(rig, 2, 4)
    assert (partition(rig).replicas, partition(rig).isr, partition(rig).leader) == ((4,), (4,), 4)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (NewReplicas("nope", 0, (1,)), E.UNKNOWN_TOPIC_OR_PARTITION, "Unable to find a topic named nope."),
        (NewReplicas("t", 9, (1,)), E.UNKNOWN_TOPIC_OR_PARTITION, "Unable to find partition t:9."),
        (
            NewReplicas("t", 0, ()),
            E.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes an empty replica list.",
        ),
        (
            NewReplicas("t", 0, (1, 9)),
            E.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes broker 9, but no such broker is registered.",
        ),
        (
            NewReplicas("t", 0, (1, 1)),
            E.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes the broker 1 more than once.",
        ),
        (
            NewReplicas("t", 0, (1, 2, 3)),
            E.INVALID_REPLICATION_FACTOR,
            "The replication factor is changed from 2 to 3",
        ),
        (NewReplicas("t", 0, None), E.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress."),
    ],
)
def test_invalid_reassignment_is_refused(change: NewReplicas, error: ErrorCode, message: str) -> None:
    rig = cluster(1, 2)
    before = len(rig.log)
    (result, other) = rig.do(AlterReassignments((change, NewReplicas("t", 1, (2, 1))), allow_resize=False))
    assert (result.error, result.message) == (error, message)
    assert other == PartitionResult("t", 1), "a result partition does not stop other partitions"
    assert len(rig.log) == before + 1


def test_replication_factor_is_compared_with_the_target_of_the_current_reassignment() -> None:
    rig = cluster(1, 2)
    move(rig, 1, 2, 3)
    assert move(rig, 1, 4, allow_resize=False).error is E.INVALID_REPLICATION_FACTOR
    assert move(rig, 1, 4, 5, allow_resize=False).error is E.NONE
