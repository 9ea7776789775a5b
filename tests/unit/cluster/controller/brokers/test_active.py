"""Heartbeats, fencing and sessions of brokers, with their elections; producer ids and features."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from odradek.cluster.controller.commands import (
    AllocateProducerIds,
    Bootstrap,
    CreateTopics,
    ExpireSessions,
    FenceBroker,
    Heartbeat,
    RegisterBroker,
    RegisterController,
    UnfenceBroker,
    UnregisterBroker,
    UnregisterController,
    UpdateFeatures,
)
from odradek.cluster.controller.messages.brokers import BrokerHeartbeat, ControllerRegistration, HeartbeatReply
from odradek.cluster.controller.messages.settings import FeatureUpdate
from odradek.cluster.controller.messages.topics import NewTopic
from odradek.cluster.controller.settings.features import SUPPORTED_FEATURES
from odradek.cluster.metadata.image import RESOURCE_BROKER, PartitionImage, VersionRange
from odradek.protocol.errors import ErrorCode, Refusal
from tests.support.raft_memory import ControllerRig, registration


def refusal(rig: ControllerRig, command: object) -> ErrorCode:
    before = len(rig.log)
    with pytest.raises(Refusal) as caught:
        rig.do(command)  # type: ignore[arg-type]  # any command
    assert len(rig.log) == before
    return caught.value.error


def heartbeat(rig: ControllerRig, broker_id: int, **wants: bool) -> HeartbeatReply:
    epoch = rig.core.state.image.brokers[broker_id].epoch
    reply = rig.do(Heartbeat(BrokerHeartbeat(broker_id, epoch, len(rig.log) - 1, **wants), rig.now_ms))
    assert isinstance(reply, HeartbeatReply)
    return reply


def partition(rig: ControllerRig, index: int = 0) -> PartitionImage:
    return rig.core.state.image.topics["t"].partitions[index]


def with_topic(rig: ControllerRig, *replicas: int, configs: tuple[tuple[str, str], ...] = ()) -> ControllerRig:
    rig.do(CreateTopics((NewTopic("t", assignments=((0, replicas),), configs=configs),)))
    return rig


def test_only_replica_stays_in_the_isr_and_leads_again_when_unfenced() -> None:
    rig = with_topic(ControllerRig().with_brokers(1, elr=False), 1)
    rig.do(FenceBroker(1))
    assert (partition(rig).leader, partition(rig).isr, partition(rig).leader_epoch) == (-1, (1,), 1)
    before = len(rig.log)
    rig.do(FenceBroker(1))
    assert len(rig.log) == before
    rig.do(UnfenceBroker(1))
    assert (partition(rig).leader, partition(rig).isr, partition(rig).leader_epoch) == (1, (1,), 2)
    assert partition(rig).partition_epoch == 2


def test_with_elr_the_only_replica_leaves_the_isr_and_is_eligible() -> None:
    rig = with_topic(ControllerRig().with_brokers(1), 1)
    rig.do(FenceBroker(1))
    left = partition(rig)
    assert (left.leader, left.isr, left.elr, left.last_known_elr) == (-1, (), (1,), (1,))
    rig.do(UnfenceBroker(1))
    back = partition(rig)
    assert (back.leader, back.isr, back.elr, back.last_known_elr) == (1, (1,), (), ())
    assert (back.leader_epoch, back.leader_recovery_state) == (2, 0)


@pytest.mark.parametrize("elr", [False, True])
def test_fenced_leader_is_replaced_by_the_next_in_sync_replica(elr: bool) -> None:
    rig = with_topic(ControllerRig().with_brokers(1, 2, 3, elr=elr), 1, 3, 2)
    rig.do(FenceBroker(1))
    assert (partition(rig).leader, partition(rig).isr, partition(rig).leader_epoch) == (3, (3, 2), 1)
    rig.do(FenceBroker(2))
    # A follower that leaves the ISR starts no new leader epoch.
    assert (partition(rig).leader, partition(rig).isr, partition(rig).leader_epoch) == (3, (3,), 1)
    rig.do(FenceBroker(3))
    assert (partition(rig).leader, partition(rig).isr or partition(rig).elr) == (-1, (3,))
    # Broker 1 is active again, but not in sync: it may lack records that broker 3 acknowledged.
    rig.do(UnfenceBroker(1))
    assert (partition(rig).leader, partition(rig).isr or partition(rig).elr) == (-1, (3,))
    rig.do(UnfenceBroker(3))
    assert (partition(rig).leader, partition(rig).isr, partition(rig).leader_recovery_state) == (3, (3,), 0)


@pytest.mark.parametrize(("elr", "allowed"), [(False, "true"), (True, "true"), (False, " TRUE")])
def test_unclean_election_needs_the_topic_config(elr: bool, allowed: str) -> None:
    rig = ControllerRig().with_brokers(1, 2, elr=elr)
    with_topic(rig, 1, 2, configs=(("unclean.leader.election.enable", allowed),))
    rig.do(FenceBroker(2))
    rig.do(FenceBroker(1))
    assert partition(rig).leader == -1
    rig.do(UnfenceBroker(2))
    elected = partition(rig)
    assert (elected.leader, elected.isr, elected.elr, elected.last_known_elr) == (2, (2,), (), ())
    assert elected.leader_recovery_state == 1


def test_fence_with_an_older_broker_epoch_is_refused() -> None:
    rig = with_topic(ControllerRig().with_brokers(1, 2), 2, 1)
    epoch = rig.core.state.image.brokers[2].epoch
    assert refusal(rig, FenceBroker(2, epoch - 1)) is ErrorCode.STALE_BROKER_EPOCH
    assert refusal(rig, FenceBroker(3, epoch)) is ErrorCode.BROKER_ID_NOT_REGISTERED
    rig.do(FenceBroker(2, epoch))
    assert partition(rig).leader == 1
    before = len(rig.log)
    rig.do(FenceBroker(2, epoch))
    assert len(rig.log) == before


def test_heartbeat_unfences_a_broker_that_has_its_registration_record() -> None:
    rig = ControllerRig()
    rig.do(Bootstrap())
    epoch = rig.do(RegisterBroker(registration(1), 0))
    behind = rig.do(Heartbeat(BrokerHeartbeat(1, epoch, epoch - 1), 0))
    assert behind == HeartbeatReply(is_caught_up=False, is_fenced=True, should_shut_down=False)
    assert rig.core.state.image.brokers[1].fenced
    waiting = rig.do(Heartbeat(BrokerHeartbeat(1, epoch, epoch, want_fence=True), 0))
    assert waiting.is_fenced
    assert heartbeat(rig, 1) == HeartbeatReply(is_caught_up=True, is_fenced=False, should_shut_down=False)
    assert not rig.core.state.image.brokers[1].fenced


def test_last_active_broker_is_not_fenced_on_request() -> None:
    rig = ControllerRig().with_brokers(1, 2)
    fenced = []
    for broker_id in (1, 2):
        epoch = rig.core.state.image.brokers[broker_id].epoch
        fenced.append(rig.do(Heartbeat(BrokerHeartbeat(broker_id, epoch, len(rig.log), want_fence=True), 0)).is_fenced)
    assert fenced == [True, False]


def test_heartbeat_of_an_unknown_broker_or_epoch_is_refused() -> None:
    rig = ControllerRig().with_brokers(1)
    assert refusal(rig, Heartbeat(BrokerHeartbeat(1, 999, 0), 0)) is ErrorCode.STALE_BROKER_EPOCH
    assert refusal(rig, Heartbeat(BrokerHeartbeat(5, 0, 0), 0)) is ErrorCode.BROKER_ID_NOT_REGISTERED


def test_controlled_shutdown_moves_leaders_and_waits_for_the_metadata_of_other_brokers() -> None:
    rig = with_topic(ControllerRig().with_brokers(1, 2), 1, 2)
    heartbeat(rig, 2)
    assert not heartbeat(rig, 1, want_shut_down=True).should_shut_down
    assert (partition(rig).leader, partition(rig).isr) == (2, (2,))
    assert rig.core.state.image.brokers[1].in_controlled_shutdown
    assert not heartbeat(rig, 1, want_shut_down=True).should_shut_down  # broker 2 has not reported this metadata offset
    heartbeat(rig, 2)
    assert heartbeat(rig, 1, want_shut_down=True).should_shut_down
    assert rig.core.state.image.brokers[1].fenced


def test_broker_in_controlled_shutdown_is_unfenced_only_after_a_new_registration() -> None:
    rig = with_topic(ControllerRig().with_brokers(1, 2), 1, 2)
    heartbeat(rig, 1, want_shut_down=True)
    rig.do(FenceBroker(1))
    assert heartbeat(rig, 1).is_fenced
    rig.do(RegisterBroker(registration(1, incarnation=8), rig.now_ms))
    assert not heartbeat(rig, 1).is_fenced


def test_expired_session_fences_a_broker_except_the_node_of_the_controller() -> None:
    rig = with_topic(ControllerRig().with_brokers(1, 2), 2, 1)
    rig.now_ms = 5_000
    heartbeat(rig, 2)
    assert rig.do(ExpireSessions(14_000)) is None
    assert rig.do(ExpireSessions(14_001)) == 2
    assert (partition(rig).leader, partition(rig).isr) == (1, (1,))
    assert rig.do(ExpireSessions(100_000)) is None
    assert not rig.core.state.image.brokers[1].fenced


def test_new_controller_starts_a_full_session_for_each_broker() -> None:
    rig = with_topic(ControllerRig().with_brokers(1, 2), 2, 1)
    rig.core.state.sessions.clear()
    rig.do(Bootstrap(at_ms=50_000))
    assert rig.do(ExpireSessions(59_000)) is None
    assert rig.do(ExpireSessions(59_001)) == 2


def test_unregistered_broker_leaves_leaders_and_isr() -> None:
    rig = with_topic(ControllerRig().with_brokers(1, 2), 2, 1)
    rig.do(UnregisterBroker(2))
    assert (partition(rig).leader, partition(rig).isr, partition(rig).replicas) == (1, (1,), (2, 1))
    assert list(rig.core.state.image.brokers) == [1]
    assert refusal(rig, UnregisterBroker(2)) is ErrorCode.BROKER_ID_NOT_REGISTERED


def test_producer_id_blocks_are_consecutive() -> None:
    rig = ControllerRig().with_brokers(1)
    epoch = rig.core.state.image.brokers[1].epoch
    blocks = [rig.do(AllocateProducerIds(1, epoch)) for _ in range(3)]
    assert [(block.first, block.length) for block in blocks] == [(0, 1_000), (1_000, 1_000), (2_000, 1_000)]
    assert refusal(rig, AllocateProducerIds(1, epoch - 1)) is ErrorCode.STALE_BROKER_EPOCH
    assert refusal(rig, AllocateProducerIds(3, epoch)) is ErrorCode.BROKER_ID_NOT_REGISTERED


def test_bootstrap_writes_the_features_once() -> None:
    rig = ControllerRig()
    rig.do(Bootstrap({"transaction.version": 1}))
    assert rig.core.state.image.features == {
        "metadata.version": 33,
        "eligible.leader.replicas.version": 1,
        "group.version": 1,
        "transaction.version": 1,
    }
    assert rig.core.state.image.config(RESOURCE_BROKER, "") == {"min.insync.replicas": "1"}
    before = len(rig.log)
    rig.do(Bootstrap())
    assert len(rig.log) == before
    assert refusal(ControllerRig(), Bootstrap({"transaction.version": 3})) is ErrorCode.INVALID_UPDATE_VERSION


def test_feature_upgrade_is_accepted_and_downgrade_only_on_request() -> None:
    rig = ControllerRig()
    rig.do(Bootstrap({"transaction.version": 0}))
    assert rig.core.state.image.feature("transaction.version") == 0
    rig.do(UpdateFeatures((FeatureUpdate("transaction.version", 2),)))
    assert rig.core.state.image.feature("transaction.version") == 2
    down = FeatureUpdate("transaction.version", 1)
    assert refusal(rig, UpdateFeatures((down,))) is ErrorCode.INVALID_UPDATE_VERSION
    rig.do(UpdateFeatures((replace(down, allow_downgrade=True),), validate_only=True))
    assert rig.core.state.image.feature("transaction.version") == 2
    rig.do(UpdateFeatures((replace(down, allow_downgrade=True),)))
    assert rig.core.state.image.feature("transaction.version") == 1


CONTROLLER = ControllerRegistration(5, UUID(int=9), (), SUPPORTED_FEATURES)
RELEASE_4_4 = {
    "metadata.version": 33,
    "group.version": 1,
    "eligible.leader.replicas.version": 1,
    "transaction.version": 2,
    "kraft.version": 1,
    "share.version": 2,
    "streams.version": 1,
}
"""Levels that `kafka-features upgrade --release-version 4.4` requests."""
UNSUPPORTED = ("kraft.version", "share.version", "streams.version")


def test_upgrade_to_a_release_of_kafka_is_refused_for_unsupported_features() -> None:
    rig = ControllerRig().with_brokers(1)
    updates = [FeatureUpdate(name, level) for name, level in RELEASE_4_4.items()]
    assert refusal(rig, UpdateFeatures(tuple(updates))) is ErrorCode.INVALID_UPDATE_VERSION
    before = len(rig.log)
    rig.do(UpdateFeatures(tuple(update for update in updates if update.name not in UNSUPPORTED)))
    rig.do(UpdateFeatures(tuple(FeatureUpdate(name, 0) for name in UNSUPPORTED)))
    rig.do(UpdateFeatures(tuple(FeatureUpdate(name, 0, allow_downgrade=True) for name in UNSUPPORTED)))
    assert len(rig.log) == before, "all levels are already finalized"


@pytest.mark.parametrize(
    ("update", "reason"),
    [
        *(
            (FeatureUpdate(name, 1), "Local controller 1 does not support this feature.")
            for name in (*UNSUPPORTED, "no.such")
        ),
        (FeatureUpdate("no.such", 0), "Feature no.such not found."),
        (FeatureUpdate("no.such", 0, allow_downgrade=True), "Feature no.such not found."),
        (FeatureUpdate("share.version", -1), "A feature version cannot be less than 0."),
        (FeatureUpdate("metadata.version", 29), "Local controller 1 only supports versions 30-33"),
        (FeatureUpdate("group.version", 2), "Local controller 1 only supports versions 0-1"),
        (FeatureUpdate("transaction.version", 2, allow_downgrade=True), "Can't downgrade to a newer version."),
    ],
)  # fmt: skip
def test_feature_refusals_have_kafkas_messages(update: FeatureUpdate, reason: str) -> None:
    rig = ControllerRig()
    rig.do(Bootstrap({"transaction.version": 0}))
    with pytest.raises(Refusal) as caught:
        rig.do(UpdateFeatures((update,)))
    assert caught.value.error is ErrorCode.INVALID_UPDATE_VERSION
    assert str(caught.value.message).endswith(
        f" error: Invalid update version {update.max_level} for feature {update.name}. {reason}"
    )


def at_level(level: int) -> ControllerRig:
    rig = ControllerRig()
    rig.do(Bootstrap({"metadata.version": level}))
    return rig


@pytest.mark.parametrize(("current", "target"), [(30, 31), (30, 33), (31, 32), (33, 33)])
def test_metadata_version_of_an_older_cluster_is_raised(current: int, target: int) -> None:
    rig = at_level(current)
    rig.do(UpdateFeatures((FeatureUpdate("metadata.version", target),)))
    assert rig.core.state.image.feature("metadata.version") == target


def test_metadata_version_is_lowered_only_if_the_log_stays_readable() -> None:
    rig = at_level(31)
    rig.do(UpdateFeatures((FeatureUpdate("metadata.version", 30, allow_downgrade=True),)))
    assert rig.core.state.image.feature("metadata.version") == 30
    might_delete = "Refusing to perform the requested downgrade because it might delete metadata information."
    unsupported = "Unsafe metadata downgrade is not supported in this version."
    for current, target, unsafe, reason in ((33, 32, False, might_delete), (32, 30, True, unsupported)):
        update = FeatureUpdate("metadata.version", target, allow_downgrade=True, unsafe=unsafe)
        with pytest.raises(Refusal) as caught:
            at_level(current).do(UpdateFeatures((update,)))
        message = f" error: Unsupported metadata.version downgrade from {current} to {target}. {reason}"
        assert str(caught.value.message).endswith(message)


def test_metadata_version_needs_the_support_of_each_controller() -> None:
    rig = at_level(30)
    old = replace(CONTROLLER, features={"metadata.version": VersionRange(30, 30)})
    rig.do(RegisterController(replace(old, controller_id=1)))
    rig.do(RegisterController(old))
    update = UpdateFeatures((FeatureUpdate("metadata.version", 33),))
    with pytest.raises(Refusal, match=r"metadata\.version\. Controller 5 only supports versions 30$"):
        rig.do(update)
    rig.do(RegisterController(CONTROLLER))
    rig.do(update)
    assert rig.core.state.image.feature("metadata.version") == 33


def test_controller_is_unregistered_since_metadata_version_33() -> None:
    rig = at_level(32)
    rig.do(RegisterController(CONTROLLER))
    assert refusal(rig, UnregisterController(1)) is ErrorCode.INVALID_REQUEST
    assert refusal(rig, UnregisterController(5)) is ErrorCode.UNSUPPORTED_VERSION
    rig.do(UpdateFeatures((FeatureUpdate("metadata.version", 33),)))
    rig.do(UnregisterController(5))
    assert rig.core.state.image.controllers == {}
    assert refusal(rig, UnregisterController(5)) is ErrorCode.CONTROLLER_ID_NOT_REGISTERED


def test_refusal_names_the_broker_that_lacks_a_feature() -> None:
    rig = ControllerRig()
    rig.do(Bootstrap({"transaction.version": 0}))
    features = {name: levels for name, levels in SUPPORTED_FEATURES.items() if name != "transaction.version"}
    rig.do(RegisterBroker(replace(registration(2), features=features), rig.now_ms))
    with pytest.raises(Refusal, match=r"for feature transaction\.version\. Broker 2 does not support this feature\.$"):
        rig.do(UpdateFeatures((FeatureUpdate("transaction.version", 2),)))


def test_one_invalid_feature_refuses_the_whole_request() -> None:
    rig = ControllerRig().with_brokers(1)
    updates = (FeatureUpdate("group.version", 0, allow_downgrade=True), FeatureUpdate("no.such", 1))
    assert refusal(rig, UpdateFeatures(updates)) is ErrorCode.INVALID_UPDATE_VERSION
    assert rig.core.state.image.feature("group.version") == 1
