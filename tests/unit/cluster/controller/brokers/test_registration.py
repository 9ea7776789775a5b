"""Registrations of brokers: who may take an id, what the newcomer may still lead, and which directories hold replicas."""

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
from odradek.cluster.metadata.image import VersionRange
from odradek.cluster.metadata.replay.brokers import LINEAGE_MAX
from odradek.protocol.errors import ErrorCode, Refusal
from tests.support.raft_memory import ControllerRig, registration

if TYPE_CHECKING:
    from odradek.cluster.controller.messages.brokers import BrokerRegistration
    from odradek.cluster.metadata.image import BrokerImage, PartitionImage

OTHER_DISK = (UUID(int=(1 << 100) + 77),)


def refusal(rig: ControllerRig, newcomer: BrokerRegistration, at_ms: int = 0) -> ErrorCode:
    before = len(rig.log)
    with pytest.raises(Refusal) as refused:
        rig.do(RegisterBroker(newcomer, at_ms))
    assert len(rig.log) == before
    return refused.value.error


def broker(rig: ControllerRig, broker_id: int) -> BrokerImage:
    return rig.core.state.image.brokers[broker_id]


def partition(rig: ControllerRig) -> PartitionImage:
    return rig.core.state.image.topics["t"].partitions[0]


def cluster(*replicas: int, elr: bool = True, configs: tuple[tuple[str, str], ...] = ()) -> ControllerRig:
    rig = ControllerRig().with_brokers(1, 2, 3, elr=elr)
    rig.do(CreateTopics((NewTopic("t", assignments=((0, replicas),), configs=configs),)))
    return rig


def restarted(broker_id: int, rig: ControllerRig, *, clean: bool = False, **changes: object) -> BrokerRegistration:
    """The next life of a broker on its own directory and addresses."""
    previous = broker(rig, broker_id).epoch if clean else -1
    newcomer = registration(broker_id, incarnation=8, previous=previous)
    return replace(newcomer, **changes)  # type: ignore[arg-type]  # fields of a registration


def test_a_registration_is_fenced_and_its_epoch_is_its_offset() -> None:
    rig = ControllerRig()
    rig.do(Bootstrap())
    offset = len(rig.log)
    assert rig.do(RegisterBroker(registration(1), 0)) == offset
    assert (broker(rig, 1).epoch, broker(rig, 1).fenced, broker(rig, 1).rack) == (offset, True, None)
    assert broker(rig, 1).endpoints[0].port == 9093


def test_the_same_incarnation_keeps_its_epoch_and_state() -> None:
    rig = ControllerRig().with_brokers(1)
    epoch = broker(rig, 1).epoch
    assert rig.do(RegisterBroker(registration(1), 5)) == epoch
    assert not broker(rig, 1).fenced


def test_an_id_in_use_is_refused_until_its_session_is_over() -> None:
    rig = ControllerRig().with_brokers(1, 2)
    stranger = replace(registration(2, incarnation=8), directories=OTHER_DISK)
    rig.do(Heartbeat(BrokerHeartbeat(2, broker(rig, 2).epoch, 99), 1_000))
    assert refusal(rig, stranger, 10_000) is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    rig.do(RegisterBroker(stranger, 10_001))
    assert broker(rig, 2).incarnation_id == stranger.incarnation_id


def test_whoever_holds_the_directory_and_the_address_of_a_broker_is_that_broker() -> None:
    rig = ControllerRig().with_brokers(1, 2)
    assert refusal(rig, restarted(2, rig, directories=OTHER_DISK)) is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    moved = registration(2, incarnation=8, host="elsewhere")
    assert refusal(rig, moved) is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    rig.do(RegisterBroker(restarted(2, rig), 0))


@pytest.mark.parametrize("how", ["fenced", "leaving"])
def test_a_session_that_is_over_does_not_stand_in_the_way(how: str) -> None:
    rig = cluster(2, 1)
    if how == "fenced":
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
def test_registrations_that_are_refused(change: dict[str, object], error: ErrorCode) -> None:
    rig = ControllerRig().with_brokers(1)
    assert refusal(rig, replace(registration(2), **change)) is error  # type: ignore[arg-type]  # fields of a registration


# ---- what a new incarnation may still lead ----------------------------------------------------------------------------


def test_a_new_incarnation_gives_up_what_the_old_one_led() -> None:
    rig = cluster(2, 1)
    rig.do(RegisterBroker(restarted(2, rig), 0))
    assert (partition(rig).leader, partition(rig).isr, partition(rig).leader_epoch) == (1, (1,), 1)
    assert broker(rig, 2).fenced


def test_the_last_in_sync_replica_stays_eligible_over_a_clean_stop() -> None:
    rig = cluster(2)
    rig.do(RegisterBroker(restarted(2, rig, clean=True), 0))
    assert (partition(rig).leader, partition(rig).isr, partition(rig).elr) == (-1, (), (2,))
    rig.do(UnfenceBroker(2))
    assert (partition(rig).leader, partition(rig).isr, partition(rig).leader_recovery_state) == (2, (2,), 0)


def test_a_clean_stop_of_another_life_or_another_disk_says_nothing() -> None:
    for change in ({"previous_broker_epoch": 1}, {"directories": OTHER_DISK}):
        rig = cluster(2)
        rig.do(FenceBroker(2))
        assert partition(rig).elr == (2,)
        rig.do(RegisterBroker(restarted(2, rig, clean=True, **change), 0))
        assert (partition(rig).elr, partition(rig).last_known_elr) == ((), (2,))


def test_a_start_that_did_not_get_as_far_as_writing_down_its_epoch_has_lost_nothing() -> None:
    """Three storms: everybody is killed, registers by the epoch it left behind, and is killed before it leaves the new one."""
    rig = cluster(1, 2, 3, configs=(("min.insync.replicas", "2"),))
    left_behind = {broker_id: broker(rig, broker_id).epoch for broker_id in (1, 2, 3)}
    for storm in (8, 9, 10):
        for broker_id, epoch in left_behind.items():
            rig.do(RegisterBroker(registration(broker_id, incarnation=storm, previous=epoch), 0))
        assert (partition(rig).isr, partition(rig).elr) == ((), (2, 3))
    rig.do(UnfenceBroker(3))
    assert (partition(rig).leader, partition(rig).leader_recovery_state) == (3, 0)
    # once it was unfenced it may have acknowledged what an epoch from before does not vouch for
    rig.do(RegisterBroker(registration(3, incarnation=11, previous=left_behind[3]), 0))
    assert partition(rig).elr == (2,)


def test_so_many_starts_in_a_row_are_remembered() -> None:
    rig = cluster(2)
    first = broker(rig, 2).epoch
    for life in range(LINEAGE_MAX + 2):
        rig.do(RegisterBroker(registration(2, incarnation=20 + life, previous=first), 0))
        assert len(broker(rig, 2).lineage) <= LINEAGE_MAX
    assert (partition(rig).elr, partition(rig).last_known_elr) == ((), (2,)), "what is forgotten counts as lost"


def test_after_an_unclean_stop_the_last_known_leader_leads_for_want_of_a_better_one() -> None:
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


def test_an_unclean_stop_ends_eligibility_and_the_other_eligible_replica_leads() -> None:
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


def test_without_elr_the_last_in_sync_replica_leads_whatever_its_stop_was() -> None:
    rig = cluster(2, elr=False)
    rig.do(RegisterBroker(restarted(2, rig), 0))
    assert (partition(rig).leader, partition(rig).isr) == (-1, (2,))
    rig.do(UnfenceBroker(2))
    assert (partition(rig).leader, partition(rig).isr, partition(rig).leader_recovery_state) == (2, (2,), 0)


# ---- lost directories -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("elr", [False, True])
@pytest.mark.parametrize("clean", [False, True])
def test_a_broker_that_lost_its_directory_does_not_lead_with_an_empty_log(elr: bool, clean: bool) -> None:
    rig = cluster(2, elr=elr)
    rig.do(FenceBroker(2))
    rig.do(RegisterBroker(restarted(2, rig, clean=clean, directories=OTHER_DISK), 0))
    rig.do(UnfenceBroker(2))
    assert partition(rig).leader == -1
    (notice,) = rig.notices
    fields = dict(notice.fields)
    assert (fields["broker"], fields["partitions"], fields["count"]) == (2, "t-0", 1)
    assert "former data directory" in str(fields["remedy"])
    # with the former directory it leads again
    rig.do(RegisterBroker(registration(2, incarnation=9, previous=broker(rig, 2).epoch), 20_000))
    rig.do(UnfenceBroker(2))
    assert partition(rig).leader == 2


def test_a_lost_directory_is_named_where_records_may_be_lost() -> None:
    rig = cluster(2, configs=(("unclean.leader.election.enable", "true"),))
    rig.do(FenceBroker(2))
    rig.do(RegisterBroker(restarted(2, rig, directories=OTHER_DISK), 0))
    rig.do(UnfenceBroker(2))
    back = partition(rig)
    assert (back.leader, back.leader_recovery_state, back.directories) == (2, 1, OTHER_DISK)
