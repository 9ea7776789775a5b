"""Partition registry: hosted replicas and leader terms follow the metadata image."""

import asyncio
import gc
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import odradek.broker.partition.partition
from odradek.broker.partition import registry, sliced_updates
from odradek.broker.partition.leader_term import LeaderAndIsr, LeaderTerm
from odradek.broker.partition.partition import Partition, Role
from odradek.broker.partition.registry import CREATE_LOG_COST, ROLE_CHANGES_PER_SLICE
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.records.metadata import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
)
from odradek.runtime.rest import Pace
from odradek.storage.config import LogConfig
from odradek.storage.producers.entry import Origin
from tests.support.data_rig import EIO, NODE, NOW_MS, Rig, batch

E = ErrorCode
TOPIC, BROKER = 2, 4
FENCE, UNFENCE = 1, -1
LOGS_PER_SLICE = ROLE_CHANGES_PER_SLICE // CREATE_LOG_COST


class Listener:
    def __init__(self) -> None:
        self.events: list[tuple[str, int, int]] = []

    def elected(self, partition: Partition) -> None:
        self.events.append(("elected", partition.index, partition.leader_epoch))

    def resigned(self, partition: Partition) -> None:
        self.events.append(("resigned", partition.index, partition.leader_epoch))


def append(rig: Rig, index: int = 0) -> None:
    rig.partition("t", index).append(batch(), origin=Origin.CLIENT, now_ms=NOW_MS)


async def test_own_replicas_are_hosted_and_own_partitions_led(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("mine")
    rig.topic("followed", leader=2, replicas=(2, NODE), number=101)
    rig.topic("elsewhere", leader=2, replicas=(2,), number=102)
    assert [(partition.topic, partition.role) for partition in rig.partitions] == [
        ("mine", Role.LEADER),
        ("followed", Role.FOLLOWER),
    ]
    assert rig.partitions.get("mine", 0) is rig.partitions.get_by_id(UUID(int=100), 0)
    assert rig.partitions.led("followed") == []
    assert rig.partitions.get("elsewhere", 0) is None


@pytest.mark.parametrize(
    ("topic", "index", "error"),
    [
        ("t", 0, E.NONE),
        ("t", 7, E.UNKNOWN_TOPIC_OR_PARTITION),
        ("nothing", 0, E.UNKNOWN_TOPIC_OR_PARTITION),
        ("elsewhere", 0, E.NOT_LEADER_OR_FOLLOWER),
    ],
)
async def test_find_refuses_with_kafkas_error(tmp_path: Path, topic: str, index: int, error: ErrorCode) -> None:
    rig = Rig(tmp_path)
    ids = {"t": rig.topic("t"), "elsewhere": rig.topic("elsewhere", leader=2, replicas=(2,), number=102)}
    if error is E.NONE:
        assert rig.partitions.find(topic, index) is rig.partitions.find_by_id(ids[topic], index)
        return
    with pytest.raises(Refusal) as by_name:
        rig.partitions.find(topic, index)
    with pytest.raises(Refusal) as by_id:
        rig.partitions.find_by_id(ids.get(topic, UUID(int=999)), index)
    assert by_name.value.error is error
    assert by_id.value.error is (E.UNKNOWN_TOPIC_ID if topic == "nothing" else error)


async def test_new_leader_epoch_is_in_the_log_before_the_first_append(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    topic_id = rig.topic("t")
    append(rig)
    rig.play(PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=NODE))
    assert rig.partition().log.epochs.entries() == [(0, 0), (1, 1)]
    assert rig.partition().leader_epoch_start == 1


async def test_isr_change_keeps_the_leader_term(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    listener = Listener()
    rig.partitions.listen("t", listener)
    topic_id = rig.topic("t", replicas=(NODE, 2))
    rig.play(PartitionChangeRecord(partition_id=0, topic_id=topic_id, isr=[NODE]))
    assert listener.events == [("elected", 0, 0)]
    leader_term = rig.partition().leader_term
    assert leader_term is not None
    assert (leader_term.replicas.isr, leader_term.replicas.replicas) == ((NODE,), (NODE, 2))


async def test_listeners_receive_elections_and_ends_of_leader_terms(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    listener = Listener()
    rig.partitions.listen("t", listener)
    topic_id = rig.topic("t", 3, replicas=(NODE, 2))
    rig.play(PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=2))
    rig.play(PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=NODE))
    rig.partition("t", 1).take_offline(OSError(EIO, "injected"))
    rig.play(RemoveTopicRecord(topic_id=topic_id))
    assert listener.events == [
        ("elected", 0, 0),
        ("elected", 1, 0),
        ("elected", 2, 0),
        ("resigned", 0, 1),
        ("elected", 0, 2),
        ("resigned", 1, 0),
        ("resigned", 0, 2),
        ("resigned", 2, 0),
    ]


async def test_deleted_topic_is_removed_and_its_name_can_be_used_again(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    topic_id = rig.topic("t")
    append(rig)
    rig.play(RemoveTopicRecord(topic_id=topic_id))
    assert rig.partitions.get("t", 0) is None
    await asyncio.gather(*rig.tasks)
    assert rig.logs.deleted == [("t", 0)]
    rig.topic("t", number=200)
    assert rig.partitions.find_by_id(UUID(int=200), 0).topic_id == UUID(int=200)


async def test_partition_in_old_checkpoints_is_hosted_when_they_no_longer_name_it(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.logs.remembered = {("t", 0): None, ("t", 2): None}
    topic_id = rig.topic("t", 3)
    rig.play(PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=NODE))
    with pytest.raises(Refusal) as caught:
        rig.partitions.find("t", 0)
    assert caught.value.error is E.NOT_LEADER_OR_FOLLOWER
    assert len(rig.tasks) == 1
    await asyncio.gather(*rig.tasks)
    assert [partition.leader_epoch for partition in rig.partitions.led("t")] == [1, 0, 0]


async def test_deleted_partition_is_freed_by_its_reference_count(tmp_path: Path) -> None:
    """The garbage collector does not examine it: its objects are frozen (docs/decisions/0108)."""
    rig = Rig(tmp_path)
    topic_id = rig.topic("t")
    rig.partition().append(batch(), origin=Origin.CLIENT, now_ms=NOW_MS)
    address = id(rig.partition())
    gc.collect()
    gc.disable()
    try:
        rig.play(RemoveTopicRecord(topic_id=topic_id))
        await asyncio.gather(*rig.tasks)
        rig.tasks.clear()
        rig.replication.elections.clear()
        assert not [found for found in gc.get_objects() if isinstance(found, Partition) and id(found) == address]
    finally:
        gc.enable()


async def test_topic_deleted_while_checkpoints_are_rewritten_is_not_hosted(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.logs.remembered = {("t", 0): None}
    topic_id = rig.topic("t")
    rig.play(RemoveTopicRecord(topic_id=topic_id))
    await asyncio.gather(*rig.tasks)
    assert (list(rig.partitions), rig.logs.logs) == ([], {})


async def test_disk_error_while_checkpoints_are_rewritten_takes_the_partition_offline(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.logs.remembered = {("t", 0): None}
    rig.logs.forgetting_fails = OSError(EIO, "injected")
    rig.topic("t", 2)
    await asyncio.gather(*rig.tasks)
    with pytest.raises(Refusal) as caught:
        rig.partitions.find("t", 0)
    assert caught.value.error is E.KAFKA_STORAGE_ERROR
    assert rig.partitions.find("t", 1).leads


async def test_offline_partition_stays_offline_after_metadata_changes(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    topic_id = rig.topic("t")
    rig.partition().take_offline(OSError(EIO, "injected"))
    rig.play(PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=NODE))
    with pytest.raises(Refusal) as caught:
        append(rig)
    assert caught.value.error is E.KAFKA_STORAGE_ERROR


async def test_offline_partition_is_logged_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    log_events: list[tuple[str, int]] = []
    monkeypatch.setattr(
        odradek.broker.partition.partition, "log_offline", lambda topic, index, _: log_events.append((topic, index))
    )
    for _ in range(3):
        rig.partition().take_offline(OSError(EIO, "injected"))
    assert log_events == [("t", 0)]


async def test_log_that_cannot_be_created_is_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(tmp_path)

    def refuse(*_: object) -> None:
        raise OSError(EIO, "injected")

    monkeypatch.setattr(rig.logs, "create", refuse)
    topic_id = rig.topic("t")
    with pytest.raises(Refusal) as caught:
        rig.partitions.find_by_id(topic_id, 0)
    assert caught.value.error is E.KAFKA_STORAGE_ERROR
    rig.play(RemoveTopicRecord(topic_id=topic_id))
    with pytest.raises(Refusal) as unknown:
        rig.partitions.find("t", 0)
    assert unknown.value.error is E.UNKNOWN_TOPIC_OR_PARTITION


async def test_topic_configs_reach_logs_immediately(tmp_path: Path) -> None:
    rig = Rig(tmp_path, config=LogConfig(retention_bytes=5))
    rig.topic("t")
    rig.play(ConfigRecord(resource_type=TOPIC, resource_name="t", name="retention.bytes", value="77"))
    assert rig.partition().log.config.retention_bytes == 77
    rig.play(ConfigRecord(resource_type=TOPIC, resource_name="t", name="retention.bytes", value=None))
    assert rig.partition().log.config.retention_bytes == 5
    rig.log_config = LogConfig(retention_bytes=6)
    rig.play(ConfigRecord(resource_type=BROKER, resource_name="", name="log.retention.bytes", value="6"))
    assert rig.partition().log.config.retention_bytes == 6


class CountingRig(Rig):
    """Count the configurations of topics that the registry computes."""

    computed = 0

    def config_of(self, overrides: Mapping[str, str]) -> LogConfig:
        self.computed += 1
        return super().config_of(overrides)


async def test_configuration_of_a_topic_is_computed_once_for_all_its_partitions(tmp_path: Path) -> None:
    """One computation takes 16 µs. The partitions share the object, which saves memory, too."""
    rig = CountingRig(tmp_path, config=LogConfig(retention_bytes=5))
    topic_id = rig.topic("t", 5)
    assert rig.computed == 1
    setting = ConfigRecord(resource_type=TOPIC, resource_name="t", name="retention.bytes", value="77")
    rig.play(setting, PartitionRecord(**fields_of(topic_id, 5)))
    rig.play(PartitionRecord(**fields_of(topic_id, 6)))
    assert [partition.log.config.retention_bytes for partition in rig.partitions] == [77] * 7
    rig.log_config = LogConfig(retention_bytes=6)
    rig.play(RemoveTopicRecord(topic_id=topic_id))
    rig.topic("t", 2, number=105)
    assert [partition.log.config.retention_bytes for partition in rig.partitions.hosted("t")] == [6, 6]


async def test_partition_that_is_created_after_a_change_of_the_broker_has_the_new_configuration(tmp_path: Path) -> None:
    rig = Rig(tmp_path, config=LogConfig(retention_bytes=5))
    topic_id = rig.topic("t")
    rig.log_config = LogConfig(retention_bytes=6)
    rig.play(
        ConfigRecord(resource_type=BROKER, resource_name="", name="log.retention.bytes", value="6"),
        PartitionRecord(**fields_of(topic_id, 1)),
    )
    assert [partition.log.config.retention_bytes for partition in rig.partitions] == [6, 6]


def fields_of(topic_id: UUID, index: int) -> dict[str, Any]:
    """Return the fields of the record of a partition that only this broker hosts."""
    return {
        "partition_id": index,
        "topic_id": topic_id,
        "replicas": [NODE],
        "isr": [NODE],
        "leader": NODE,
        "leader_epoch": 0,
        "partition_epoch": 0,
    }


async def test_configuration_of_another_broker_changes_no_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each change of all topics would take half a second with 10,000 topics."""
    rig = Rig(tmp_path, config=LogConfig(retention_bytes=5))
    rig.topic("t")
    rig.play(ConfigRecord(resource_type=BROKER, resource_name="", name="log.retention.bytes", value="5"))
    configured: list[LogConfig] = []
    monkeypatch.setattr(Partition, "configure", lambda _, config: configured.append(config))
    rig.play(ConfigRecord(resource_type=BROKER, resource_name="", name="num.io.threads", value="9"))
    rig.log_config = LogConfig(retention_bytes=6)
    rig.play(ConfigRecord(resource_type=BROKER, resource_name="2", name="log.retention.bytes", value="6"))
    assert configured == []
    rig.play(ConfigRecord(resource_type=BROKER, resource_name=str(NODE), name="log.retention.bytes", value="6"))
    assert [config.retention_bytes for config in configured] == [6]


async def test_changed_default_reaches_logs_in_slices_and_before_a_smaller_isr(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sliced_updates, "PARTITIONS_PER_SLICE", 2)
    rig = Rig(tmp_path)
    topic_ids = [rig.topic(f"t{number}", replicas=(NODE, 2), number=100 + number) for number in range(6)]
    rig.log_config = LogConfig(min_insync_replicas=2)
    rig.play(ConfigRecord(resource_type=BROKER, resource_name="", name="min.insync.replicas", value="2"))

    def changed() -> list[str]:
        return [each.topic for each in rig.partitions if each.log.config.min_insync_replicas == 2]

    assert changed() == ["t0", "t1"]
    rig.play(PartitionChangeRecord(topic_id=topic_ids[5], partition_id=0, isr=[NODE]))
    assert changed() == ["t0", "t1", "t5"]
    rig.play(RemoveTopicRecord(topic_id=topic_ids[2]))
    await rig.changes_applied()
    assert changed() == ["t0", "t1", "t3", "t4", "t5"]


async def test_smaller_isr_is_applied_after_configs_of_the_same_delta(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One delta has both changes. With the former `min.insync.replicas` the leader would acknowledge alone."""
    rig = Rig(tmp_path)
    topic_id = rig.topic("t", replicas=(NODE, 2))
    required: list[int] = []
    apply = LeaderTerm.update

    def update(leader_term: LeaderTerm, leader_and_isr: LeaderAndIsr) -> None:
        required.append(rig.partition().log.config.min_insync_replicas)
        apply(leader_term, leader_and_isr)

    monkeypatch.setattr(LeaderTerm, "update", update)
    rig.play(
        ConfigRecord(resource_type=TOPIC, resource_name="t", name="min.insync.replicas", value="2"),
        PartitionChangeRecord(topic_id=topic_id, partition_id=0, isr=[NODE]),
    )
    assert required == [2]


async def test_flush_messages_can_be_set_for_a_running_topic(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t")
    append(rig)
    assert rig.partition().log.high_watermark == 1
    rig.play(ConfigRecord(resource_type=TOPIC, resource_name="t", name="flush.messages", value="1"))
    append(rig)
    assert rig.partition().log.high_watermark == 1
    await asyncio.gather(*rig.tasks)
    assert rig.partition().log.high_watermark == rig.partition().log.flushed_offset == 2


async def test_partitions_added_to_a_topic_are_hosted(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    topic_id = rig.topic("t")
    added = PartitionRecord(
        partition_id=1, topic_id=topic_id, replicas=[NODE], isr=[NODE], leader=NODE, leader_epoch=0, partition_epoch=0
    )
    rig.play(added)
    assert [partition.index for partition in rig.partitions.led("t")] == [0, 1]


async def test_close_ends_all_leader_terms(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t", 2)
    await rig.partitions.close()
    assert rig.partitions.led("t") == []


async def test_close_ends_leader_terms_in_slices_and_no_role_changes_after_its_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node can still receive records of the metadata log while the partitions close."""
    rig = Rig(tmp_path)
    topic_id = rig.topic("t", 25)
    await rig.changes_applied()
    monkeypatch.setattr(registry, "ROLE_CHANGES_PER_SLICE", 10)
    closing = asyncio.create_task(rig.partitions.close())
    await asyncio.sleep(0)
    assert len(rig.partitions.led("t")) == 15
    rig.play(*(PartitionChangeRecord(partition_id=index, topic_id=topic_id, leader=NODE) for index in range(25)))
    await closing
    assert rig.partitions.led("t") == []


async def test_broker_registrations_reach_leader_terms_in_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker fails or stops. One callback for the leader terms of 10,000 partitions would take 30 ms."""
    rig = Rig(tmp_path)
    topic_id = rig.topic("t", 25, replicas=(NODE, 2))
    rig.topic("alone", 5, number=101)
    await rig.changes_applied()
    registered: list[LeaderTerm] = []
    at_rests: list[int] = []
    register = LeaderTerm.register

    def recorded(term: LeaderTerm) -> None:
        registered.append(term)
        register(term)

    class RecordedPace(Pace):
        async def rest(self, factor: float | None = None) -> None:
            assert factor is None
            at_rests.append(len(registered))
            await asyncio.sleep(0)

    monkeypatch.setattr(LeaderTerm, "register", recorded)
    monkeypatch.setattr(sliced_updates, "Pace", RecordedPace)
    monkeypatch.setattr(sliced_updates, "PARTITIONS_PER_SLICE", 10)
    rig.play(BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=1, fenced=FENCE))
    assert len(registered) == 10
    rig.play(PartitionChangeRecord(partition_id=24, topic_id=topic_id, leader=2))  # its term ends while it waits
    await rig.changes_applied()
    assert (at_rests, len(registered)) == ([10, 20], 24)
    assert registered_epochs(rig) == [None] * 24
    rig.play(BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=1, fenced=UNFENCE))
    rig.play(BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=1, fenced=FENCE))  # before the last slice
    rig.play(BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=1, fenced=UNFENCE))
    await rig.changes_applied()
    assert registered_epochs(rig) == [1] * 24


def registered_epochs(rig: Rig) -> list[int | None]:
    """Return the broker epoch of broker 2 in each leader term of topic "t"."""
    terms = [partition.leader_term for partition in rig.partitions.led("t")]
    return [term.replicas.followers[2].registered_epoch for term in terms if term is not None]


async def test_partitions_of_coordinators_are_opened_before_earlier_changes(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.partitions.listen("__consumer_offsets", Listener())
    rig.topic("large", 4 * LOGS_PER_SLICE)
    rig.topic("__consumer_offsets", 2 * LOGS_PER_SLICE, number=101)
    await rig.changes_applied()
    opened = [topic for topic, _ in rig.logs.logs]
    assert len(opened) == 6 * LOGS_PER_SLICE
    assert opened[LOGS_PER_SLICE : 3 * LOGS_PER_SLICE] == ["__consumer_offsets"] * 2 * LOGS_PER_SLICE


class FailingListener(Listener):
    def elected(self, partition: Partition) -> None:
        super().elected(partition)
        if partition.index % LOGS_PER_SLICE == 1:
            raise RuntimeError(f"election of {partition.topic}-{partition.index}")


async def test_unexpected_exception_of_one_partition_is_reported_and_the_others_are_applied(tmp_path: Path) -> None:
    rig, listener = Rig(tmp_path), FailingListener()
    rig.partitions.listen("t", listener)
    rig.topic("t", 3 * LOGS_PER_SLICE)
    reported = []
    while rig.tasks:
        try:
            await rig.tasks.pop()
        except RuntimeError as error:
            reported.append(str(error))
    assert sorted(reported) == [f"election of t-{index}" for index in (1, LOGS_PER_SLICE + 1, 2 * LOGS_PER_SLICE + 1)]
    assert sorted(index for _, index, _ in listener.events) == list(range(3 * LOGS_PER_SLICE))


async def test_logs_of_a_deleted_topic_are_deleted_in_slices(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    topic_id = rig.topic("t", 3 * LOGS_PER_SLICE)
    await rig.changes_applied()
    partitions = list(rig.partitions)
    rig.play(RemoveTopicRecord(topic_id=topic_id))
    assert rig.partitions.count == 0
    assert len(rig.logs.deleted) == LOGS_PER_SLICE
    await rig.changes_applied()
    assert rig.logs.deleted == [("t", index) for index in range(3 * LOGS_PER_SLICE)]
    assert [partition.role for partition in partitions] == [Role.DELETED] * 3 * LOGS_PER_SLICE


async def test_topic_created_while_logs_of_the_former_topic_remain_has_new_logs(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.topic("t", 3 * LOGS_PER_SLICE)
    await rig.changes_applied()
    for number in (101, 102):
        former = rig.partitions.get("t", 0)
        assert former is not None
        rig.play(RemoveTopicRecord(topic_id=former.topic_id))
        rig.topic("t", 3 * LOGS_PER_SLICE, number=number)
        assert rig.partition("t", 3 * LOGS_PER_SLICE - 1).topic_id == UUID(int=number)
        assert rig.partition().topic_id == UUID(int=number)
    await rig.changes_applied()
    assert len(rig.logs.deleted) == 3 * LOGS_PER_SLICE + 2
    assert {partition.log.topic_id for partition in rig.partitions} == {UUID(int=102)}
    assert len(rig.logs.logs) == 3 * LOGS_PER_SLICE


async def test_close_deletes_the_logs_of_deleted_topics(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    topic_id = rig.topic("t", 3 * LOGS_PER_SLICE)
    await rig.changes_applied()
    rig.play(RemoveTopicRecord(topic_id=topic_id))
    await rig.partitions.close()
    assert rig.logs.logs == {}
    await rig.changes_applied()
