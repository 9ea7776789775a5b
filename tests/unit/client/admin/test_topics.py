"""Topics and their offsets, with partitions that have no leader and brokers that refuse."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from odradek.client import (
    EARLIEST,
    LATEST,
    ClientError,
    Cluster,
    IsolationLevel,
    NotFound,
    Refused,
    create_topic,
    delete_topic,
    describe_partitions,
    list_offsets,
    list_topics,
)
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from odradek.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from odradek.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tests.support.fake_kafka import FakeKafka, Fault, run

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

TOPIC = "t"
START, STABLE, HIGH, END = 1, 5, 7, 9
DEBUGGING = -2


def offsets(request: ListOffsetsRequest) -> ListOffsetsResponse:
    rows = []
    for partition in request.topics[0].partitions:
        offset = END if request.replica_id == DEBUGGING else STABLE if request.isolation_level else HIGH
        offset = START if partition.timestamp == EARLIEST else offset
        rows.append(ListOffsetsPartitionResponse(partition_index=partition.partition_index, offset=offset))
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=TOPIC, partitions=rows)])


def on(kafka: FakeKafka, operation: Callable[[Cluster], Awaitable[Any]]) -> Any:
    async def connected() -> Any:
        async with Cluster(kafka.bootstrap) as cluster:
            return await operation(cluster)

    return run(kafka, connected())


def test_topics_are_listed_by_name(kafka: FakeKafka) -> None:
    kafka.leaders = {"b": [1], TOPIC: [1, 2], "a": [3]}
    rows = on(kafka, list_topics)
    assert [(row.name, row.partitions, row.replication_factor) for row in rows] == [
        ("a", 1, 3),
        ("b", 1, 3),
        (TOPIC, 2, 3),
    ]


def test_partitions_have_the_offsets_of_their_leaders(kafka: FakeKafka) -> None:
    kafka.leaders[TOPIC] = [2, -1, 3]
    kafka.script(ListOffsetsRequest, *[offsets] * 8)
    rows = on(kafka, lambda cluster: describe_partitions(cluster, [TOPIC]))
    offsets_by_row = [
        (row.leader, row.log_start, row.last_stable_offset, row.high_watermark, row.log_end) for row in rows
    ]
    assert offsets_by_row == [
        (2, START, STABLE, HIGH, END),
        (-1, None, None, None, None),
        (3, START, STABLE, HIGH, END),
    ]
    assert rows[0].replicas == rows[0].isr == [1, 2, 3]
    assert {request.node_id for request in kafka.of(ListOffsetsRequest)} == {2, 3}


def test_partitions_of_a_topic_that_does_not_exist_are_not_found(kafka: FakeKafka) -> None:
    with pytest.raises(NotFound, match="topic none does not exist; list the topics with: odradek topics list"):
        on(kafka, lambda cluster: describe_partitions(cluster, ["none"]))


@pytest.mark.parametrize("fault", [Fault.DISCONNECT, Fault.SILENCE])
def test_a_leader_that_fails_is_an_error(kafka: FakeKafka, fault: Fault) -> None:
    kafka.leaders[TOPIC] = [2]
    kafka.script(ListOffsetsRequest, fault)
    with pytest.raises(ClientError, match=kafka.address(2)):
        on(kafka, lambda cluster: describe_partitions(cluster, [TOPIC]))


@pytest.mark.parametrize(
    ("timestamp", "isolation", "offset"),
    [
        (EARLIEST, IsolationLevel.READ_UNCOMMITTED, START),
        (LATEST, IsolationLevel.READ_UNCOMMITTED, HIGH),
        (LATEST, IsolationLevel.READ_COMMITTED, STABLE),
    ],
)
def test_offsets_are_listed_by_topic_and_partition(
    kafka: FakeKafka, timestamp: int, isolation: IsolationLevel, offset: int
) -> None:
    kafka.leaders[TOPIC] = [2, -1]
    kafka.script(ListOffsetsRequest, offsets)
    assert on(kafka, lambda cluster: list_offsets(cluster, [TOPIC], timestamp, isolation)) == {(TOPIC, 0): offset}


def test_a_topic_is_created_with_its_configuration(kafka: FakeKafka) -> None:
    created = CreatableTopicResult(name=TOPIC, topic_id=UUID(int=5), num_partitions=6, replication_factor=3)
    kafka.leaders[TOPIC] = [1] * 6
    kafka.script(CreateTopicsRequest, CreateTopicsResponse(topics=[created]))
    topic_created = on(
        kafka, lambda cluster: create_topic(cluster, TOPIC, partitions=6, configs={"retention.ms": "1000"})
    )
    assert (topic_created.name, topic_created.topic_id, topic_created.partitions, topic_created.replication_factor) == (
        TOPIC,
        UUID(int=5),
        6,
        3,
    )
    [topic] = kafka.of(CreateTopicsRequest)[0].request.topics
    assert (topic.num_partitions, topic.replication_factor) == (6, -1)
    assert [(config.name, config.value) for config in topic.configs] == [("retention.ms", "1000")]


def test_a_created_topic_is_known_to_the_client_when_the_call_returns(kafka: FakeKafka) -> None:
    """A producer of the same client finds the topic, although its broker learns of it later than the controller."""
    kafka.script(CreateTopicsRequest, CreateTopicsResponse(topics=[CreatableTopicResult(name=TOPIC)]))

    async def create_and_find(cluster: Cluster) -> int:
        asyncio.get_running_loop().call_later(1.0, kafka.leaders.__setitem__, TOPIC, [2])
        await create_topic(cluster, TOPIC)
        return (await cluster.topic(TOPIC)).partition(0).leader

    assert on(kafka, create_and_find) == 2


def test_a_created_topic_that_no_broker_lists_in_time_is_not_found(kafka: FakeKafka) -> None:
    kafka.script(CreateTopicsRequest, CreateTopicsResponse(topics=[CreatableTopicResult(name=TOPIC)]))
    with pytest.raises(NotFound, match="topic t does not exist"):
        on(kafka, lambda cluster: create_topic(cluster, TOPIC))


def test_a_refused_creation_or_deletion_names_code_and_reason(kafka: FakeKafka) -> None:
    created = CreatableTopicResult(name=TOPIC, error_code=ErrorCode.INVALID_CONFIG, error_message="retention.ms: soon")
    kafka.script(CreateTopicsRequest, CreateTopicsResponse(topics=[created]))
    with pytest.raises(Refused, match=r"topic t was not created: INVALID_CONFIG: retention\.ms: soon") as raised:
        on(kafka, lambda cluster: create_topic(cluster, TOPIC))
    assert raised.value.code is ErrorCode.INVALID_CONFIG
    deleted = DeletableTopicResult(name=TOPIC, error_code=999)
    kafka.script(DeleteTopicsRequest, DeleteTopicsResponse(responses=[deleted]))
    with pytest.raises(Refused, match=r"topic t was not deleted: error 999") as raised:
        on(kafka, lambda cluster: delete_topic(cluster, TOPIC))
    assert raised.value.code == 999


def test_a_creation_whose_response_is_lost_is_not_repeated(kafka: FakeKafka) -> None:
    kafka.script(CreateTopicsRequest, Fault.DISCONNECT)
    with pytest.raises(ClientError, match="closed the connection"):
        on(kafka, lambda cluster: create_topic(cluster, TOPIC))
    assert len(kafka.of(CreateTopicsRequest)) == 1
