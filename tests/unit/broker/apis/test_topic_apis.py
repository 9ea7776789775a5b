"""CreateTopics, CreatePartitions and DeleteTopics; refusals of the APIs of topics, configs and coordinators."""

from uuid import UUID

import pytest

from odradek.broker.apis import (
    alter_partition_reassignments,
    create_partitions,
    create_topics,
    delete_topics,
    describe_configs,
    find_coordinator,
)
from odradek.broker.requests.api import AnyApi
from odradek.broker.requests.node_principals import SessionNode
from odradek.cluster.authorizer import CLUSTER_RESOURCE, AclOperation
from odradek.cluster.controller.messages.topics import (
    ConfigValue,
    CreatedTopic,
    NewPartitions,
    NewTopic,
    TopicName,
    TopicResult,
)
from odradek.protocol.codec import encode
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from odradek.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.support.broker_context import (
    Deny,
    FakeController,
    context,
    image,
    response_of,
    topic,
)

E = ErrorCode


async def test_create_topics_forwards_the_request_and_returns_the_results() -> None:
    created = CreatedTopic(
        "a", topic_id=UUID(int=5), num_partitions=2, replication_factor=1, configs=(ConfigValue("x", "1", 5),)
    )
    controller = FakeController([created, CreatedTopic("b", E.TOPIC_ALREADY_EXISTS, "there")])
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(name="a", num_partitions=2, replication_factor=-1, configs=[CreatableTopicConfig("x", "1")]),
            CreatableTopic(name="b", num_partitions=1, replication_factor=1),
            CreatableTopic(name="__cluster_metadata"),
        ],
        timeout_ms=77,
        validate_only=True,
    )
    response = await response_of(create_topics.handle(context(7, image(), controller=controller), request))
    topics, options = controller.calls[0]
    assert topics == (NewTopic("a", 2, -1, (), (("x", "1"),)), NewTopic("b", 1, 1))
    assert options == {"validate_only": True, "timeout_ms": 77}
    assert [(row.name, row.error_code) for row in response.topics] == [
        ("a", E.NONE),
        ("b", E.TOPIC_ALREADY_EXISTS),
        ("__cluster_metadata", E.INVALID_REQUEST),
    ]
    assert response.topics[0].topic_id == UUID(int=5)
    assert [(entry.name, entry.value) for entry in response.topics[0].configs] == [("x", "1")]


async def test_topics_without_create_permission_never_reach_the_controller() -> None:
    controller = FakeController()
    authorizer = Deny(
        (AclOperation.CREATE, CLUSTER_RESOURCE), (AclOperation.CREATE, "a"), (AclOperation.DESCRIBE_CONFIGS, "b")
    )
    request = CreateTopicsRequest(topics=[CreatableTopic(name="a"), CreatableTopic(name="b")])
    request_context = context(7, image(), controller=controller, authorizer=authorizer)
    response = await response_of(create_topics.handle(request_context, request))
    assert [row.name for row in controller.calls[0][0]] == ["b"]
    assert response.topics[0].error_code == E.TOPIC_AUTHORIZATION_FAILED
    hidden_topic = response.topics[1]
    assert (hidden_topic.topic_config_error_code, hidden_topic.configs, hidden_topic.num_partitions) == (
        E.TOPIC_AUTHORIZATION_FAILED,
        None,
        -1,
    )


async def test_node_with_cluster_action_needs_no_permission_to_create_topics() -> None:
    controller = FakeController()
    authorizer = Deny((AclOperation.CREATE, CLUSTER_RESOURCE), (AclOperation.CREATE, "a"))
    request_context = context(7, image(), controller=controller, authorizer=authorizer)
    request_context.session.node = SessionNode.of(frozenset((4,)))
    response = await response_of(create_topics.handle(request_context, CreateTopicsRequest([CreatableTopic(name="a")])))
    assert [row.name for row in controller.calls[0][0]] == ["a"]
    assert response.topics[0].error_code == E.NONE


async def test_create_partitions_forwards_the_total_partition_count() -> None:
    controller = FakeController([TopicResult("a"), TopicResult("b", error=E.INVALID_PARTITIONS, message="fewer")])
    request = CreatePartitionsRequest(
        topics=[
            CreatePartitionsTopic(name="a", count=4, assignments=None),
            CreatePartitionsTopic(name="c", count=9, assignments=None),
            CreatePartitionsTopic(name="b", count=1, assignments=[]),
        ]
    )
    authorizer = Deny((AclOperation.ALTER, "c"))
    response = await response_of(
        create_partitions.handle(context(3, image(), controller=controller, authorizer=authorizer), request)
    )
    assert controller.calls[0][0] == (NewPartitions("a", 4), NewPartitions("b", 1, ()))
    assert [(result.name, result.error_code) for result in response.results] == [
        ("a", E.NONE),
        ("c", E.TOPIC_AUTHORIZATION_FAILED),
        ("b", E.INVALID_PARTITIONS),
    ]


async def test_delete_topics_by_name_and_by_id() -> None:
    known = topic("a", 1, [1])
    controller = FakeController([TopicResult("a", UUID(int=1)), TopicResult("b", error=E.UNKNOWN_TOPIC_OR_PARTITION)])
    request = DeleteTopicsRequest(
        topics=[
            DeleteTopicState(name=None, topic_id=UUID(int=1)),
            DeleteTopicState(name="b"),
            DeleteTopicState(name="x", topic_id=UUID(int=3)),
            DeleteTopicState(name=None),
            DeleteTopicState(name="twice"),
            DeleteTopicState(name="twice"),
        ]
    )
    response = await response_of(delete_topics.handle(context(6, image([known]), controller=controller), request))
    assert controller.calls[0][0] == (TopicName(None, UUID(int=1)), TopicName("b"))
    assert [(result.name, result.error_code) for result in response.responses] == [
        ("a", E.NONE),
        ("b", E.UNKNOWN_TOPIC_OR_PARTITION),
        ("x", E.INVALID_REQUEST),
        (None, E.INVALID_REQUEST),
        ("twice", E.INVALID_REQUEST),
    ]


async def test_refused_reassignment_has_the_error_for_each_partition() -> None:
    topics = [ReassignableTopic("a", [ReassignablePartition(0), ReassignablePartition(2)]), ReassignableTopic("b")]
    request, api = AlterPartitionReassignmentsRequest(topics=topics), alter_partition_reassignments.API
    response = api.refuse(context(1, image()), request, E.CLUSTER_AUTHORIZATION_FAILED, "denied")
    assert response is not None
    assert response.error_code == E.CLUSTER_AUTHORIZATION_FAILED
    assert [
        (topic.name, partition.partition_index, partition.error_code, partition.error_message)
        for topic in response.responses
        for partition in topic.partitions
    ] == [("a", index, E.CLUSTER_AUTHORIZATION_FAILED, "denied") for index in (0, 2)]


CLUSTER_DELETE, DELETE, DESCRIBE = (
    (AclOperation.DELETE, CLUSTER_RESOURCE),
    (AclOperation.DELETE, "a"),
    (AclOperation.DESCRIBE, "a"),
)
"""Operations whose denial decides on the deletion of the topic `a`, as in Kafka's ControllerApis.deleteTopics."""


@pytest.mark.parametrize(
    ("denied", "by_name", "by_id"),
    [
        ((CLUSTER_DELETE, DELETE, DESCRIBE), ("a", E.TOPIC_AUTHORIZATION_FAILED), (None, E.TOPIC_AUTHORIZATION_FAILED)),
        ((CLUSTER_DELETE, DELETE), ("a", E.TOPIC_AUTHORIZATION_FAILED), ("a", E.TOPIC_AUTHORIZATION_FAILED)),
        ((CLUSTER_DELETE, DESCRIBE), ("a", E.TOPIC_AUTHORIZATION_FAILED), ("a", E.NONE)),
        ((CLUSTER_DELETE,), ("a", E.NONE), ("a", E.NONE)),
        ((DELETE, DESCRIBE), ("a", E.NONE), ("a", E.NONE)),
    ],
)
async def test_deletion_of_a_topic_needs_delete_on_it_or_on_the_cluster(
    denied: tuple[tuple[AclOperation, str], ...],
    by_name: tuple[str | None, ErrorCode],
    by_id: tuple[str | None, ErrorCode],
) -> None:
    named, identified = DeleteTopicState(name="a"), DeleteTopicState(name=None, topic_id=UUID(int=1))
    for item, expected in ((named, by_name), (identified, by_id)):
        refused = bool(expected[1])
        controller = FakeController(() if refused else (TopicResult("a", UUID(int=1)),))
        request_context = context(6, image([topic("a", 1, [1])]), controller=controller, authorizer=Deny(*denied))
        response = await response_of(delete_topics.handle(request_context, DeleteTopicsRequest(topics=[item])))
        assert [(result.name, result.error_code) for result in response.responses] == [expected]
        assert controller.calls[0][0] == (() if refused else (TopicName(item.name, item.topic_id),))


@pytest.mark.parametrize(("version", "error"), [(2, E.INVALID_REQUEST), (3, E.TOPIC_DELETION_DISABLED)])
async def test_delete_topics_with_deletion_disabled_is_refused(version: int, error: ErrorCode) -> None:
    with pytest.raises(Refusal) as caught:
        await response_of(
            delete_topics.handle(
                context(version, image(), "delete.topic.enable=false"), DeleteTopicsRequest(topic_names=["a"])
            )
        )
    assert caught.value.error is error


@pytest.mark.parametrize(
    "api",
    [create_topics.API, create_partitions.API, delete_topics.API, describe_configs.API, find_coordinator.API],
)
def test_refusals_encode_in_every_version(api: AnyApi) -> None:
    for version in range(api.min_version, api.max_version + 1):
        response = api.refuse(context(version, image()), api.request(), E.UNKNOWN_SERVER_ERROR, "message")
        assert response is not None
        assert encode(response, version)


async def test_request_with_too_many_partitions_is_refused_before_the_controller_receives_it() -> None:
    topic = CreatableTopic("t", -1, -1, [CreatableReplicaAssignment(0, [1])] * 5_001)
    controller = FakeController()
    with pytest.raises(Refusal) as caught:
        await response_of(
            create_topics.API.handle(context(19, image(), controller=controller), CreateTopicsRequest([topic] * 2))
        )
    assert caught.value.error is ErrorCode.POLICY_VIOLATION
    assert controller.calls == []
