"""CreateTopics, CreatePartitions and DeleteTopics: decisions of the controller."""

from __future__ import annotations

from uuid import UUID

import pytest

from odradek.cluster.controller.commands import CreatePartitions, CreateTopics, DeleteTopics, FenceBroker
from odradek.cluster.controller.messages.topics import CreatedTopic, NewPartitions, NewTopic, TopicName, TopicResult
from odradek.cluster.controller.state import ControllerState
from odradek.cluster.metadata.image import DIRECTORY_UNASSIGNED, RESOURCE_BROKER
from odradek.cluster.metadata.topic_names import INTERNAL_TOPICS
from odradek.protocol.errors import ErrorCode
from odradek.protocol.primitives import ZERO_UUID
from tests.support.raft_memory import ControllerRig


def create(rig: ControllerRig, *topics: NewTopic, validate_only: bool = False) -> tuple[CreatedTopic, ...]:
    results: tuple[CreatedTopic, ...] = rig.do(CreateTopics(topics, validate_only))
    return results


def outcome(rig: ControllerRig, topic: NewTopic) -> tuple[str, str | None]:
    before = len(rig.log)
    (result,) = create(rig, topic)
    assert len(rig.log) == before, "a caught topic writes no record"
    return result.error.name, result.message


def test_create_topic_with_defaults() -> None:
    rig = ControllerRig().with_brokers(1)
    (created,) = create(rig, NewTopic("orders", configs=(("retention.ms", "5"),)))
    assert (created.error, created.num_partitions, created.replication_factor) == (ErrorCode.NONE, 3, 1)
    assert [(c.name, c.value) for c in created.configs] == [("retention.ms", "5")]
    topic = rig.core.state.image.topics["orders"]
    assert topic.topic_id == created.topic_id
    for index, partition in topic.partitions.items():
        assert (partition.index, partition.leader, partition.isr, partition.leader_epoch) == (index, 1, (1,), 0)
        assert partition.directories == (UUID(int=(1 << 100) + 1),)


def test_topic_with_many_partitions_looks_up_each_different_placement_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The decision cannot be divided, so the time per partition counts."""
    rig = ControllerRig().with_brokers(1, 2, 3)
    looked_up: list[int] = []
    default_directory = ControllerState.default_directory

    def counting(state: ControllerState, broker_id: int) -> UUID:
        looked_up.append(broker_id)
        return default_directory(state, broker_id)

    monkeypatch.setattr(ControllerState, "default_directory", counting)
    create(rig, NewTopic("t", 500, 3))
    rig.do(CreatePartitions((NewPartitions("t", 1_000),)))
    partitions = rig.core.state.image.topics["t"].partitions
    for index in range(1_000):
        partition = partitions[index]
        assert partition.isr == partition.replicas
        assert partition.leader == partition.replicas[0]
        assert partition.directories == tuple(UUID(int=(1 << 100) + broker_id) for broker_id in partition.replicas)
    different = {partition.replicas for partition in partitions.values()}
    assert len(looked_up) == 2 * 3 * len(different)


def test_topics_of_one_request_are_one_batch_without_the_refused_topic() -> None:
    rig = ControllerRig().with_brokers(1)
    batches = len(rig.batches)
    results = create(rig, NewTopic("a", 2), NewTopic("b", 0), NewTopic("c", 1))
    assert [result.error for result in results] == [ErrorCode.NONE, ErrorCode.INVALID_PARTITIONS, ErrorCode.NONE]
    assert len(rig.batches) == batches + 1
    assert len(rig.batches[-1]) == (1 + 2) + (1 + 1)


@pytest.mark.parametrize(
    ("topic", "error", "message"),
    [
        (NewTopic(""), "INVALID_TOPIC_EXCEPTION", "Topic name is invalid: the empty string is not allowed"),
        (NewTopic(".."), "INVALID_TOPIC_EXCEPTION", "Topic name is invalid: '..' is not allowed"),
        (
            NewTopic("x" * 250),
            "INVALID_TOPIC_EXCEPTION",
            f"Topic name is invalid: the length of '{'x' * 250}' is longer than the max allowed length 249",
        ),
        (
            NewTopic("ä"),
            "INVALID_TOPIC_EXCEPTION",
            (
                "Topic name is invalid: 'ä' contains one or more characters"
                " other than ASCII alphanumerics, '.', '_' and '-'"
            ),
        ),
        (NewTopic("ta_ken"), "TOPIC_ALREADY_EXISTS", "Topic 'ta_ken' already exists."),
        (NewTopic("ta.ken"), "INVALID_TOPIC_EXCEPTION", "Topic 'ta.ken' collides with existing topic: ta_ken"),
        (
            NewTopic("__cluster_metadata"),
            "INVALID_REQUEST",
            "Creation of internal topic __cluster_metadata is prohibited.",
        ),
        (NewTopic("t", 0), "INVALID_PARTITIONS", "Number of partitions was set to an invalid non-positive value."),
        (NewTopic("t", -2), "INVALID_PARTITIONS", "Number of partitions was set to an invalid non-positive value."),
        (
            NewTopic("t", 1, 0),
            "INVALID_REPLICATION_FACTOR",
            "Replication factor must be larger than 0, or -1 to use the default value.",
        ),
        (
            NewTopic("t", 1, 3),
            "INVALID_REPLICATION_FACTOR",
            (
                "Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be reached"
                " because only 2 broker(s) are registered or some brokers have all their log directories cordoned."
            ),
        ),
        (NewTopic("t", configs=(("no.such", "1"),)), "INVALID_CONFIG", "Unknown topic config name: no.such"),
        (
            NewTopic("t", configs=(("retention.ms", None),)),
            "INVALID_CONFIG",
            "Null value not supported for topic configs: retention.ms",
        ),
        (
            NewTopic("t", 1, assignments=((0, (1,)),)),
            "INVALID_REQUEST",
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        ),
        (
            NewTopic("t", -1, 1, assignments=((0, (1,)),)),
            "INVALID_REQUEST",
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        ),
        (
            NewTopic("t", assignments=((0, (1,)), (2, (1,)))),
            "INVALID_REPLICA_ASSIGNMENT",
            "partitions should be a consecutive 0-based integer sequence",
        ),
        (
            NewTopic("t", assignments=((0, (1,)), (0, (2,)))),
            "INVALID_REPLICA_ASSIGNMENT",
            "Found multiple manual partition assignments for partition 0",
        ),
        (
            NewTopic("t", assignments=((0, (9,)),)),
            "INVALID_REPLICA_ASSIGNMENT",
            "The manual partition assignment includes broker 9, but no such broker is registered.",
        ),
        (
            NewTopic("t", assignments=((0, (1, 1)),)),
            "INVALID_REPLICA_ASSIGNMENT",
            "The manual partition assignment includes the broker 1 more than once.",
        ),
        (
            NewTopic("t", assignments=((0, ()),)),
            "INVALID_REPLICA_ASSIGNMENT",
            "The manual partition assignment includes an empty replica list.",
        ),
        (
            NewTopic("t", assignments=((0, (1, 2)), (1, (1,)))),
            "INVALID_REPLICA_ASSIGNMENT",
            (
                "The manual partition assignment includes a partition with 1 replica(s), but this is not consistent"
                " with previous partitions, which have 2 replica(s)."
            ),
        ),
    ],
)
def test_refused_topic_writes_no_record(topic: NewTopic, error: str, message: str) -> None:
    rig = ControllerRig().with_brokers(1, 2)
    create(rig, NewTopic("ta_ken", 1))
    assert outcome(rig, topic) == (error, message)


def test_topics_of_one_request_collide_with_each_other() -> None:
    rig = ControllerRig().with_brokers(1)
    results = create(rig, NewTopic("a.b", 1), NewTopic("a_b", 1), NewTopic("c", 1), NewTopic("c", 2))
    assert [(r.name, r.error.name) for r in results] == [
        ("a.b", "NONE"),
        ("a_b", "INVALID_TOPIC_EXCEPTION"),
        ("c", "INVALID_REQUEST"),
    ]


def test_validate_only_writes_no_record_and_returns_no_topic_id() -> None:
    rig = ControllerRig().with_brokers(1)
    before = len(rig.log)
    (created,) = create(rig, NewTopic("orders", 2), validate_only=True)
    assert (created.error, created.num_partitions, created.topic_id) == (ErrorCode.NONE, 2, UUID(int=0))
    assert len(rig.log) == before
    assert rig.core.state.image.topic("orders") is None


def test_manual_assignment_is_stored_and_fenced_replicas_are_not_in_sync() -> None:
    rig = ControllerRig().with_brokers(1, 2, 3)
    rig.do(FenceBroker(2))
    (created,) = create(rig, NewTopic("t", assignments=((1, (3, 1)), (0, (2, 3)))))
    assert created.error is ErrorCode.NONE
    partitions = rig.core.state.image.topics["t"].partitions
    assert [(p.replicas, p.isr, p.leader) for p in partitions.values()] == [((2, 3), (3,), 3), ((3, 1), (3, 1), 3)]
    assert outcome(rig, NewTopic("u", assignments=((0, (2,)),))) == (
        "INVALID_REPLICA_ASSIGNMENT",
        (
            "All brokers specified in the manual partition assignment for partition 0 are fenced"
            " or in controlled shutdown."
        ),
    )


def test_without_an_active_broker_no_partition_is_placed() -> None:
    rig = ControllerRig().with_brokers(1)
    rig.do(FenceBroker(1))
    assert outcome(rig, NewTopic("t", 1)) == (
        "INVALID_REPLICATION_FACTOR",
        "Unable to replicate the partition 1 time(s): All brokers are currently fenced or in controlled shutdown.",
    )


def test_leaders_are_spread_over_the_brokers() -> None:
    rig = ControllerRig().with_brokers(1, 2, 3)
    create(rig, NewTopic("t", 6, 2))
    partitions = rig.core.state.image.topics["t"].partitions.values()
    assert sorted(p.leader for p in partitions) == [1, 1, 2, 2, 3, 3]
    assert all(len(dict.fromkeys(p.replicas)) == 2 for p in partitions)


# ---- more partitions ------------------------------------------------------------------------------------------------


def grow(rig: ControllerRig, request: NewPartitions, *, validate_only: bool = False) -> TopicResult:
    (result,) = rig.do(CreatePartitions((request,), validate_only))
    assert isinstance(result, TopicResult)
    return result


def test_create_partitions_adds_them_after_the_existing_ones() -> None:
    rig = ControllerRig().with_brokers(1, 2)
    create(rig, NewTopic("t", 2, 2))
    assert grow(rig, NewPartitions("t", 4, ((2, 1), (1, 2)))).error is ErrorCode.NONE
    partitions = rig.core.state.image.topics["t"].partitions
    assert list(partitions) == [0, 1, 2, 3]
    assert [partitions[index].replicas for index in (2, 3)] == [(2, 1), (1, 2)]
    assert grow(rig, NewPartitions("t", 6), validate_only=True).error is ErrorCode.NONE
    assert len(rig.core.state.image.topics["t"].partitions) == 4


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (NewPartitions("none", 3), "UNKNOWN_TOPIC_OR_PARTITION", None),
        (NewPartitions("t", 2), "INVALID_PARTITIONS", "Topic already has 2 partition(s)."),
        (
            NewPartitions("t", 1),
            "INVALID_PARTITIONS",
            "The topic t currently has 2 partition(s); 1 would not be an increase.",
        ),
        (
            NewPartitions("t", 4, ((1,),)),
            "INVALID_REPLICA_ASSIGNMENT",
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        ),
        (
            NewPartitions("t", 3, ((1, 2),)),
            "INVALID_REPLICA_ASSIGNMENT",
            (
                "The manual partition assignment includes a partition with 2 replica(s), but this is not consistent"
                " with previous partitions, which have 1 replica(s)."
            ),
        ),
    ],
)
def test_invalid_create_partitions_is_refused(change: NewPartitions, error: str, message: str | None) -> None:
    rig = ControllerRig().with_brokers(1, 2)
    create(rig, NewTopic("t", 2, 1))
    before = len(rig.log)
    result = grow(rig, change)
    assert (result.error.name, result.message) == (error, message)
    assert len(rig.log) == before


@pytest.mark.parametrize("topic", INTERNAL_TOPICS)
@pytest.mark.parametrize("validate_only", [True, False])
def test_topics_of_coordinators_keep_their_number_of_partitions(topic: str, *, validate_only: bool) -> None:
    rig = ControllerRig().with_brokers(1)
    create(rig, NewTopic(topic, 2, 1))
    before = len(rig.log)
    result = grow(rig, NewPartitions(topic, 3), validate_only=validate_only)
    assert result.error is ErrorCode.INVALID_PARTITIONS
    assert result.message is not None
    assert result.message.startswith(f"The topic {topic} must keep its 2 partition(s)")
    assert len(rig.log) == before


# ---- deletion -------------------------------------------------------------------------------------------------------


def test_topics_are_deleted_by_name_and_by_id() -> None:
    rig = ControllerRig().with_brokers(1)
    a, b = create(rig, NewTopic("a", 1, configs=(("retention.ms", "1"),)), NewTopic("b", 1))
    results = rig.do(DeleteTopics((TopicName("a"), TopicName(topic_id=b.topic_id))))
    assert results == (TopicResult("a", a.topic_id), TopicResult("b", b.topic_id))
    assert rig.core.state.image.topics == {}
    assert list(rig.core.state.image.configs) == [(RESOURCE_BROKER, "")]
    (recreated,) = create(rig, NewTopic("a", 1))
    assert recreated.topic_id != a.topic_id
    assert rig.core.state.image.topic_config("a") == {}


def test_invalid_delete_topics_is_refused() -> None:
    rig = ControllerRig().with_brokers(1)
    a, _ = create(rig, NewTopic("a", 1), NewTopic("b", 1))
    unknown = UUID(int=12345)
    results = rig.do(
        DeleteTopics(
            (
                TopicName("none"),
                TopicName(topic_id=unknown),
                TopicName("b", a.topic_id),
                TopicName(),
                TopicName("a"),
                TopicName(topic_id=a.topic_id),
            )
        )
    )
    assert [(r.error.name, r.message) for r in results] == [
        ("UNKNOWN_TOPIC_OR_PARTITION", "This server does not host this topic-partition."),
        ("UNKNOWN_TOPIC_ID", "This server does not host this topic ID."),
        ("INVALID_REQUEST", "You may not specify both topic name and topic id."),
        ("INVALID_REQUEST", "Neither topic name nor id were specified."),
        ("INVALID_REQUEST", "The provided topic name maps to an ID that was already supplied."),
        ("INVALID_REQUEST", "Duplicate topic id."),
    ]
    assert list(rig.core.state.image.topics) == ["a", "b"]


def test_topic_ids_are_random_and_do_not_begin_with_a_dash() -> None:
    rig = ControllerRig(seed=5).with_brokers(1)
    ids = [rig.core.state.new_uuid() for _ in range(2_000)]
    assert len(dict.fromkeys(ids)) == len(ids)
    assert all(topic_id.version == 4 and topic_id.bytes[0] >> 2 != 62 for topic_id in ids)
    assert DIRECTORY_UNASSIGNED not in ids


def test_topic_name_without_id_has_the_zero_uuid() -> None:
    assert TopicName().topic_id == ZERO_UUID
