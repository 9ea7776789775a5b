"""AlterConfigs, IncrementalAlterConfigs (KIP-339): decisions of the controller, and their effect on ELRs (KIP-966)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from odradek.cluster.controller.commands import (
    AlterConfigs,
    AlterPartition,
    CreateTopics,
    FenceBroker,
    UnfenceBroker,
    UpdateFeatures,
)
from odradek.cluster.controller.configs import allows_unclean_election, min_in_sync
from odradek.cluster.controller.messages.partitions import PartitionIsr
from odradek.cluster.controller.messages.settings import ConfigChange, ConfigOperation, ConfigResult, FeatureUpdate
from odradek.cluster.controller.messages.topics import NewTopic
from odradek.cluster.controller.settings.operations import _with, _without
from odradek.cluster.metadata.image import RESOURCE_BROKER, RESOURCE_TOPIC
from odradek.protocol.errors import ErrorCode
from tests.support.raft_memory import ControllerRig

E = ErrorCode
SET, DELETE, APPEND, SUBTRACT = ConfigOperation


def cluster(*, elr: bool = True) -> ControllerRig:
    rig = ControllerRig().with_brokers(1, 2, elr=elr)
    rig.do(CreateTopics((NewTopic("t", assignments=((0, (1, 2)),), configs=(("min.insync.replicas", "2"),)),)))
    return rig


def alter(
    rig: ControllerRig, kind: int, name: str, *changes: tuple[str, ConfigOperation, str | None]
) -> tuple[ErrorCode, str | None]:
    (result,) = rig.do(AlterConfigs((ConfigChange(kind, name, changes),)))
    assert (result.kind, result.name) == (kind, name)
    return result.error, result.message


@pytest.mark.parametrize("name", ["1" * 5_000, "12345678901", "\u0661", "-1", "1 ", "x"])
def test_invalid_node_id_is_refused(name: str) -> None:
    """Python refuses to convert thousands of digits: the exception would concern the controller."""
    error, message = alter(cluster(), RESOURCE_BROKER, name, ("log.retention.ms", SET, "5"))
    assert error is E.INVALID_REQUEST
    assert (message or "").startswith("Node id must be an integer")


def test_value_that_grows_beyond_a_record_is_refused() -> None:
    """Its characters would fit, but not its bytes: the record could not be encoded."""
    rig = cluster()
    item = "é" * 6_000
    name = "cleanup.policy"
    assert alter(rig, 2, "t", (name, SET, item)) == (E.NONE, None)
    assert alter(rig, 2, "t", (name, APPEND, f"{item}1")) == (E.NONE, None)
    error, message = alter(rig, 2, "t", (name, APPEND, f"{item}2"))
    assert error is E.INVALID_CONFIG
    assert "maximum value size of 32767 bytes" in (message or "")


@pytest.mark.parametrize("text", ["2", "\x012", "\x1f 2\t"])
def test_blanks_around_a_number_have_no_effect(text: str) -> None:
    """Java removes more characters than Python. A value with them is valid, and stays in the metadata log."""
    rig = ControllerRig().with_brokers(1, 2)
    configs = (("min.insync.replicas", text), ("unclean.leader.election.enable", f"\x01true{chr(0)}"))
    rig.do(CreateTopics((NewTopic("t", assignments=((0, (1, 2)),), configs=configs),)))
    assert min_in_sync(rig.core.state, "t") == 2
    assert allows_unclean_election(rig.core.state, "t")
    assert alter(rig, RESOURCE_TOPIC, "t", ("min.insync.replicas", SET, f"\x02{text}")) == (E.NONE, None)


def test_incremental_changes_set_delete_append_and_subtract() -> None:
    rig = cluster()
    assert alter(rig, 2, "t", ("retention.ms", SET, "5"), ("cleanup.policy", APPEND, "compact")) == (E.NONE, None)
    image = rig.core.state.image
    assert image.topic_config("t") == {
        "min.insync.replicas": "2", "retention.ms": "5", "cleanup.policy": "delete,compact",
    }  # fmt: skip
    alter(rig, 2, "t", ("retention.ms", DELETE, None), ("cleanup.policy", SUBTRACT, "delete"))
    assert rig.core.state.image.topic_config("t") == {"min.insync.replicas": "2", "cleanup.policy": "compact"}
    before = len(rig.log)
    alter(rig, 2, "t", ("cleanup.policy", SET, "compact"), ("retention.ms", DELETE, None))
    assert len(rig.log) == before, "no record without a change"


def test_long_lists_are_compared_in_linear_time() -> None:
    """32 KiB of items, compared with each other item by item, would take a second."""

    class Item(str):
        __slots__ = ()
        compared = 0
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            Item.compared += 1
            return str.__eq__(self, str(other))

    count = 5_000
    held = [Item(f"{number}:1") for number in range(count)]
    given = [Item(f"{number}:2") for number in range(count)]
    assert _without(held, given) == held
    assert _with(held, given) == [*held, *given]
    assert Item.compared <= 4 * count


@pytest.mark.parametrize(
    ("operation", "value", "left"),
    [
        (APPEND, "compact,,", "delete,compact"),
        (APPEND, ",", "delete"),
        (APPEND, ",compact", "delete,,compact"),
        (APPEND, "", "delete,"),
        (SUBTRACT, "delete,,", ""),
    ],
)
def test_list_values_are_split_as_java_splits_them(operation: ConfigOperation, value: str, left: str) -> None:
    """The validation of the property refuses a list with an empty item."""
    rig = cluster()
    alter(rig, 2, "t", ("cleanup.policy", SET, "delete,"))
    alter(rig, 2, "t", ("cleanup.policy", operation, value))
    assert rig.core.state.image.topic_config("t")["cleanup.policy"] == left


@pytest.mark.parametrize(
    ("kind", "name", "changes", "error", "message"),
    [
        (2, "nope", (), E.UNKNOWN_TOPIC_OR_PARTITION, "The topic 'nope' does not exist."),
        (2, "", (), E.INVALID_REQUEST, "Default topic resources are not allowed."),
        (32, "", (), E.INVALID_REQUEST, "Default group resources are not allowed."),
        (32, "g", (("no.such", SET, "1"),), E.INVALID_CONFIG, "Unknown group config name"),
        (8, "1", (), E.INVALID_REQUEST, "Unknown resource type 8"),
        (
            2, "t", (("retention.ms", SET, "1" * 32_768),), E.INVALID_CONFIG,
            "The configuration value cannot be added because it exceeds the maximum value size of 32767 bytes.",
        ),
        (4, "9", (), E.BROKER_ID_NOT_REGISTERED, "No broker with id 9 is registered."),
        (4, "x", (), E.INVALID_REQUEST, "Node id must be an integer, but it is: x"),
        (2, "t", (("no.such", SET, "1"),), E.INVALID_CONFIG, "Unknown topic config name: no.such"),
        (
            2, "t", (("retention.ms", SET, "1"), ("retention.ms", SET, "2")),
            E.INVALID_REQUEST, "Error due to duplicate config keys",
        ),
        (2, "t", (("retention.ms", SET, None),), E.INVALID_REQUEST, "Null value not supported for : retention.ms"),
        (
            2, "t", (("retention.ms", APPEND, "1"),),
            E.INVALID_CONFIG, "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        (
            4, "1", (("min.insync.replicas", SET, "2"),),
            E.INVALID_CONFIG, "Broker-level min.insync.replicas cannot be altered while ELR is enabled.",
        ),
        (
            4, "", (("min.insync.replicas", DELETE, None),),
            E.INVALID_CONFIG, "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
        ),
    ],
)  # fmt: skip
def test_invalid_change_is_refused(
    kind: int,
    name: str,
    changes: tuple[tuple[str, ConfigOperation, str | None], ...],
    error: ErrorCode,
    message: str,
) -> None:
    rig = cluster()
    before = len(rig.log)
    assert alter(rig, kind, name, *changes) == (error, message)
    assert len(rig.log) == before


def test_refused_resource_does_not_stop_changes_of_other_resources() -> None:
    rig = cluster()
    good = ConfigChange(RESOURCE_BROKER, "2", (("retention.ms", SET, "7"),))
    twice = ConfigChange(RESOURCE_TOPIC, "t", (("retention.ms", SET, "7"),))
    results = rig.do(AlterConfigs((good, twice, twice)))
    assert [result.error for result in results] == [E.NONE, E.INVALID_REQUEST, E.INVALID_REQUEST]
    assert rig.core.state.image.config(RESOURCE_BROKER, "2") == {"retention.ms": "7"}


def test_replacing_change_removes_all_other_configs() -> None:
    rig = cluster(elr=False)
    alter(rig, 2, "t", ("retention.ms", SET, "5"))
    whole = ConfigChange(RESOURCE_TOPIC, "t", (("cleanup.policy", SET, "compact"),), replaces=True)
    assert rig.do(AlterConfigs((whole,))) == (ConfigResult(RESOURCE_TOPIC, "t"),)
    assert rig.core.state.image.topic_config("t") == {"cleanup.policy": "compact"}
    before = len(rig.log)
    rig.do(AlterConfigs((whole,)))
    assert len(rig.log) == before, "no record without a change"
    rig.do(AlterConfigs((ConfigChange(RESOURCE_TOPIC, "t", (), replaces=True),)))
    assert rig.core.state.image.topic_config("t") == {}


def test_replacing_change_cannot_remove_required_configs() -> None:
    rig = cluster()
    (result,) = rig.do(AlterConfigs((ConfigChange(RESOURCE_BROKER, "", (), replaces=True),)))
    assert (result.error, result.message) == (
        E.INVALID_CONFIG,
        "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
    )


def test_group_configs_need_no_existing_group() -> None:
    rig = cluster()
    assert alter(rig, 32, "g", ("consumer.session.timeout.ms", SET, "50000")) == (E.NONE, None)
    assert rig.core.state.image.config(32, "g") == {"consumer.session.timeout.ms": "50000"}


def test_validate_only_writes_no_record() -> None:
    rig = cluster()
    before = len(rig.log)
    change = ConfigChange(RESOURCE_TOPIC, "t", (("retention.ms", SET, "7"),))
    assert rig.do(AlterConfigs((change,), validate_only=True)) == (ConfigResult(RESOURCE_TOPIC, "t"),)
    assert len(rig.log) == before


@pytest.mark.parametrize(
    ("before", "after", "eligible"), [("2", "1", False), ("2", "3", True), ("3", "2", True), ("1", "2", False)]
)
def test_lower_min_isr_ends_the_eligibility_of_replicas_outside_the_isr(
    before: str, after: str, eligible: bool
) -> None:
    """With the lower value the leader alone acknowledges records that the eligible replica lacks."""
    for kind, name in ((RESOURCE_TOPIC, "t"), (RESOURCE_BROKER, "")):
        rig = cluster()
        alter(rig, RESOURCE_TOPIC, "t", ("min.insync.replicas", DELETE, None))
        alter(rig, kind, name, ("min.insync.replicas", SET, before))
        rig.do(FenceBroker(2))
        assert rig.core.state.image.topics["t"].partitions[0].elr == ((2,) if before != "1" else ())
        assert alter(rig, kind, name, ("min.insync.replicas", SET, after)) == (E.NONE, None)
        assert (2 in rig.core.state.image.topics["t"].partitions[0].elr) == eligible


@pytest.mark.parametrize(("kind", "name"), [(RESOURCE_TOPIC, "t"), (RESOURCE_BROKER, "")])
def test_isr_change_of_a_leader_without_the_higher_min_isr_is_refused(kind: int, name: str) -> None:
    """The leader would acknowledge alone with the old value, while the removed replica is eligible with the new one."""
    rig = cluster()
    alter(rig, RESOURCE_TOPIC, "t", ("min.insync.replicas", DELETE, None))
    known = rig.core.state.image.topics["t"].partitions[0]
    alter(rig, kind, name, ("min.insync.replicas", SET, "2"))
    raised = rig.core.state.image.topics["t"].partitions[0]
    assert (raised.partition_epoch, raised.leader_epoch) == (known.partition_epoch + 1, known.leader_epoch)
    request = PartitionIsr(
        rig.core.state.image.topics["t"].topic_id, 0, known.leader_epoch, known.partition_epoch, ((1, -1),)
    )
    epoch = rig.core.state.image.brokers[1].epoch
    (outdated,) = rig.do(AlterPartition(1, epoch, (request,)))
    assert outdated.error is E.INVALID_UPDATE_VERSION
    assert rig.core.state.image.topics["t"].partitions[0] == raised
    (accepted,) = rig.do(AlterPartition(1, epoch, (replace(request, partition_epoch=raised.partition_epoch),)))
    assert accepted.error is E.NONE
    assert rig.core.state.image.topics["t"].partitions[0].elr == (2,)
    # Leaders need no new partition epoch for lower values and for other configs.
    before = rig.core.state.image.topics["t"].partitions[0].partition_epoch
    alter(rig, RESOURCE_TOPIC, "t", ("retention.ms", SET, "5"))
    assert rig.core.state.image.topics["t"].partitions[0].partition_epoch == before


def test_enabling_elr_raises_the_partition_epoch_of_every_partition() -> None:
    rig = cluster(elr=False)
    before = rig.core.state.image.topics["t"].partitions[0].partition_epoch
    on = UpdateFeatures((FeatureUpdate("eligible.leader.replicas.version", 1),))
    rig.do(on)
    assert rig.core.state.image.topics["t"].partitions[0].partition_epoch == before + 1
    length = len(rig.log)
    rig.do(on)
    assert len(rig.log) == length


def test_topics_with_their_own_min_isr_ignore_the_cluster_default() -> None:
    rig = cluster()
    rig.do(FenceBroker(2))
    assert alter(rig, 4, "", ("min.insync.replicas", SET, "1")) == (E.NONE, None)
    assert rig.core.state.image.topics["t"].partitions[0].elr == (2,)


def test_eligible_replicas_without_a_leader_stay_eligible_until_one_leads_alone() -> None:
    rig = cluster()
    rig.do(FenceBroker(2))
    rig.do(FenceBroker(1))
    assert alter(rig, 2, "t", ("min.insync.replicas", SET, "1")) == (E.NONE, None)
    assert rig.core.state.image.topics["t"].partitions[0].elr == (1, 2), "no record was acknowledged since"
    rig.do(UnfenceBroker(1))
    back = rig.core.state.image.topics["t"].partitions[0]
    assert (back.leader, back.isr, back.elr) == (1, (1,), ()), "broker 1 now acknowledges alone"


def test_without_elr_a_broker_can_have_its_own_min_isr() -> None:
    rig = cluster(elr=False)
    assert alter(rig, 4, "1", ("min.insync.replicas", SET, "2"))[0] is E.NONE
    assert alter(rig, 4, "", ("min.insync.replicas", DELETE, None))[0] is E.NONE
