"""Broker registrations: duplicate ids, elections after a restart, and directories that hold replicas."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from odradek.cluster.controller.commands import (
    Bootstrap,
    CreateTopics,
    FenceBroker,
    Heartbeat,
    RegisterBroker,
    UnfenceBroker,
)
from odradek.cluster.controller.messages.brokers import BrokerHeartbeat
from odradek.cluster.controller.messages.topics import NewTopic
from odradek.cluster.controller.sweeps import entered_shutdown
from odradek.cluster.metadata.image import VersionRange
from odradek.cluster.metadata.replay.brokers import LINEAGE_MAX
from odradek.protocol.errors import ErrorCode, Refusal
from tests.support.raft_memory import ControllerRig, registration

if TYPE_CHECKING:
    from odradek.cluster.controller.messages.brokers import BrokerRegistration
    from odradek.cluster.metadata.image import BrokerImage, PartitionImage

OTHER_DISK = (UUID(int=(1 << 100) + 77),)


def refusal(rig: ControllerRig, new_registration: BrokerRegistration, at_ms: int = 0) -> ErrorCode:
    before = len(rig.log)
    with pytest.raises(Refusal) as caught:
        rig.do(RegisterBroker(new_registration, at_ms))
    assert len(rig.log) == before
    return caught.value.error


def broker(rig: ControllerRig, broker_id: int) -> BrokerImage:
    return rig.core.state.image.brokers[broker_id]


def partition(rig: ControllerRig) -> PartitionImage:
    return rig.core.state.image.topics["t"].partitions[0]


def cluster(*replicas: int, elr: bool = True, configs: tuple[tuple[str, str], ...] = ()) -> ControllerRig:
    rig = ControllerRig().with_brokers(1, 2, 3, elr=elr)
    rig.do(CreateTopics((NewTopic("t", assignments=((0, replicas),), configs=configs),)))
    return rig


def restarted(broker_id: int, rig: ControllerRig, *, clean: bool = False, **changes: object) -> BrokerRegistration:
    """Return the registration of the next incarnation of a broker with its directory and endpoints."""
    previous = broker(rig, broker_id).epoch if clean else -1
    new_registration = registration(broker_id, incarnation=8, previous=previous)
    return replace(new_registration, **changes)  # type: ignore[arg-type]  # fields of a registration


def test_registration_is_fenced_and_its_epoch_is_its_offset() -> None:
    rig = ControllerRig()
    rig.do(Bootstrap())
    offset = len(rig.log)
    assert rig.do(RegisterBroker(registration(1), 0)) == offset
    assert (broker(rig, 1).epoch, broker(rig, 1).fenced, broker(rig, 1).rack) == (offset, True, None)
    assert broker(rig, 1).endpoints[0].port == 9093


def test_same_incarnation_keeps_its_epoch_and_state() -> None:
    rig = ControllerRig().with_brokers(1)
    epoch = broker(rig, 1).epoch
    assert rig.do(RegisterBroker(registration(1), 5)) == epoch
    assert not broker(rig, 1).fenced


def test_registration_with_an_id_in_use_is_refused_until_the_session_expires() -> None:
    rig = ControllerRig().with_brokers(1, 2)
    duplicate = replace(registration(2, incarnation=8), directories=OTHER_DISK)
    rig.do(Heartbeat(BrokerHeartbeat(2, broker(rig, 2).epoch, 99), 1_000))
    assert refusal(rig, duplicate, 10_000) is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    rig.do(RegisterBroker(duplicate, 10_001))
    assert broker(rig, 2).incarnation_id == duplicate.incarnation_id


def test_same_directory_and_endpoints_replace_the_registration() -> None:
    rig = ControllerRig().with_brokers(1, 2)
    assert refusal(rig, restarted(2, rig, directories=OTHER_DISK)) is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    moved = registration(2, incarnation=8, host="elsewhere")
    assert refusal(rig, moved) is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    rig.do(RegisterBroker(restarted(2, rig), 0))


@pytest.mark.parametrize("former", ["fenced", "shutting down"])
def test_fenced_or_stopping_incarnation_is_replaced(former: str) -> None:
    rig = cluster(2, 1)
    if former == "fenced":
        rig.do(FenceBroker(2, broker(rig, 2).epoch))
    else:
        rig.do(Heartbeat(BrokerHeartbeat(2, broker(rig, 2).epoch, 0, want_shut_down=True), 0))
        assert broker(rig, 2).in_controlled_shutdown
    rig.do(RegisterBroker(restarted(2, rig, directories=OTHER_DISK), 0))
    assert not broker(rig, 2).in_controlled_shutdown


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"cluster_id": "other"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"directories": ()}, ErrorCode.INVALID_REGISTRATION),
        ({"directories": (UUID(int=5),)}, ErrorCode.INVALID_REGISTRATION),
        ({"directories": (UUID(int=500), UUID(int=500))}, ErrorCode.INVALID_REGISTRATION),
        ({"directories": (UUID(int=(1 << 100) + 1),)}, ErrorCode.INVALID_REGISTRATION),
        ({"features": {"metadata.version": VersionRange(7, 29)}}, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_invalid_registration_is_refused(change: dict[str, object], error: ErrorCode) -> None:
    rig = ControllerRig().with_brokers(1)
    assert refusal(rig, replace(registration(2), **change)) is error  # type: ignore[arg-type]  # fields of a registration


# ---- leaders after a restart ----------------------------------------------------------------------------------------


def test_new_incarnation_loses_the_leaders_of_the_former_one() -> None:
    rig = cluster(2, 1)
    rig.do(RegisterBroker(restarted(2, rig), 0))
    assert (partition(rig).leader, partition(rig).isr, partition(rig).leader_epoch) == (1, (1,), 1)
    assert broker(rig, 2).fenced


def stop_together(rig: ControllerRig) -> None:
    """Commit the records of a controlled shutdown of all brokers, which keep their partitions."""
    for current in list(rig.core.state.image.brokers.values()):
        rig.commit(entered_shutdown(current))


def test_broker_that_stopped_with_all_others_keeps_its_partitions() -> None:
    """A broker that was not fenced, with complete logs. Its lineage ends with its first heartbeat."""
    rig = cluster(2, 1)
    stop_together(rig)
    before = partition(rig)
    rig.do(RegisterBroker(restarted(2, rig, clean=True), 0))
    assert (partition(rig), broker(rig, 2).fenced) == (before, False)
    assert broker(rig, 2).lineage
    heartbeat = Heartbeat(BrokerHeartbeat(2, broker(rig, 2).epoch, len(rig.log)), 0)
    rig.do(heartbeat)
    assert broker(rig, 2).lineage == ()
    records = len(rig.log)
    rig.do(heartbeat)
    assert len(rig.log) == records


def test_broker_that_keeps_its_partitions_leaves_none_without_a_leader() -> None:
    """A broker in a controlled shutdown has lost the leader of a partition that only it can lead."""
    rig = cluster(2)
    rig.do(Heartbeat(BrokerHeartbeat(2, broker(rig, 2).epoch, 0, want_shut_down=True), 0))
    assert (partition(rig).leader, broker(rig, 2).fenced) == (-1, False)
    rig.do(RegisterBroker(restarted(2, rig, clean=True), 0))
    rig.do(UnfenceBroker(2))
    assert (partition(rig).leader, partition(rig).leader_recovery_state) == (2, 0)


def test_broker_whose_process_failed_leaves_its_isrs() -> None:
    """Recovery may have removed its last batch. In the same leader epoch, a follower with this batch would keep it."""
    rig = cluster(2, 1)
    rig.do(RegisterBroker(restarted(2, rig, clean=True), 0))
    assert (partition(rig).leader, partition(rig).isr, partition(rig).leader_epoch) == (1, (1,), 1)
    assert broker(rig, 2).fenced


def test_coordinators_that_a_broker_keeps_get_new_leader_epochs() -> None:
    """A late marker of the former process has the former coordinator epoch."""
    rig = cluster(2, 1)
    rig.do(CreateTopics((NewTopic("__transaction_state", assignments=((0, (2, 1)), (1, (1, 2)))),)))
    stop_together(rig)
    rig.do(RegisterBroker(restarted(2, rig, clean=True), 0))
    kept = rig.core.state.image.topics["__transaction_state"].partitions
    assert [(kept[index].leader, kept[index].leader_epoch, kept[index].isr) for index in (0, 1)] == [
        (2, 1, (2, 1)),
        (1, 0, (1, 2)),
    ]


def test_last_in_sync_replica_stays_eligible_after_a_clean_shutdown() -> None:
    rig = cluster(2)
    rig.do(FenceBroker(2))
    rig.do(RegisterBroker(restarted(2, rig, clean=True), 0))
    assert (partition(rig).leader, partition(rig).isr, partition(rig).elr) == (-1, (), (2,))
    rig.do(UnfenceBroker(2))
    assert (partition(rig).leader, partition(rig).isr, partition(rig).leader_recovery_state) == (2, (2,), 0)


def test_clean_shutdown_of_another_incarnation_or_directory_is_ignored() -> None:
    for change in ({"previous_broker_epoch": 1}, {"directories": OTHER_DISK}):
        rig = cluster(2)
        rig.do(FenceBroker(2))
        assert partition(rig).elr == (2,)
        rig.do(RegisterBroker(restarted(2, rig, clean=True, **change), 0))
        assert (partition(rig).elr, partition(rig).last_known_elr) == ((), (2,))


def test_start_that_did_not_write_its_epoch_keeps_eligibility() -> None:
    """Three times, all brokers register with the epoch of their last clean start, and fail before they write the new
    epoch.
    """
    rig = cluster(1, 2, 3, configs=(("min.insync.replicas", "2"),))
    written_epochs = {broker_id: broker(rig, broker_id).epoch for broker_id in (1, 2, 3)}
    for broker_id in (1, 2, 3):
        rig.do(FenceBroker(broker_id))
    for incarnation in (8, 9, 10):
        for broker_id, epoch in written_epochs.items():
            rig.do(RegisterBroker(registration(broker_id, incarnation=incarnation, previous=epoch), 0))
        assert (partition(rig).isr, partition(rig).elr) == ((), (2, 3))
    rig.do(UnfenceBroker(3))
    assert (partition(rig).leader, partition(rig).leader_recovery_state) == (3, 0)
    # After it was unfenced, broker 3 may have acknowledged records that its written epoch does not cover.
    rig.do(RegisterBroker(registration(3, incarnation=11, previous=written_epochs[3]), 0))
    assert partition(rig).elr == (2,)


def test_start_that_did_not_write_its_epoch_keeps_its_partitions() -> None:
    rig = cluster(1, 2, 3)
    stop_together(rig)
    before, written = partition(rig), broker(rig, 2).epoch
    for incarnation in (8, 9):
        rig.do(RegisterBroker(registration(2, incarnation=incarnation, previous=written), 0))
        assert partition(rig) == before
    rig.do(Heartbeat(BrokerHeartbeat(2, broker(rig, 2).epoch, len(rig.log)), 0))
    # From now on, broker 2 may have acknowledged records that its written epoch does not cover.
    rig.do(RegisterBroker(registration(2, incarnation=10, previous=written), 0))
    assert (broker(rig, 2).fenced, partition(rig).isr) == (True, (1, 3))


def test_registrations_without_a_written_epoch_are_remembered_up_to_a_limit() -> None:
    rig = cluster(2)
    first = broker(rig, 2).epoch
    for number in range(LINEAGE_MAX + 2):
        rig.do(RegisterBroker(registration(2, incarnation=20 + number, previous=first), 0))
        assert len(broker(rig, 2).lineage) <= LINEAGE_MAX
    assert (partition(rig).elr, partition(rig).last_known_elr) == ((), (2,)), (
        "an epoch outside the lineage counts as an unclean shutdown"
    )


def test_after_an_unclean_shutdown_the_last_known_leader_leads() -> None:
    rig = cluster(2, 3)
    rig.do(FenceBroker(3))
    rig.do(RegisterBroker(restarted(2, rig), 0))
    gone = partition(rig)
    assert (gone.leader, gone.isr, gone.elr, gone.last_known_elr) == (-1, (), (), (2,))
    rig.do(UnfenceBroker(3))
    assert partition(rig).leader == -1
    rig.do(UnfenceBroker(2))
    back = partition(rig)
    assert (back.leader, back.isr, back.leader_recovery_state, back.last_known_elr) == (2, (2,), 1, ())


def test_unclean_shutdown_ends_eligibility_and_the_other_eligible_replica_leads() -> None:
    rig = cluster(1, 2, configs=(("min.insync.replicas", "2"),))
    rig.do(FenceBroker(2))
    assert (partition(rig).isr, partition(rig).elr) == ((1,), (2,))
    rig.do(FenceBroker(1))
    assert (partition(rig).isr, partition(rig).elr) == ((), (1, 2))
    rig.do(RegisterBroker(restarted(1, rig), 0))
    assert (partition(rig).isr, partition(rig).elr) == ((), (2,))
    rig.do(UnfenceBroker(1))
    assert partition(rig).leader == -1
    rig.do(UnfenceBroker(2))
    back = partition(rig)
    assert (back.leader, back.isr, back.elr, back.leader_recovery_state) == (2, (2,), (), 0)


def test_without_elr_the_last_in_sync_replica_leads_after_any_shutdown() -> None:
    rig = cluster(2, elr=False)
    rig.do(RegisterBroker(restarted(2, rig), 0))
    assert (partition(rig).leader, partition(rig).isr) == (-1, (2,))
    rig.do(UnfenceBroker(2))
    assert (partition(rig).leader, partition(rig).isr, partition(rig).leader_recovery_state) == (2, (2,), 0)


# ---- lost directories -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("elr", [False, True])
@pytest.mark.parametrize("clean", [False, True])
def test_broker_with_a_lost_directory_does_not_lead(elr: bool, clean: bool) -> None:
    rig = cluster(2, elr=elr)
    rig.do(FenceBroker(2))
    rig.do(RegisterBroker(restarted(2, rig, clean=clean, directories=OTHER_DISK), 0))
    rig.do(UnfenceBroker(2))
    assert partition(rig).leader == -1
    (notice,) = rig.notices
    fields = dict(notice.fields)
    assert (fields["broker"], fields["partitions"], fields["count"]) == (2, "t-0", 1)
    assert "former data directory" in str(fields["remedy"])
    # With the former directory, the broker leads again.
    rig.do(RegisterBroker(registration(2, incarnation=9, previous=broker(rig, 2).epoch), 20_000))
    rig.do(UnfenceBroker(2))
    assert partition(rig).leader == 2


def test_unclean_leader_with_a_new_directory_records_it() -> None:
    rig = cluster(2, configs=(("unclean.leader.election.enable", "true"),))
    rig.do(FenceBroker(2))
    rig.do(RegisterBroker(restarted(2, rig, directories=OTHER_DISK), 0))
    rig.do(UnfenceBroker(2))
    back = partition(rig)
    assert (back.leader, back.leader_recovery_state, back.directories) == (2, 1, OTHER_DISK)
