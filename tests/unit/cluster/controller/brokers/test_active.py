"""Heartbeats, fencing, and what they do to leaders; producer ids and features."""

from __future__ import annotations

from dataclasses import replace

import pytest

from odradek.cluster.controller.commands import (
    AllocateProducerIds,
    Bootstrap,
    CreateTopics,
    ExpireSessions,
    FenceBroker,
    Heartbeat,
    RegisterBroker,
    UnfenceBroker,
    UnregisterBroker,
    UpdateFeatures,
)
from odradek.cluster.controller.messages.brokers import BrokerHeartbeat, HeartbeatReply
from odradek.cluster.controller.messages.settings import FeatureUpdate
from odradek.cluster.controller.messages.topics import NewTopic
from odradek.cluster.controller.settings.features import SUPPORTED_FEATURES
from odradek.cluster.metadata.image import RESOURCE_BROKER, PartitionImage
from odradek.protocol.errors import ErrorCode, Refusal
from tests.support.raft_memory import ControllerRig, registration


def refusal(rig: ControllerRig, command: object) -> ErrorCode:
    before = len(rig.log)
    with pytest.raises(Refusal) as refused:
        rig.do(command)  # type: ignore[arg-type]  # any command
    assert len(rig.log) == before
    return refused.value.error


def beat(rig: ControllerRig, broker_id: int, **wants: bool) -> HeartbeatReply:
    epoch = rig.core.state.image.brokers[broker_id].epoch
    reply = rig.do(Heartbeat(BrokerHeartbeat(broker_id, epoch, len(rig.log) - 1, **wants), rig.now_ms))
    assert isinstance(reply, HeartbeatReply)
    return reply


def partition(rig: ControllerRig, index: int = 0) -> PartitionImage:
    return rig.core.state.image.topics["t"].partitions[index]


def with_topic(rig: ControllerRig, *replicas: int, configs: tuple[tuple[str, str], ...] = ()) -> ControllerRig:
    rig.do(CreateTopics((NewTopic("t", assignments=((0, replicas),), configs=configs),)))
    return rig


def test_fencing_and_unfencing_the_only_replica() -> None:
    rig = with_topic(ControllerRig().with_brokers(1, elr=False), 1)
    rig.do(FenceBroker(1))
    assert (partition(rig).leader, partition(rig).isr, partition(rig).leader_epoch) == (-1, (1,), 1)
    before = len(rig.log)
    rig.do(FenceBroker(1))
    assert len(rig.log) == before
    rig.do(UnfenceBroker(1))
    assert (partition(rig).leader, partition(rig).isr, partition(rig).leader_epoch) == (1, (1,), 2)
    assert partition(rig).partition_epoch == 2


def test_with_elr_the_only_replica_leaves_an_empty_isr_and_is_eligible() -> None:
    rig = with_topic(ControllerRig().with_brokers(1), 1)
    rig.do(FenceBroker(1))
    left = partition(rig)
    assert (left.leader, left.isr, left.elr, left.last_known_elr) == (-1, (), (1,), (1,))
    rig.do(UnfenceBroker(1))
    back = partition(rig)
    assert (back.leader, back.isr, back.elr, back.last_known_elr) == (1, (1,), (), ())
    assert (back.leader_epoch, back.leader_recovery_state) == (2, 0)


@pytest.mark.parametrize("elr", [False, True])
def test_a_fenced_leader_is_followed_by_the_next_in_sync_replica(elr: bool) -> None:
    rig = with_topic(ControllerRig().with_brokers(1, 2, 3, elr=elr), 1, 3, 2)
    rig.do(FenceBroker(1))
    assert (partition(rig).leader, partition(rig).isr, partition(rig).leader_epoch) == (3, (3, 2), 1)
    rig.do(FenceBroker(2))
    # a follower that leaves the ISR starts no new leader epoch
    assert (partition(rig).leader, partition(rig).isr, partition(rig).leader_epoch) == (3, (3,), 1)
    rig.do(FenceBroker(3))
    assert (partition(rig).leader, partition(rig).isr or partition(rig).elr) == (-1, (3,))
    # 1 is alive again, but not in sync: it would lose what 3 has acknowledged
    rig.do(UnfenceBroker(1))
    assert (partition(rig).leader, partition(rig).isr or partition(rig).elr) == (-1, (3,))
    rig.do(UnfenceBroker(3))
    assert (partition(rig).leader, partition(rig).isr, partition(rig).leader_recovery_state) == (3, (3,), 0)


@pytest.mark.parametrize(("elr", "allowed"), [(False, "true"), (True, "true"), (False, " TRUE")])
def test_an_unclean_election_happens_only_where_the_topic_allows_it(elr: bool, allowed: str) -> None:
    rig = ControllerRig().with_brokers(1, 2, elr=elr)
    with_topic(rig, 1, 2, configs=(("unclean.leader.election.enable", allowed),))
    rig.do(FenceBroker(2))
    rig.do(FenceBroker(1))
    assert partition(rig).leader == -1
    rig.do(UnfenceBroker(2))
    found = partition(rig)
    assert (found.leader, found.isr, found.elr, found.last_known_elr) == (2, (2,), (), ())
    assert found.leader_recovery_state == 1


def test_a_verdict_is_about_one_incarnation() -> None:
    rig = with_topic(ControllerRig().with_brokers(1, 2), 2, 1)
    epoch = rig.core.state.image.brokers[2].epoch
    assert refusal(rig, FenceBroker(2, epoch - 1)) is ErrorCode.STALE_BROKER_EPOCH
    assert refusal(rig, FenceBroker(3, epoch)) is ErrorCode.BROKER_ID_NOT_REGISTERED
    rig.do(FenceBroker(2, epoch))
    assert partition(rig).leader == 1
    before = len(rig.log)
    rig.do(FenceBroker(2, epoch))
    assert len(rig.log) == before


def test_a_heartbeat_unfences_a_broker_that_knows_its_own_registration() -> None:
    rig = ControllerRig()
    rig.do(Bootstrap())
    epoch = rig.do(RegisterBroker(registration(1), 0))
    behind = rig.do(Heartbeat(BrokerHeartbeat(1, epoch, epoch - 1), 0))
    assert behind == HeartbeatReply(is_caught_up=False, is_fenced=True, should_shut_down=False)
    assert rig.core.state.image.brokers[1].fenced
    waiting = rig.do(Heartbeat(BrokerHeartbeat(1, epoch, epoch, want_fence=True), 0))
    assert waiting.is_fenced
    assert beat(rig, 1) == HeartbeatReply(is_caught_up=True, is_fenced=False, should_shut_down=False)
    assert not rig.core.state.image.brokers[1].fenced


def test_heartbeats_of_others_are_refused() -> None:
    rig = ControllerRig().with_brokers(1)
    assert refusal(rig, Heartbeat(BrokerHeartbeat(1, 999, 0), 0)) is ErrorCode.STALE_BROKER_EPOCH
    assert refusal(rig, Heartbeat(BrokerHeartbeat(5, 0, 0), 0)) is ErrorCode.BROKER_ID_NOT_REGISTERED


def test_controlled_shutdown_moves_leaders_then_waits_until_the_others_know() -> None:
    rig = with_topic(ControllerRig().with_brokers(1, 2), 1, 2)
    beat(rig, 2)
    assert not beat(rig, 1, want_shut_down=True).should_shut_down
    assert (partition(rig).leader, partition(rig).isr) == (2, (2,))
    assert rig.core.state.image.brokers[1].in_controlled_shutdown
    assert not beat(rig, 1, want_shut_down=True).should_shut_down  # 2 has not said that it knows
    beat(rig, 2)
    assert beat(rig, 1, want_shut_down=True).should_shut_down
    assert rig.core.state.image.brokers[1].fenced


def test_whoever_has_begun_to_leave_comes_back_by_a_new_registration_only() -> None:
    rig = with_topic(ControllerRig().with_brokers(1, 2), 1, 2)
    beat(rig, 1, want_shut_down=True)
    rig.do(FenceBroker(1))
    assert beat(rig, 1).is_fenced
    rig.do(RegisterBroker(registration(1, incarnation=8), rig.now_ms))
    assert not beat(rig, 1).is_fenced


def test_silent_brokers_lose_their_session_but_not_the_controllers_own() -> None:
    rig = with_topic(ControllerRig().with_brokers(1, 2), 2, 1)
    rig.now_ms = 5_000
    beat(rig, 2)
    assert rig.do(ExpireSessions(14_000)) is None
    assert rig.do(ExpireSessions(14_001)) == 2
    assert (partition(rig).leader, partition(rig).isr) == (1, (1,))
    assert rig.do(ExpireSessions(100_000)) is None
    assert not rig.core.state.image.brokers[1].fenced


def test_a_new_controller_gives_everybody_a_full_session() -> None:
    rig = with_topic(ControllerRig().with_brokers(1, 2), 2, 1)
    rig.core.state.sessions.clear()
    rig.do(Bootstrap(at_ms=50_000))
    assert rig.do(ExpireSessions(59_000)) is None
    assert rig.do(ExpireSessions(59_001)) == 2


def test_an_unregistered_broker_leads_nothing_and_is_in_sync_with_nothing() -> None:
    rig = with_topic(ControllerRig().with_brokers(1, 2), 2, 1)
    rig.do(UnregisterBroker(2))
    assert (partition(rig).leader, partition(rig).isr, partition(rig).replicas) == (1, (1,), (2, 1))
    assert list(rig.core.state.image.brokers) == [1]
    assert refusal(rig, UnregisterBroker(2)) is ErrorCode.BROKER_ID_NOT_REGISTERED


def test_producer_id_blocks_follow_each_other() -> None:
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
        "metadata.version": 30,
        "eligible.leader.replicas.version": 1,
        "group.version": 1,
        "transaction.version": 1,
    }
    assert rig.core.state.image.config(RESOURCE_BROKER, "") == {"min.insync.replicas": "1"}
    before = len(rig.log)
    rig.do(Bootstrap())
    assert len(rig.log) == before
    assert refusal(ControllerRig(), Bootstrap({"transaction.version": 3})) is ErrorCode.INVALID_UPDATE_VERSION


def test_features_go_up_freely_and_down_on_request() -> None:
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


RELEASE_4_3 = {
    "metadata.version": 30,
    "group.version": 1,
    "eligible.leader.replicas.version": 1,
    "transaction.version": 2,
    "kraft.version": 1,
    "share.version": 1,
    "streams.version": 1,
}
"""What `kafka-features upgrade --release-version 4.3` asks for."""
NOT_HERE = ("kraft.version", "share.version", "streams.version")


def test_what_a_release_of_kafka_finalizes_is_refused_for_what_is_not_here() -> None:
    rig = ControllerRig().with_brokers(1)
    asked = [FeatureUpdate(name, level) for name, level in RELEASE_4_3.items()]
    assert refusal(rig, UpdateFeatures(tuple(asked))) is ErrorCode.INVALID_UPDATE_VERSION
    before = len(rig.log)
    rig.do(UpdateFeatures(tuple(each for each in asked if each.name not in NOT_HERE)))
    rig.do(UpdateFeatures(tuple(FeatureUpdate(name, 0) for name in NOT_HERE)))
    rig.do(UpdateFeatures(tuple(FeatureUpdate(name, 0, allow_downgrade=True) for name in NOT_HERE)))
    assert len(rig.log) == before, "all of that is so already"


@pytest.mark.parametrize(
    ("update", "reason"),
    [
        *((FeatureUpdate(name, 1), "Local controller 1 does not support this feature.") for name in (*NOT_HERE, "no.such")),
        (FeatureUpdate("no.such", 0), "Feature no.such not found."),
        (FeatureUpdate("no.such", 0, allow_downgrade=True), "Feature no.such not found."),
        (FeatureUpdate("share.version", -1), "A feature version cannot be less than 0."),
        (FeatureUpdate("metadata.version", 29), "Local controller 1 only supports versions 30"),
        (FeatureUpdate("group.version", 2), "Local controller 1 only supports versions 0-1"),
        (FeatureUpdate("transaction.version", 2, allow_downgrade=True), "Can't downgrade to a newer version."),
    ],
)  # fmt: skip
def test_features_are_refused_in_kafkas_words(update: FeatureUpdate, reason: str) -> None:
    rig = ControllerRig()
    rig.do(Bootstrap({"transaction.version": 0}))
    with pytest.raises(Refusal) as caught:
        rig.do(UpdateFeatures((update,)))
    assert caught.value.error is ErrorCode.INVALID_UPDATE_VERSION
    assert str(caught.value.message).endswith(
        f" error: Invalid update version {update.max_level} for feature {update.name}. {reason}"
    )


def test_a_broker_that_lacks_a_feature_is_named() -> None:
    rig = ControllerRig()
    rig.do(Bootstrap({"transaction.version": 0}))
    features = {name: levels for name, levels in SUPPORTED_FEATURES.items() if name != "transaction.version"}
    rig.do(RegisterBroker(replace(registration(2), features=features), rig.now_ms))
    with pytest.raises(Refusal, match=r"for feature transaction\.version\. Broker 2 does not support this feature\.$"):
        rig.do(UpdateFeatures((FeatureUpdate("transaction.version", 2),)))


def test_one_bad_feature_refuses_all() -> None:
    rig = ControllerRig().with_brokers(1)
    updates = (FeatureUpdate("group.version", 0, allow_downgrade=True), FeatureUpdate("no.such", 1))
    assert refusal(rig, UpdateFeatures(updates)) is ErrorCode.INVALID_UPDATE_VERSION
    assert rig.core.state.image.feature("group.version") == 1
