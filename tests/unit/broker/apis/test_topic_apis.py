"""CreateTopics, CreatePartitions, DeleteTopics, DescribeConfigs and FindCoordinator; configs of topics and brokers."""

from typing import Any
from uuid import UUID

import pytest

from odradek.broker.apis import create_partitions, create_topics, delete_topics, describe_configs, find_coordinator
from odradek.broker.config.properties import PROPERTIES
from odradek.broker.config.topics import TOPIC_PROPERTIES, TopicSettings
from odradek.broker.requests.api import AnyApi
from odradek.cluster.authorizer import CLUSTER_RESOURCE, AclOperation
from odradek.cluster.controller.messages.topics import (
    ConfigValue,
    CreatedTopic,
    NewPartitions,
    NewTopic,
    TopicName,
    TopicResult,
)
from odradek.cluster.metadata.delta import MetadataDelta
from odradek.cluster.metadata.image import RESOURCE_BROKER
from odradek.cluster.metadata.records import ConfigRecord
from odradek.coordinator.hashing import partition_for
from odradek.protocol.codec import encode
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from odradek.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.primitives import ZERO_UUID
from tests.support.broker_context import (
    Deny,
    FakeController,
    broker,
    config,
    context,
    image,
    response_of,
    services_of,
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


async def test_delete_by_id_without_describe_permission_does_not_disclose_the_name() -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=UUID(int=1))])
    no_describe = Deny((AclOperation.DESCRIBE, "a"))
    response = await response_of(
        delete_topics.handle(context(6, image([topic("a", 1, [1])]), authorizer=no_describe), request)
    )
    assert [(result.name, result.error_code) for result in response.responses] == [(None, E.TOPIC_AUTHORIZATION_FAILED)]
    no_delete = Deny((AclOperation.DELETE, "a"))
    response = await response_of(
        delete_topics.handle(context(6, image([topic("a", 1, [1])]), authorizer=no_delete), request)
    )
    assert [(result.name, result.error_code) for result in response.responses] == [("a", E.TOPIC_AUTHORIZATION_FAILED)]


@pytest.mark.parametrize(("version", "error"), [(2, E.INVALID_REQUEST), (3, E.TOPIC_DELETION_DISABLED)])
async def test_delete_topics_with_deletion_disabled_is_refused(version: int, error: ErrorCode) -> None:
    with pytest.raises(Refusal) as caught:
        await response_of(
            delete_topics.handle(
                context(version, image(), "delete.topic.enable=false"), DeleteTopicsRequest(topic_names=["a"])
            )
        )
    assert caught.value.error is error


def describe(
    resource_type: int,
    name: str,
    *assignments: str,
    configs: dict[str, str] | None = None,
    keys: list[str] | None = None,
) -> Any:
    cluster_image = image([topic("t", 1, [1])], configs={"t": configs or {}})
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=resource_type, resource_name=name, configuration_keys=keys)],
        include_synonyms=True,
        include_documentation=True,
    )
    return describe_configs.handle(context(4, cluster_image, *assignments), request).results[0]


def test_described_topic_config_has_its_source_and_synonyms() -> None:
    result = describe(
        2, "t", "log.retention.minutes=2", "log.retention.ms=9", configs={"retention.ms": "5"}, keys=["retention.ms"]
    )
    (entry,) = result.configs
    assert (entry.name, entry.value, entry.config_source, entry.config_type) == ("retention.ms", "5", 1, 5)
    assert [(synonym.name, synonym.value, synonym.source) for synonym in entry.synonyms] == [
        ("retention.ms", "5", 1),
        ("log.retention.ms", "9", 4),
        ("log.retention.minutes", "2", 4),
        ("log.retention.hours", "168", 5),
    ]
    assert entry.documentation


@pytest.mark.parametrize(
    ("assignments", "value", "source"),
    [
        ((), "604800000", 5),
        (("log.retention.minutes=2",), "120000", 5),
        (("log.retention.minutes=2", "log.retention.ms=9"), "9", 4),
        (("log.retention.hours=-1",), "-1", 5),
    ],
)
def test_retention_of_the_finest_configured_unit_applies(assignments: tuple[str, ...], value: str, source: int) -> None:
    (entry,) = describe(2, "t", *assignments, keys=["retention.ms"]).configs
    assert (entry.value, entry.config_source) == (value, source)


def test_describe_configs_lists_every_property_of_topics_and_brokers() -> None:
    assert [entry.name for entry in describe(2, "t").configs] == list(TOPIC_PROPERTIES)
    entries = {entry.name: entry for entry in describe(4, "1", "num.partitions=3").configs}
    assert (entries["num.partitions"].value, entries["num.partitions"].config_source) == ("3", 4)
    # As in Kafka; tests/interop/test_describe_configs.py compares both.
    read_only = [entries[name].read_only for name in ("node.id", "num.partitions", "message.max.bytes")]
    assert read_only == [True, True, False]
    assert describe(4, "").configs == []


@pytest.mark.parametrize(
    ("kind", "name", "error"),
    [
        (2, "missing", E.UNKNOWN_TOPIC_OR_PARTITION),
        (2, "a b", E.INVALID_TOPIC_EXCEPTION),
        (4, "2", E.INVALID_REQUEST),
        (8, "1", E.INVALID_REQUEST),
    ],
)
def test_describe_configs_of_an_invalid_resource_is_an_error(kind: int, name: str, error: ErrorCode) -> None:
    refused = describe(kind, name)
    assert refused.error_code == error
    assert (refused.error_message or "").startswith("Topic name is invalid: 'a b' ") is (name == "a b")


@pytest.mark.parametrize(
    "configs", [{"no.such": "1"}, {"retention.ms": "x"}, {"segment.bytes": "-5"}, {"cleanup.policy": "burn"}]
)
def test_invalid_topic_config_is_refused(configs: dict[str, str]) -> None:
    with pytest.raises(Refusal) as caught:
        TopicSettings(config()).validate("t", configs)
    assert caught.value.error is E.INVALID_CONFIG


def test_log_config_prefers_topic_configs_to_broker_configs() -> None:
    topic_settings = TopicSettings(config("log.segment.bytes=5000", "log.roll.hours=2", "odradek.validate.records=all"))
    log_config = topic_settings.log_config({"segment.bytes": "6000", "cleanup.policy": "compact"})
    assert (log_config.segment_bytes, log_config.segment_ms) == (6000, 7_200_000)
    assert (log_config.cleanup_policy, log_config.validate_records_all) == (("compact",), True)
    assert topic_settings.log_config({}).segment_bytes == 5000


def test_cluster_default_ranks_between_node_config_and_static_config() -> None:
    topic_settings = TopicSettings(config("log.segment.bytes=5000", "min.insync.replicas=3"))
    delta = MetadataDelta(image())
    for name, value in (("log.segment.bytes", "7000"), ("min.insync.replicas", "2")):
        delta.replay(10, 1, ConfigRecord(resource_type=RESOURCE_BROKER, resource_name="", name=name, value=value))
    topic_settings.on_metadata(delta, delta.build())
    assert (topic_settings.log_config({}).segment_bytes, topic_settings.log_config({}).min_insync_replicas) == (7000, 2)
    assert topic_settings.log_config({"segment.bytes": "6000"}).segment_bytes == 6000
    assert [
        (synonym.name, synonym.value, synonym.source) for synonym in topic_settings.synonyms("segment.bytes", {})
    ] == [
        ("log.segment.bytes", "7000", 3),
        ("log.segment.bytes", "5000", 4),
        ("log.segment.bytes", "1073741824", 5),
    ]
    (min_isr,) = (entry for entry in topic_settings.effective("t", {}) if entry.name == "min.insync.replicas")
    assert (min_isr.value, min_isr.source) == ("2", 3)
    node_delta = MetadataDelta(delta.build())
    node_delta.replay(
        11, 1, ConfigRecord(resource_type=RESOURCE_BROKER, resource_name="1", name="log.segment.bytes", value="8000")
    )
    topic_settings.on_metadata(node_delta, node_delta.build())
    assert (
        topic_settings.log_config({}).segment_bytes == topic_settings.current(PROPERTIES["log.segment.bytes"]) == 8000
    )
    assert [synonym.source for synonym in topic_settings.synonyms("segment.bytes", {})] == [2, 3, 4, 5]
    # A removed cluster default no longer applies.
    removal_delta = MetadataDelta(node_delta.build())
    removal_delta.replay(
        12, 1, ConfigRecord(resource_type=RESOURCE_BROKER, resource_name="", name="min.insync.replicas", value=None)
    )
    topic_settings.on_metadata(removal_delta, removal_delta.build())
    assert topic_settings.log_config({}).min_insync_replicas == 3


@pytest.mark.parametrize(
    ("configs", "error", "message"),
    [
        ({"no.such": "1"}, E.INVALID_CONFIG, "Unknown broker config name: no.such"),
        ({"node.id": "1"}, E.INVALID_REQUEST, "Cannot update these configs dynamically: [node.id]"),
        (
            {"log.segment.bytes": "x"},
            E.INVALID_REQUEST,
            "Invalid value x for configuration log.segment.bytes: Not a number of type INT",
        ),
        (
            {"log.segment.bytes": "1_000_000"},
            E.INVALID_REQUEST,
            "Invalid value 1_000_000 for configuration log.segment.bytes: Not a number of type INT",
        ),
        (
            {"log.cleanup.policy": "none"},
            E.INVALID_REQUEST,
            "Invalid value none for configuration log.cleanup.policy: String must be one of: compact, delete",
        ),
    ],
)
def test_invalid_broker_config_is_refused(configs: dict[str, str], error: ErrorCode, message: str) -> None:
    topic_settings = TopicSettings(config())
    topic_settings.validate_broker({"log.segment.bytes": "5000000"})
    with pytest.raises(Refusal) as caught:
        topic_settings.validate_broker(configs)
    assert caught.value.error is error
    assert str(caught.value.message).startswith(message)


def test_list_default_returns_the_default_of_list_properties_only() -> None:
    topic_settings = TopicSettings(config())
    assert (
        topic_settings.list_default(2, "cleanup.policy")
        == topic_settings.list_default(4, "log.cleanup.policy")
        == ("delete",)
    )
    assert topic_settings.list_default(2, "retention.ms") is topic_settings.list_default(2, "no.such") is None


KINDS = pytest.mark.parametrize(("kind", "log"), [(0, "__consumer_offsets"), (1, "__transaction_state")])


@KINDS
async def test_find_coordinator_returns_the_leader_of_the_keys_partition(kind: int, log: str) -> None:
    count = 4
    leaders = [1, 2, 1, 2]
    cluster_image = image([topic(log, 9, leaders, replicas=(1, 2))], [broker(1), broker(2)])
    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=["a", "b", "c"])
    response = await response_of(find_coordinator.handle(context(4, cluster_image), request))
    assert [coordinator.node_id for coordinator in response.coordinators] == [
        leaders[partition_for(k, count)] for k in ("a", "b", "c")
    ]
    single = await response_of(
        find_coordinator.handle(context(1, cluster_image), FindCoordinatorRequest(key="a", key_type=kind))
    )
    assert (single.node_id, single.port) == (response.coordinators[0].node_id, response.coordinators[0].port)


@KINDS
async def test_find_coordinator_creates_the_missing_internal_topic(kind: int, log: str) -> None:
    request_context = context(1, image())
    response = await response_of(
        find_coordinator.handle(request_context, FindCoordinatorRequest(key="a", key_type=kind))
    )
    assert (response.error_code, response.node_id) == (E.NONE, 1)
    assert services_of(request_context).auto_topic_creation.created == [log]
    refused = context(1, image(), refusals={log: E.INVALID_REPLICATION_FACTOR})
    response = await response_of(find_coordinator.handle(refused, FindCoordinatorRequest(key="a", key_type=kind)))
    coordinator = (response.error_code, response.node_id, response.host, response.port)
    assert coordinator == (E.COORDINATOR_NOT_AVAILABLE, -1, "", -1)


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        (0, E.GROUP_AUTHORIZATION_FAILED),
        (1, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (2, E.GROUP_AUTHORIZATION_FAILED),
    ],
)
async def test_find_coordinator_without_describe_permission_is_refused(kind: int, error: ErrorCode) -> None:
    request_context = context(6, image(), authorizer=Deny((AclOperation.DESCRIBE, "a")))
    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=["a"])
    response = await response_of(find_coordinator.handle(request_context, request))
    assert response.coordinators[0].error_code == error


@pytest.mark.parametrize(
    ("version", "kind", "error"),
    [(6, 2, E.COORDINATOR_NOT_AVAILABLE), (3, 2, E.INVALID_REQUEST), (3, 9, E.INVALID_REQUEST)],
)
async def test_find_coordinator_of_an_unsupported_key_type_is_an_error(
    version: int, kind: int, error: ErrorCode
) -> None:
    request = FindCoordinatorRequest(key="g", key_type=kind, coordinator_keys=["g"])
    response = await response_of(find_coordinator.handle(context(version, image()), request))
    result = response.coordinators[0] if version >= 4 else response
    assert result.error_code == error


def test_topic_name_without_id_has_the_zero_uuid() -> None:
    assert TopicName().topic_id == ZERO_UUID


@pytest.mark.parametrize(
    "api",
    [create_topics.API, create_partitions.API, delete_topics.API, describe_configs.API, find_coordinator.API],
)
def test_refusals_encode_in_every_version(api: AnyApi) -> None:
    for version in range(api.min_version, api.max_version + 1):
        response = api.refuse(context(version, image()), api.request(), E.UNKNOWN_SERVER_ERROR, "message")
        assert response is not None
        assert encode(response, version)
