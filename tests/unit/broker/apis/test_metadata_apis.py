"""ApiVersions, Metadata, DescribeCluster and DescribeTopicPartitions over a metadata image."""

import sys
from dataclasses import replace
from uuid import UUID

import pytest

from odradek.broker.apis import api_versions, describe_cluster, describe_topic_partitions, metadata
from odradek.broker.quota.controller_mutations import UNBOUNDED
from odradek.broker.requests.api import AnyApi
from odradek.broker.requests.listener import CONTROLLER
from odradek.cluster.authorizer import CLUSTER_RESOURCE, AclOperation
from odradek.protocol.codec import encode
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.describe_cluster import DescribeClusterRequest
from odradek.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    RequestCursor,
    TopicRequest,
)
from odradek.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.support.broker_context import Deny, OneSuspect, broker, context, image, response_of, services_of, topic

A, B = topic("a", 1, [1]), topic("b", 2, [1, 2, -1], replicas=(1, 2))


def named_topics(*names: str) -> list[MetadataRequestTopic]:
    return [MetadataRequestTopic(name=name) for name in names]


def test_api_versions_response_equals_the_bytes_of_kafkas_serializer() -> None:
    # Bytes from Kafka's own serializer: one API, transaction.version supported 0-2 and finalized at 2, epoch 9.
    request_context = context(4, image(), apis=(api_versions.API,))
    response = api_versions.handle(
        request_context, ApiVersionsRequest(client_software_name="x", client_software_version="1.0")
    )
    response.supported_features = [
        feature for feature in response.supported_features if feature.name == "transaction.version"
    ]
    response.finalized_features = [
        feature for feature in response.finalized_features if feature.name == "transaction.version"
    ]
    expected = (
        "000002001200000005000000000003001a02147472616e73616374696f6e2e76657273696f6e00000002000108"
        "0000000000000009021a02147472616e73616374696f6e2e76657273696f6e0002000200"
    )
    assert encode(response, 3).hex() == expected


def test_session_keeps_no_text_of_an_api_versions_request() -> None:
    """A client can send such texts before its login, and has 64 KiB of them per connection."""
    name, request_context = "x" * 30_000, context(4, image(), apis=(api_versions.API,))
    references = sys.getrefcount(name)
    api_versions.handle(request_context, ApiVersionsRequest(client_software_name=name, client_software_version=name))
    assert sys.getrefcount(name) == references


def test_api_versions_before_v4_hides_features_with_minimum_level_zero() -> None:
    request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
    response = api_versions.handle(context(3, image()), request)
    assert [feature.name for feature in response.supported_features] == ["metadata.version"]
    assert [feature.name for feature in response.finalized_features] == ["metadata.version", "transaction.version"]


@pytest.mark.parametrize(("name", "version"), [("", "1"), ("x", ""), ("-x", "1"), ("x y", "1"), ("x", "1.")])
def test_api_versions_with_invalid_software_name_is_an_invalid_request(name: str, version: str) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
    response = api_versions.handle(context(3, image()), request)
    assert (response.error_code, response.api_keys) == (ErrorCode.INVALID_REQUEST, [])


@pytest.mark.parametrize(
    ("version", "cluster_id", "node_id", "error"),
    [
        (5, "cluster", 1, ErrorCode.NONE),
        (5, None, -1, ErrorCode.NONE),
        (5, None, 2, ErrorCode.INVALID_REQUEST),
        (5, "other", 1, ErrorCode.REBOOTSTRAP_REQUIRED),
        (5, "cluster", 2, ErrorCode.REBOOTSTRAP_REQUIRED),
        (5, "cluster", -1, ErrorCode.INVALID_REQUEST),
        (4, "other", 2, ErrorCode.NONE),
    ],
)
def test_api_versions_checks_the_cluster_and_the_node_of_the_request(
    version: int, cluster_id: str | None, node_id: int, error: ErrorCode
) -> None:
    request = ApiVersionsRequest("x", "1", cluster_id, node_id)
    response = api_versions.handle(context(version, image(), apis=(api_versions.API,)), request)
    assert (response.error_code, bool(response.api_keys)) == (error, error is ErrorCode.NONE)


def test_controller_listener_does_not_check_cluster_and_node() -> None:
    controller = context(5, image())
    controller.session.listener = replace(controller.session.listener, roles=(CONTROLLER,))
    response = api_versions.handle(controller, ApiVersionsRequest("x", "1", "other", 2))
    assert response.error_code == ErrorCode.NONE


def test_api_versions_of_unknown_version_is_refused_with_its_own_versions() -> None:
    response = api_versions.refuse(context(0, image()), None, ErrorCode.UNSUPPORTED_VERSION, None)
    assert encode(response, 0).hex() == "00230000000100120000" + "0005"


async def test_metadata_response_has_leaders_errors_and_offline_replicas() -> None:
    cluster_image = image([A, B], [broker(1), broker(2, fenced=True), broker(3, listener="INTERNAL")])
    response = await response_of(metadata.handle(context(9, cluster_image), MetadataRequest(topics=named_topics("b"))))
    assert [(entry.node_id, entry.host, entry.port) for entry in response.brokers] == [(1, "host1", 9001)]
    assert (response.controller_id, response.cluster_id) == (1, "cluster")
    rows = [(p.partition_index, p.error_code, p.leader_id, p.offline_replicas) for p in response.topics[0].partitions]
    unavailable = ErrorCode.LEADER_NOT_AVAILABLE
    assert rows == [(0, 0, 1, [2]), (1, unavailable, -1, [2]), (2, unavailable, -1, [2])]
    assert [p.leader_epoch for p in response.topics[0].partitions] == [5, 6, 7]


@pytest.mark.parametrize(("version", "error"), [(5, ErrorCode.LEADER_NOT_AVAILABLE), (6, ErrorCode.LISTENER_NOT_FOUND)])
async def test_leader_without_the_listener_of_the_request_is_an_error(version: int, error: ErrorCode) -> None:
    cluster_image = image([topic("t", 1, [3])], [broker(1), broker(3, listener="INTERNAL")])
    response = await response_of(
        metadata.handle(context(version, cluster_image), MetadataRequest(topics=named_topics("t")))
    )
    assert response.topics[0].partitions[0].error_code == error


@pytest.mark.parametrize(
    ("version", "topics", "names"),
    [
        (0, [], ["a", "b"]),
        (1, None, ["a", "b"]),
        (1, [], []),
        (13, None, ["a", "b"]),
        (1, named_topics("b", "b"), ["b"]),
    ],
)
async def test_metadata_describes_all_no_or_the_named_topics(
    version: int, topics: list[MetadataRequestTopic] | None, names: list[str]
) -> None:
    response = await response_of(metadata.handle(context(version, image([A, B])), MetadataRequest(topics=topics)))
    assert [row.name for row in response.topics] == names


async def test_missing_topic_is_created_and_described_in_the_same_response() -> None:
    request_context = context(12, image())
    response = await response_of(
        metadata.handle(request_context, MetadataRequest(topics=named_topics("new", "bad name")))
    )
    assert [(row.name, row.error_code) for row in response.topics] == [
        ("new", ErrorCode.NONE),
        ("bad name", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ]
    assert response.topics[0].topic_id == UUID(int=501)


@pytest.mark.parametrize(
    ("version", "allow", "setting", "error"),
    [
        (4, False, "true", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (4, True, "false", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (4, True, "true", ErrorCode.NONE),
        (3, True, "true", ErrorCode.NONE),
    ],
)
async def test_auto_creation_needs_permission_of_request_and_broker_config(
    version: int, allow: bool, setting: str, error: ErrorCode
) -> None:
    request_context = context(version, image(), f"auto.create.topics.enable={setting}")
    request = MetadataRequest(topics=named_topics("new"), allow_auto_topic_creation=allow)
    assert (await response_of(metadata.handle(request_context, request))).topics[0].error_code == error


async def test_refused_auto_creation_returns_the_error_of_the_controller() -> None:
    request_context = context(12, image(), refusals={"new": ErrorCode.INVALID_REPLICATION_FACTOR})
    response = await response_of(metadata.handle(request_context, MetadataRequest(topics=named_topics("new"))))
    assert response.topics[0].error_code == ErrorCode.INVALID_REPLICATION_FACTOR


async def test_topics_without_permission_to_create_are_refused_beside_one_that_is_created() -> None:
    denied = [(AclOperation.CREATE, "kafka-cluster"), (AclOperation.CREATE, "other"), (AclOperation.DESCRIBE, "hidden")]
    request_context = context(12, image([A]), authorizer=Deny(*denied))
    names = named_topics("new", "other", "hidden", "a")
    response = await response_of(metadata.handle(request_context, MetadataRequest(topics=names)))
    assert {row.name: row.error_code for row in response.topics} == {
        "new": ErrorCode.NONE,
        "other": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        "hidden": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        "a": ErrorCode.NONE,
    }
    assert services_of(request_context).auto_topic_creation.created == ["new"]


@pytest.mark.parametrize("version", [0, 4, 13])
async def test_auto_creation_is_charged_to_the_client_and_refusals_are_retriable(version: int) -> None:
    request_context = context(version, image(), refusals={"new": ErrorCode.LEADER_NOT_AVAILABLE})
    services = services_of(request_context)
    response = await response_of(metadata.handle(request_context, MetadataRequest(topics=named_topics("new", "b"))))
    assert [(row.name, row.error_code) for row in response.topics] == [
        ("new", ErrorCode.LEADER_NOT_AVAILABLE),
        ("b", ErrorCode.NONE),
    ]
    assert services.auto_topic_creation.charged == [("127.0.0.1", UNBOUNDED)]


async def test_metadata_describes_topics_by_id_from_v12() -> None:
    ids = [MetadataRequestTopic(topic_id=UUID(int=number), name=None) for number in (2, 77)]
    response = await response_of(metadata.handle(context(12, image([A, B])), MetadataRequest(topics=ids)))
    assert [(row.name, row.error_code) for row in response.topics] == [
        ("b", ErrorCode.NONE),
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    with pytest.raises(Refusal):
        metadata.handle(context(11, image([A, B])), MetadataRequest(topics=ids))


async def test_topics_without_describe_permission_are_neither_described_nor_created() -> None:
    authorizer = Deny((AclOperation.DESCRIBE, "a"), (AclOperation.DESCRIBE, "new"))
    request_context = context(12, image([A, B]), authorizer=authorizer)
    response = await response_of(
        metadata.handle(request_context, MetadataRequest(topics=named_topics("a", "b", "new")))
    )
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert [row.error_code for row in response.topics] == [denied, ErrorCode.NONE, denied]
    assert request_context.node.metadata.image.topic("new") is None
    all_topics = await response_of(metadata.handle(request_context, MetadataRequest(topics=None)))
    assert [row.name for row in all_topics.topics] == ["b"]


async def test_internal_topics_are_marked_and_authorized_operations_sent_on_request() -> None:
    cluster_image = image([topic("__transaction_state", 3, [1])])
    request = MetadataRequest(
        topics=None, include_topic_authorized_operations=True, include_cluster_authorized_operations=True
    )
    response = await response_of(metadata.handle(context(10, cluster_image), request))
    assert response.topics[0].is_internal
    # The bit fields that Kafka 4.3 sends without an authorizer: topic 3..8, 10, 11; cluster 5, 7..12.
    assert response.topics[0].topic_authorized_operations == 0b110111111000
    assert response.cluster_authorized_operations == 0b1111110100000


async def test_operations_on_the_cluster_are_hidden_from_clients_that_may_not_describe_it() -> None:
    request_context = context(10, image(), authorizer=Deny((AclOperation.DESCRIBE, CLUSTER_RESOURCE)))
    request = MetadataRequest(topics=[], include_cluster_authorized_operations=True)
    response = await response_of(metadata.handle(request_context, request))
    assert response.cluster_authorized_operations == 0
    described = describe_cluster.handle(
        request_context, DescribeClusterRequest(include_cluster_authorized_operations=True)
    )
    assert described.cluster_authorized_operations == 0


async def described_pages(limit: int, *names: str, setting: int = 2000) -> list[tuple[str, list[int]]]:
    """Return (topic, partition indexes) of every page, following the cursor to its end."""
    described: list[tuple[str, list[int]]] = []
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names], response_partition_limit=limit
    )
    request_context = context(0, image([B, A]), f"max.request.partition.size.limit={setting}")
    for _ in range(10):
        response = await response_of(describe_topic_partitions.handle(request_context, request))
        described += [(row.name or "", [p.partition_index for p in row.partitions]) for row in response.topics]
        if response.next_cursor is None:
            return described
        cursor = response.next_cursor
        request.cursor = RequestCursor(topic_name=cursor.topic_name, partition_index=cursor.partition_index)
    raise AssertionError("no response without a next cursor within 10 pages")


@pytest.mark.parametrize("topics_per_turn", [1, 1_000])
async def test_describe_topic_partitions_pages_in_order_of_topic_names(
    monkeypatch: pytest.MonkeyPatch, topics_per_turn: int
) -> None:
    monkeypatch.setattr(describe_topic_partitions, "ELEMENTS_PER_PART", topics_per_turn)
    assert await described_pages(2000) == [("a", [0]), ("b", [0, 1, 2])]
    assert await described_pages(2) == [("a", [0]), ("b", [0]), ("b", [1, 2])]
    assert await described_pages(1) == [("a", [0]), ("b", [0]), ("b", [1]), ("b", [2])]
    assert await described_pages(2000, setting=3) == [("a", [0]), ("b", [0, 1]), ("b", [2])]
    assert await described_pages(0, "b") == [("b", [0]), ("b", [1]), ("b", [2])]


async def test_describe_topic_partitions_returns_errors_of_named_topics() -> None:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name="z"), TopicRequest(name="a b")], response_partition_limit=10
    )
    response = await response_of(describe_topic_partitions.handle(context(0, image([A])), request))
    assert [(row.name, row.error_code) for row in response.topics] == [
        ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("z", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


async def test_many_named_topics_are_described_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(describe_topic_partitions, "ELEMENTS_PER_PART", 10)
    names = [f"missing-{number:02}" for number in range(35)]
    slices: list[int] = []
    add = describe_topic_partitions._Page.add

    def counted(page: describe_topic_partitions._Page, some: list[str]) -> bool:
        slices.append(len(some))
        return add(page, some)

    monkeypatch.setattr(describe_topic_partitions._Page, "add", counted)
    request = DescribeTopicPartitionsRequest([TopicRequest(name) for name in names], response_partition_limit=10)
    response = await response_of(describe_topic_partitions.handle(context(0, image([A])), request))
    assert [row.name for row in response.topics] == names
    assert slices == [10, 10, 10, 5]


@pytest.mark.parametrize("cursor", [RequestCursor(topic_name="x", partition_index=0), RequestCursor("a", -1)])
def test_describe_topic_partitions_with_invalid_cursor_is_refused(cursor: RequestCursor) -> None:
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="a")], cursor=cursor)
    with pytest.raises(Refusal) as caught:
        describe_topic_partitions.handle(context(0, image([A])), request)
    assert caught.value.error is ErrorCode.INVALID_REQUEST


def test_describe_cluster_lists_fenced_brokers_only_on_request() -> None:
    cluster_image = image([], [broker(1), broker(2, fenced=True)])
    active = describe_cluster.handle(context(2, cluster_image), DescribeClusterRequest())
    assert [entry.broker_id for entry in active.brokers] == [1]
    all_brokers = describe_cluster.handle(
        context(2, cluster_image), DescribeClusterRequest(include_fenced_brokers=True)
    )
    assert [(entry.broker_id, entry.is_fenced) for entry in all_brokers.brokers] == [(1, False), (2, True)]


@pytest.mark.parametrize(
    ("endpoint_type", "error"), [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (9, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)]
)
def test_describe_cluster_of_another_endpoint_type_is_refused(endpoint_type: int, error: ErrorCode) -> None:
    with pytest.raises(Refusal) as caught:
        describe_cluster.handle(context(1, image()), DescribeClusterRequest(endpoint_type=endpoint_type))
    assert caught.value.error is error


@pytest.mark.parametrize("api", [metadata.API, describe_cluster.API, describe_topic_partitions.API])
def test_refusals_encode_in_every_version(api: AnyApi) -> None:
    for version in range(api.min_version, api.max_version + 1):
        response = api.refuse(context(version, image()), api.request(), ErrorCode.UNKNOWN_SERVER_ERROR, "message")
        assert response is not None
        assert encode(response, version)


@pytest.mark.parametrize(
    ("topics", "denied", "waited"),
    [
        (named_topics("a"), (), []),
        (named_topics("a", "b"), (), [["a", "b"]]),
        (named_topics("b"), ("b",), []),  # a client without rights cannot learn that the topic exists
        ([MetadataRequestTopic(topic_id=B.topic_id)], (), [["b"]]),
        ([MetadataRequestTopic(topic_id=UUID(int=77))], (), []),
        ([], (), [None]),  # the brokers and the controller
        (None, (), [None]),
    ],
)
async def test_metadata_waits_while_a_suspected_broker_leads_a_requested_topic(
    topics: list[MetadataRequestTopic] | None, denied: tuple[str, ...], waited: list[list[str] | None]
) -> None:
    authorizer = Deny(*((AclOperation.DESCRIBE, name) for name in denied))
    request_context = context(12, image([A, B], [broker(1), broker(2)]), authorizer=authorizer)
    services = services_of(request_context)
    services.suspected_leaders = suspect = OneSuspect(services.metadata)
    response = await response_of(metadata.handle(request_context, MetadataRequest(topics=topics)))
    assert suspect.waited == waited
    assert all(partition.leader_id in {1, -1} for each in response.topics for partition in each.partitions)
