"""Registration, heartbeats, fencing, and what they do to leaders; producer ids and features."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from cluster.controller.commands import (
    AllocateProducerIds,
    Bootstrap,
    CreateTopics,
    ExpireSessions,
    FenceBroker,
    Heartbeat,
    RegisterBroker,
    UnfenceBroker,
    UpdateFeatures,
)
from cluster.controller.port import BrokerHeartbeat, FeatureUpdate, HeartbeatReply, NewTopic
from cluster.image import PartitionImage, VersionRange
from protocol.errors import ErrorCode, Refusal
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


def test_a_registration_is_fenced_and_its_epoch_is_its_offset() -> None:
    rig = ControllerRig()
    rig.do(Bootstrap())
    offset = len(rig.log)
    assert rig.do(RegisterBroker(registration(1), 0)) == offset
    broker = rig.core.state.image.brokers[1]
    assert (broker.epoch, broker.fenced, broker.rack) == (offset, True, None)
    assert broker.endpoints[0].port == 9093


def test_the_same_incarnation_keeps_its_epoch() -> None:
    rig = ControllerRig().with_brokers(1)
    epoch = rig.core.state.image.brokers[1].epoch
    assert rig.do(RegisterBroker(registration(1), 5)) == epoch
    assert not rig.core.state.image.brokers[1].fenced


def test_an_id_in_use_is_refused_until_its_session_is_over() -> None:
    rig = ControllerRig().with_brokers(1, 2)
    newcomer = registration(2, incarnation=8)
    assert refusal(rig, RegisterBroker(newcomer, 9_000)) is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    rig.do(RegisterBroker(newcomer, 10_001))
    assert rig.core.state.image.brokers[2].incarnation_id == newcomer.incarnation_id


def test_a_new_incarnation_gives_up_what_the_old_one_led() -> None:
    rig = with_topic(ControllerRig().with_brokers(1, 2), 1, 2)
    rig.do(RegisterBroker(registration(1, incarnation=8), 0))  # its own node: no session stands in the way
    assert (partition(rig).leader, partition(rig).isr, partition(rig).leader_epoch) == (2, (2,), 1)
    assert rig.core.state.image.brokers[1].fenced


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
    assert refusal(rig, RegisterBroker(replace(registration(2), **change), 0)) is error  # type: ignore[arg-type]


def test_fencing_and_unfencing_the_only_replica() -> None:
    rig = with_topic(ControllerRig().with_brokers(1), 1)
    rig.do(FenceBroker(1))
    assert (partition(rig).leader, partition(rig).isr, partition(rig).leader_epoch) == (-1, (1,), 1)
    before = len(rig.log)
    rig.do(FenceBroker(1))
    assert len(rig.log) == before
    rig.do(UnfenceBroker(1))
    assert (partition(rig).leader, partition(rig).isr, partition(rig).leader_epoch) == (1, (1,), 2)
    assert partition(rig).partition_epoch == 2


def test_a_fenced_leader_is_followed_by_the_next_in_sync_replica() -> None:
    rig = with_topic(ControllerRig().with_brokers(1, 2, 3), 1, 3, 2)
    rig.do(FenceBroker(1))
    assert (partition(rig).leader, partition(rig).isr, partition(rig).leader_epoch) == (3, (3, 2), 1)
    rig.do(FenceBroker(2))
    # a follower that leaves the ISR starts no new leader epoch
    assert (partition(rig).leader, partition(rig).isr, partition(rig).leader_epoch) == (3, (3,), 1)
    rig.do(FenceBroker(3))
    assert (partition(rig).leader, partition(rig).isr) == (-1, (3,))
    # 1 is alive again, but not in sync: it would lose what 3 has acknowledged
    rig.do(UnfenceBroker(1))
    assert (partition(rig).leader, partition(rig).isr) == (-1, (3,))
    rig.do(UnfenceBroker(3))
    assert (partition(rig).leader, partition(rig).isr, partition(rig).leader_recovery_state) == (3, (3,), 0)


def test_an_unclean_election_happens_only_where_the_topic_allows_it() -> None:
    rig = ControllerRig().with_brokers(1, 2)
    with_topic(rig, 1, 2, configs=(("unclean.leader.election.enable", "true"),))
    rig.do(FenceBroker(2))
    rig.do(FenceBroker(1))
    assert (partition(rig).leader, partition(rig).isr) == (-1, (1,))
    rig.do(UnfenceBroker(2))
    assert (partition(rig).leader, partition(rig).isr, partition(rig).leader_recovery_state) == (2, (2,), 1)


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


def test_silent_brokers_lose_their_session_but_not_the_controllers_own() -> None:
    rig = with_topic(ControllerRig().with_brokers(1, 2), 2, 1)
    rig.now_ms = 5_000
    beat(rig, 2)
    assert rig.do(ExpireSessions(14_000)) is None
    assert rig.do(ExpireSessions(14_001)) == 2
    assert (partition(rig).leader, partition(rig).isr) == (1, (1,))
    assert rig.do(ExpireSessions(100_000)) is None
    assert not rig.core.state.image.brokers[1].fenced


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
    assert rig.core.state.image.features == {"metadata.version": 30, "group.version": 1, "transaction.version": 1}
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


def test_one_bad_feature_refuses_all() -> None:
    rig = ControllerRig().with_brokers(1)
    updates = (FeatureUpdate("group.version", 0, allow_downgrade=True), FeatureUpdate("no.such", 1))
    assert refusal(rig, UpdateFeatures(updates)) is ErrorCode.INVALID_UPDATE_VERSION
    assert rig.core.state.image.feature("group.version") == 1
