"""ElectLeaders, and the periodic jobs that balance leaders and elect unclean leaders."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from odradek.cluster.controller import leaders
from odradek.cluster.controller.commands import (
    AlterPartition,
    AlterReassignments,
    BalanceLeaders,
    Bootstrap,
    CreateTopics,
    ElectLeaders,
    ElectUnclean,
    FenceBroker,
    UnfenceBroker,
    UpdateFeatures,
)
from odradek.cluster.controller.election import Election
from odradek.cluster.controller.messages.partitions import NewReplicas, PartitionIsr, PartitionResult
from odradek.cluster.controller.messages.settings import FeatureUpdate
from odradek.cluster.controller.messages.topics import NewTopic
from odradek.cluster.metadata.image import RESOURCE_BROKER, RESOURCE_TOPIC
from odradek.cluster.metadata.records import ConfigRecord, encode_record
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.runtime.shard import ShardRecord
from tests.support.raft_memory import ControllerRig

if TYPE_CHECKING:
    from odradek.cluster.metadata.image import PartitionImage
    from odradek.runtime.shard import Timer

E = ErrorCode
UNCLEAN_TOPIC = (("unclean.leader.election.enable", "true"),)


def cluster(partitions: int = 1, configs: tuple[tuple[str, str], ...] = ()) -> ControllerRig:
    """Make partitions on (1, 2), led by 2 after 1 was fenced. Broker 1 is in sync again."""
    rig = ControllerRig().with_brokers(1, 2, 3)
    assignments = tuple((index, (1, 2)) for index in range(partitions))
    rig.do(CreateTopics((NewTopic("t", assignments=assignments, configs=configs),)))
    rig.do(FenceBroker(1))
    rig.do(UnfenceBroker(1))
    in_sync(rig, *range(partitions))
    return rig


def in_sync(rig: ControllerRig, *indexes: int) -> None:
    topic = rig.core.state.image.topics["t"]
    requests = tuple(
        PartitionIsr(topic.topic_id, index, p.leader_epoch, p.partition_epoch, ((2, -1), (1, -1)))
        for index, p in topic.partitions.items()
        if index in indexes
    )
    rig.do(AlterPartition(2, rig.core.state.image.brokers[2].epoch, requests))


def partition(rig: ControllerRig, index: int = 0) -> PartitionImage:
    return rig.core.state.image.topics["t"].partitions[index]


def led_by(rig: ControllerRig) -> list[int]:
    return [image.leader for image in rig.core.state.image.topics["t"].partitions.values()]


def elect(
    rig: ControllerRig, *partitions: tuple[str, int], election: Election = Election.PREFERRED
) -> tuple[PartitionResult, ...]:
    results: tuple[PartitionResult, ...] = rig.do(ElectLeaders(partitions or None, election))
    return results


def set_config(rig: ControllerRig, kind: int, name: str, key: str, value: str) -> None:
    record = ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)
    rig.core.apply(len(rig.log), ShardRecord(None, encode_record(record)), 1)
    rig.log.append(ShardRecord(None, encode_record(record)))


# ---- ElectLeaders ---------------------------------------------------------------------------------------------------


def test_requested_preferred_election_elects_the_first_replica() -> None:
    rig = cluster(2)
    assert elect(rig, ("t", 0), ("t", 7), ("nope", 0)) == (
        PartitionResult("t", 0),
        PartitionResult("t", 7, E.UNKNOWN_TOPIC_OR_PARTITION, "No such partition as t-7"),
        PartitionResult("nope", 0, E.UNKNOWN_TOPIC_OR_PARTITION, "No such topic as nope"),
    )
    assert led_by(rig) == [1, 2]
    assert elect(rig, ("t", 0)) == (
        PartitionResult("t", 0, E.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."),
    )
    assert elect(rig) == (PartitionResult("t", 1),), "a request for all partitions returns changed ones only"
    assert led_by(rig) == [1, 1]


def test_messages_about_partitions_of_a_topic_do_not_repeat_a_long_name() -> None:
    """Each partition has a message: with a name of 32 KiB, 10,000 of them would take 320 MB."""
    name = "n" * 30_000
    changes = tuple(NewReplicas(name, index, (1,)) for index in range(2))
    results = (*elect(cluster(), (name, 0), (name, 1)), *cluster().do(AlterReassignments(changes)))
    assert {result.error for result in results} == {E.UNKNOWN_TOPIC_OR_PARTITION}
    assert max(len(result.message or "") for result in results) < 300


def test_preferred_leader_outside_the_isr_is_not_available() -> None:
    rig = cluster()
    rig.do(FenceBroker(1))
    rig.do(UnfenceBroker(1))
    assert elect(rig, ("t", 0)) == (
        PartitionResult("t", 0, E.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available."),
    )


def test_unclean_election_needs_a_partition_without_a_leader() -> None:
    rig = cluster()
    assert elect(rig, ("t", 0), election=Election.UNCLEAN)[0].error is E.ELECTION_NOT_NEEDED
    rig.do(FenceBroker(1))
    rig.do(FenceBroker(2))
    assert elect(rig, ("t", 0), election=Election.UNCLEAN) == (
        PartitionResult(
            "t", 0, E.ELIGIBLE_LEADERS_NOT_AVAILABLE, "Eligible topic partition leaders are not available."
        ),
    )
    rig.do(UnfenceBroker(1))
    assert led_by(rig) == [-1]
    assert elect(rig, ("t", 0), election=Election.UNCLEAN)[0].error is E.NONE
    assert (partition(rig).leader, partition(rig).isr, partition(rig).leader_recovery_state) == (1, (1,), 1)
    assert dict(rig.notices[-1].fields) == {"partitions": "t-0 (broker 1)"}


# ---- jobs -----------------------------------------------------------------------------------------------------------


def job(rig: ControllerRig, command: BalanceLeaders | ElectUnclean) -> Timer:
    (timer,) = rig.core.decide(command, 0).timers
    rig.do(command)
    assert timer.command == command
    return timer


def test_balance_job_moves_leaders_to_brokers_above_the_imbalance_limit() -> None:
    rig = cluster(10)
    assert job(rig, BalanceLeaders()).delay_ms == 300_000
    assert led_by(rig) == [1] * 10
    # One of ten partitions is within the limit.
    moved = cluster(10)
    elect(moved, *(("t", index) for index in range(1, 10)))
    assert led_by(moved) == [2] + [1] * 9
    job(moved, BalanceLeaders())
    assert led_by(moved) == [2] + [1] * 9
    strict = cluster(1)
    strict.core.state.config = replace(strict.core.state.config, leader_imbalance_percentage=100)
    job(strict, BalanceLeaders())
    assert led_by(strict) == [2]


def test_balance_job_skips_an_inactive_preferred_leader() -> None:
    rig = cluster(2)
    rig.do(FenceBroker(1))
    before = len(rig.log)
    job(rig, BalanceLeaders())
    assert len(rig.log) == before


def test_job_that_reaches_its_limit_runs_again_immediately(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaders, "ELECTIONS_PER_JOB_MAX", 2)
    rig = cluster(3)
    assert job(rig, BalanceLeaders()).delay_ms == 0
    assert led_by(rig) == [1, 1, 2]


def test_unclean_job_elects_leaders_after_the_topic_config_changes() -> None:
    rig = cluster()
    rig.do(FenceBroker(1))
    rig.do(FenceBroker(2))
    rig.do(UnfenceBroker(1))
    job(rig, ElectUnclean())
    assert led_by(rig) == [-1]
    set_config(rig, RESOURCE_TOPIC, "t", *UNCLEAN_TOPIC[0])
    assert job(rig, ElectUnclean()).delay_ms == 300_000
    assert led_by(rig) == [1]


def test_jobs_start_with_the_controller_unless_disabled() -> None:
    rig = ControllerRig().with_brokers(1)
    assert [timer.delay_ms for timer in rig.core.on_loaded(1, 0).timers] == [300_000, 300_000]
    rig.core.state.config = replace(rig.core.state.config, leader_balance_interval_ms=None)
    assert [timer.command for timer in rig.core.on_loaded(1, 0).timers] == [ElectUnclean()]


# ---- enabling ELR ---------------------------------------------------------------------------------------------------


def test_enabling_elr_sets_one_min_isr_for_all_brokers() -> None:
    rig = ControllerRig()
    rig.do(Bootstrap({"eligible.leader.replicas.version": 0}))
    assert rig.core.state.image.config(RESOURCE_BROKER, "") == {}
    set_config(rig, RESOURCE_BROKER, "2", "min.insync.replicas", "3")
    rig.do(UpdateFeatures((FeatureUpdate("eligible.leader.replicas.version", 1),)))
    assert rig.core.state.image.config(RESOURCE_BROKER, "") == {"min.insync.replicas": "1"}
    assert rig.core.state.image.config(RESOURCE_BROKER, "2") == {}


def test_disabling_elr_needs_an_in_sync_replica_for_every_partition() -> None:
    rig = cluster()
    disable_elr = UpdateFeatures((FeatureUpdate("eligible.leader.replicas.version", 0, allow_downgrade=True),))
    rig.do(FenceBroker(1))
    rig.do(FenceBroker(2))
    with pytest.raises(Refusal, match="t-0 has no replica in sync"):
        rig.do(disable_elr)
    rig.do(UnfenceBroker(2))
    rig.do(disable_elr)
    assert not rig.core.state.elr_enabled
    assert (partition(rig).isr, partition(rig).elr, partition(rig).last_known_elr) == ((2,), (), ())
