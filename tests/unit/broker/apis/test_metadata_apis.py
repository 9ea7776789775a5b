from uuid import UUID

import pytest

from odradek.broker.apis import api_versions, describe_cluster, describe_topic_partitions, metadata
from odradek.broker.requests.api import AnyApi
from odradek.cluster.authorizer import AclOperation
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
from tests.support.broker_context import Deny, broker, context, image, response_of, topic

A, B = topic("a", 1, [1]), topic("b", 2, [1, 2, -1], replicas=(1, 2))


def asked(*names: str) -> list[MetadataRequestTopic]:
    return [MetadataRequestTopic(name=name) for name in names]


def test_api_versions_lists_exactly_the_rows_and_what_kafka_prints_for_features() -> None:
    # The vector was printed by Kafka's own serializer: one row, transaction.version supported 0-2 and finalized at 2, epoch 9.
    only = context(4, image(), apis=(api_versions.API,))
    response = api_versions.handle(only, ApiVersionsRequest(client_software_name="x", client_software_version="1.0"))
    response.supported_features = [f for f in response.supported_features if f.name == "transaction.version"]
    response.finalized_features = [f for f in response.finalized_features if f.name == "transaction.version"]
    expected = (
        "000002001200000004000000000003001a02147472616e73616374696f6e2e76657273696f6e00000002000108"
        "0000000000000009021a02147472616e73616374696f6e2e76657273696f6e0002000200"
    )
    assert encode(response, 3).hex() == expected
    assert only.session.client_software_name == "x"


def test_features_whose_lowest_level_is_zero_are_hidden_from_old_clients() -> None:
    request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
    old = api_versions.handle(context(3, image()), request)
    assert [feature.name for feature in old.supported_features] == ["metadata.version"]
    assert [feature.name for feature in old.finalized_features] == ["metadata.version", "transaction.version"]


@pytest.mark.parametrize(("name", "version"), [("", "1"), ("x", ""), ("-x", "1"), ("x y", "1"), ("x", "1.")])
def test_software_names_are_checked(name: str, version: str) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
    response = api_versions.handle(context(3, image()), request)
    assert (response.error_code, response.api_keys) == (ErrorCode.INVALID_REQUEST, [])


def test_a_version_from_the_future_is_told_the_one_row_it_needs() -> None:
    response = api_versions.refuse(context(0, image()), None, ErrorCode.UNSUPPORTED_VERSION, None)
    assert encode(response, 0).hex() == "00230000000100120000" + "0004"


async def test_metadata_tells_leaders_errors_and_offline_replicas() -> None:
    seen = image([A, B], [broker(1), broker(2, fenced=True), broker(3, listener="INTERNAL")])
    response = await response_of(metadata.handle(context(9, seen), MetadataRequest(topics=asked("b"))))
    assert [(b.node_id, b.host, b.port) for b in response.brokers] == [(1, "host1", 9001)]
    assert (response.controller_id, response.cluster_id) == (1, "cluster")
    rows = [(p.partition_index, p.error_code, p.leader_id, p.offline_replicas) for p in response.topics[0].partitions]
    unavailable = ErrorCode.LEADER_NOT_AVAILABLE
    assert rows == [(0, 0, 1, [2]), (1, unavailable, -1, [2]), (2, unavailable, -1, [2])]
    assert [p.leader_epoch for p in response.topics[0].partitions] == [5, 6, 7]


@pytest.mark.parametrize(("version", "error"), [(5, ErrorCode.LEADER_NOT_AVAILABLE), (6, ErrorCode.LISTENER_NOT_FOUND)])
async def test_a_leader_that_is_only_elsewhere_reachable(version: int, error: ErrorCode) -> None:
    seen = image([topic("t", 1, [3])], [broker(1), broker(3, listener="INTERNAL")])
    response = await response_of(metadata.handle(context(version, seen), MetadataRequest(topics=asked("t"))))
    assert response.topics[0].partitions[0].error_code == error


@pytest.mark.parametrize(
    ("version", "topics", "names"),
    [(0, [], ["a", "b"]), (1, None, ["a", "b"]), (1, [], []), (13, None, ["a", "b"]), (1, asked("b", "b"), ["b"])],
)
async def test_all_topics_none_or_some(
    version: int, topics: list[MetadataRequestTopic] | None, names: list[str]
) -> None:
    response = await response_of(metadata.handle(context(version, image([A, B])), MetadataRequest(topics=topics)))
    assert [each.name for each in response.topics] == names


async def test_a_missing_topic_is_created_and_described_in_the_same_answer() -> None:
    asking = context(12, image())
    response = await response_of(metadata.handle(asking, MetadataRequest(topics=asked("new", "bad name"))))
    assert [(each.name, each.error_code) for each in response.topics] == [
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
async def test_creation_needs_the_client_and_the_broker(
    version: int, allow: bool, setting: str, error: ErrorCode
) -> None:
    asking = context(version, image(), f"auto.create.topics.enable={setting}")
    request = MetadataRequest(topics=asked("new"), allow_auto_topic_creation=allow)
    assert (await response_of(metadata.handle(asking, request))).topics[0].error_code == error


async def test_a_refused_creation_says_why() -> None:
    asking = context(12, image(), refusals={"new": ErrorCode.INVALID_REPLICATION_FACTOR})
    response = await response_of(metadata.handle(asking, MetadataRequest(topics=asked("new"))))
    assert response.topics[0].error_code == ErrorCode.INVALID_REPLICATION_FACTOR


async def test_topics_by_id() -> None:
    ids = [MetadataRequestTopic(topic_id=UUID(int=number), name=None) for number in (2, 77)]
    response = await response_of(metadata.handle(context(12, image([A, B])), MetadataRequest(topics=ids)))
    assert [(each.name, each.error_code) for each in response.topics] == [
        ("b", ErrorCode.NONE),
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    with pytest.raises(Refusal):
        metadata.handle(context(11, image([A, B])), MetadataRequest(topics=ids))


async def test_topics_that_may_not_be_seen_are_neither_described_nor_created() -> None:
    deny = Deny((AclOperation.DESCRIBE, "a"), (AclOperation.DESCRIBE, "new"))
    asking = context(12, image([A, B]), authorizer=deny)
    response = await response_of(metadata.handle(asking, MetadataRequest(topics=asked("a", "b", "new"))))
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert [each.error_code for each in response.topics] == [denied, ErrorCode.NONE, denied]
    assert asking.node.metadata.image.topic("new") is None
    everything = await response_of(metadata.handle(asking, MetadataRequest(topics=None)))
    assert [each.name for each in everything.topics] == ["b"]


async def test_internal_topics_are_marked_and_operations_are_told_on_request() -> None:
    seen = image([topic("__transaction_state", 3, [1])])
    request = MetadataRequest(
        topics=None, include_topic_authorized_operations=True, include_cluster_authorized_operations=True
    )
    response = await response_of(metadata.handle(context(10, seen), request))
    assert response.topics[0].is_internal
    # The bit fields that Kafka 4.3 sends without an authorizer: topic 3..8, 10, 11; cluster 5, 7..12.
    assert response.topics[0].topic_authorized_operations == 0b110111111000
    assert response.cluster_authorized_operations == 0b1111110100000


def pages(limit: int, *names: str, setting: int = 2000) -> list[tuple[str, list[int]]]:
    """Follow the cursor to its end."""
    found: list[tuple[str, list[int]]] = []
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names], response_partition_limit=limit
    )
    asking = context(0, image([B, A]), f"max.request.partition.size.limit={setting}")
    for _ in range(10):
        response = describe_topic_partitions.handle(asking, request)
        found += [(each.name or "", [p.partition_index for p in each.partitions]) for each in response.topics]
        if response.next_cursor is None:
            return found
        cursor = response.next_cursor
        request.cursor = RequestCursor(topic_name=cursor.topic_name, partition_index=cursor.partition_index)
    raise AssertionError("the cursor has no end")


def test_partitions_are_described_page_by_page_in_order_of_names() -> None:
    assert pages(2000) == [("a", [0]), ("b", [0, 1, 2])]
    assert pages(2) == [("a", [0]), ("b", [0]), ("b", [1, 2])]
    assert pages(1) == [("a", [0]), ("b", [0]), ("b", [1]), ("b", [2])]
    assert pages(2000, setting=3) == [("a", [0]), ("b", [0, 1]), ("b", [2])]
    assert pages(0, "b") == [("b", [0]), ("b", [1]), ("b", [2])]


def test_topics_that_do_not_exist_are_only_told_when_named() -> None:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name="z"), TopicRequest(name="a b")], response_partition_limit=10
    )
    response = describe_topic_partitions.handle(context(0, image([A])), request)
    assert [(each.name, each.error_code) for each in response.topics] == [
        ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("z", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


@pytest.mark.parametrize("cursor", [RequestCursor(topic_name="x", partition_index=0), RequestCursor("a", -1)])
def test_a_cursor_must_make_sense(cursor: RequestCursor) -> None:
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="a")], cursor=cursor)
    with pytest.raises(Refusal) as caught:
        describe_topic_partitions.handle(context(0, image([A])), request)
    assert caught.value.error is ErrorCode.INVALID_REQUEST


def test_describe_cluster_names_fenced_brokers_only_on_request() -> None:
    seen = image([], [broker(1), broker(2, fenced=True)])
    alive = describe_cluster.handle(context(2, seen), DescribeClusterRequest())
    assert [each.broker_id for each in alive.brokers] == [1]
    everyone = describe_cluster.handle(context(2, seen), DescribeClusterRequest(include_fenced_brokers=True))
    assert [(each.broker_id, each.is_fenced) for each in everyone.brokers] == [(1, False), (2, True)]


@pytest.mark.parametrize(
    ("endpoint_type", "error"), [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (9, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)]
)
def test_describe_cluster_is_about_brokers(endpoint_type: int, error: ErrorCode) -> None:
    with pytest.raises(Refusal) as caught:
        describe_cluster.handle(context(1, image()), DescribeClusterRequest(endpoint_type=endpoint_type))
    assert caught.value.error is error


@pytest.mark.parametrize("api", [metadata.API, describe_cluster.API, describe_topic_partitions.API])
def test_refusals_encode_in_every_version(api: AnyApi) -> None:
    for version in range(api.min_version, api.max_version + 1):
        response = api.refuse(context(version, image()), api.request(), ErrorCode.UNKNOWN_SERVER_ERROR, "why")
        assert response is not None
        assert encode(response, version)
