"""Moving replicas: begin, go on, finish, take back (KIP-455, KIP-860)."""

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
    """The leader says who is in sync with it."""
    current = partition(rig)
    wish = PartitionIsr(
        rig.core.state.image.topics["t"].topic_id,
        0,
        current.leader_epoch,
        current.partition_epoch,
        tuple((broker_id, -1) for broker_id in isr),
    )
    sender = current.leader
    (result,) = rig.do(AlterPartition(sender, rig.core.state.image.brokers[sender].epoch, (wish,)))
    assert isinstance(result, AlteredPartition)
    return result


def ongoing(rig: ControllerRig) -> tuple[OngoingReassignment, ...]:
    found: tuple[OngoingReassignment, ...] = rig.do(ListReassignments(None))
    return found


def test_replicas_are_added_first_and_taken_away_when_the_new_ones_are_in_sync() -> None:
    rig = cluster(1, 2)
    assert move(rig, 3, 4) == PartitionResult("t", 0)
    assert (partition(rig).replicas, partition(rig).isr, partition(rig).leader) == ((3, 4, 1, 2), (1, 2), 1)
    assert ongoing(rig) == (OngoingReassignment("t", 0, (3, 4, 1, 2), (3, 4), (1, 2)),)
    assert rig.do(ListReassignments((("t", 1), ("nope", 0)))) == ()
    assert in_sync(rig, 1, 2, 3).error is E.NONE
    assert len(ongoing(rig)) == 1
    # the one that says it is no replica any more
    assert in_sync(rig, 1, 2, 3, 4).error is E.NEW_LEADER_ELECTED
    done = partition(rig)
    assert (done.replicas, done.isr, done.leader, done.leader_epoch) == ((3, 4), (3, 4), 3, 1)
    assert ongoing(rig) == ()


def test_a_leader_that_stays_has_a_new_epoch_when_it_loses_a_replica() -> None:
    rig = cluster(1, 2)
    move(rig, 1, 3)
    done = in_sync(rig, 1, 2, 3)
    assert (done.error, done.leader, done.leader_epoch, done.isr) == (E.NONE, 1, 1, (1, 3))
    assert partition(rig).replicas == (1, 3)


def test_what_needs_nobody_to_catch_up_is_done_at_once() -> None:
    rig = cluster(1, 2)
    move(rig, 2, 1)
    assert (partition(rig).replicas, partition(rig).leader, partition(rig).leader_epoch) == ((2, 1), 1, 0)
    move(rig, 2)
    assert (partition(rig).replicas, partition(rig).isr, partition(rig).leader) == ((2,), (2,), 2)
    assert ongoing(rig) == ()
    before = len(rig.log)
    assert move(rig, 2).error is E.NONE
    assert len(rig.log) == before


def test_a_move_can_be_taken_back() -> None:
    rig = cluster(1, 2)
    move(rig, 3, 4)
    in_sync(rig, 1, 2, 3)
    assert cancel(rig).error is E.NONE
    back = partition(rig)
    assert (back.replicas, back.isr, back.leader, back.leader_epoch) == ((1, 2), (1, 2), 1, 1)
    assert (back.adding_replicas, back.removing_replicas) == ((), ())
    assert cancel(rig).error is E.NO_REASSIGNMENT_IN_PROGRESS


def test_taking_back_must_not_lose_records_unless_the_topic_allows_it() -> None:
    for allowed in ("false", "true"):
        rig = cluster(1, configs=(("unclean.leader.election.enable", allowed),))
        move(rig, 2, 3)
        in_sync(rig, 1, 2)
        rig.do(FenceBroker(1))
        assert (partition(rig).leader, partition(rig).isr) == (2, (2,))
        refused = cancel(rig)
        if allowed == "false":
            assert refused.error is E.INVALID_REPLICA_ASSIGNMENT
            assert refused.message == (
                "Unable to revert partition assignment for t:0 because it would require an unclean leader election."
            )
            assert partition(rig).leader == 2
        else:
            assert refused.error is E.INVALID_REPLICA_ASSIGNMENT
            assert refused.message is not None
            assert refused.message.endswith("none of the replicas before it is alive.")
            rig.do(UnfenceBroker(1))
            assert cancel(rig).error is E.NONE
            back = partition(rig)
            assert (back.replicas, back.isr, back.leader, back.leader_recovery_state) == ((1,), (1,), 1, 1)


def test_a_move_can_be_led_elsewhere_and_then_taken_back_to_where_it_began() -> None:
    rig = cluster(1, 2)
    move(rig, 3, 4)
    move(rig, 4, 5)
    moving = partition(rig)
    assert (moving.replicas, moving.adding_replicas, moving.removing_replicas) == ((4, 5, 1, 2), (4, 5), (1, 2))
    cancel(rig)
    assert (partition(rig).replicas, partition(rig).isr) == ((1, 2), (1, 2))


def test_replicas_that_are_all_there_is_are_not_given_up_for_another_goal() -> None:
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
    ("asked", "error", "message"),
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
def test_moves_that_are_refused(asked: NewReplicas, error: ErrorCode, message: str) -> None:
    rig = cluster(1, 2)
    before = len(rig.log)
    (result, other) = rig.do(AlterReassignments((asked, NewReplicas("t", 1, (2, 1))), allow_resize=False))
    assert (result.error, result.message) == (error, message)
    assert other == PartitionResult("t", 1), "one that is refused does not keep the others from moving"
    assert len(rig.log) == before + 1


def test_the_size_that_counts_is_that_of_the_move_under_way() -> None:
    rig = cluster(1, 2)
    move(rig, 1, 2, 3)
    assert move(rig, 1, 4, allow_resize=False).error is E.INVALID_REPLICATION_FACTOR
    assert move(rig, 1, 4, 5, allow_resize=False).error is E.NONE
