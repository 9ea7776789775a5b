"""Offsets of partitions: one timestamp per partition, retries, missing topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from odradek.client import (
    EARLIEST,
    LATEST,
    Cluster,
    IsolationLevel,
    NotFound,
    Refused,
    TopicPartition,
    offsets_of_partitions,
)
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tests.support.fake_kafka import FakeKafka, Fault, run

if TYPE_CHECKING:
    from collections.abc import Mapping

TOPIC = "t"


def response(request: ListOffsetsRequest, code: ErrorCode = ErrorCode.NONE) -> ListOffsetsResponse:
    """Return 100 times the partition index plus the timestamp of the request as the offset."""
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(
                        partition_index=row.partition_index,
                        error_code=code,
                        offset=-1 if code else 100 * row.partition_index + row.timestamp,
                    )
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def offsets(kafka: FakeKafka, timestamps: Mapping[int, int]) -> dict[int, int]:
    async def test() -> dict[int, int]:
        async with Cluster(kafka.bootstrap) as cluster:
            wanted = {TopicPartition(TOPIC, index): timestamp for index, timestamp in timestamps.items()}
            found = await offsets_of_partitions(cluster, wanted, IsolationLevel.READ_COMMITTED)
            return {key.partition: offset for key, offset in found.items()}

    return run(kafka, test())


def test_each_partition_has_a_timestamp_of_its_own(kafka: FakeKafka) -> None:
    kafka.leaders[TOPIC] = [1, 2, 2]
    kafka.script(ListOffsetsRequest, response, response)
    assert offsets(kafka, {0: EARLIEST, 1: LATEST, 2: 7}) == {0: -2, 1: 99, 2: 207}
    assert sorted(each.node_id for each in kafka.of(ListOffsetsRequest)) == [1, 2]
    assert {each.request.isolation_level for each in kafka.of(ListOffsetsRequest)} == {IsolationLevel.READ_COMMITTED}


@pytest.mark.parametrize(
    "fault",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.LEADER_NOT_AVAILABLE,
        Fault.DISCONNECT,
    ],
)
def test_partition_that_fails_is_requested_again(kafka: FakeKafka, fault: ErrorCode | Fault) -> None:
    kafka.leaders[TOPIC] = [1]
    first = fault if isinstance(fault, Fault) else lambda request: response(request, fault)
    kafka.script(ListOffsetsRequest, first, response)
    assert offsets(kafka, {0: 5}) == {0: 5}


def test_partition_without_a_leader_fails_at_the_deadline(kafka: FakeKafka) -> None:
    kafka.leaders[TOPIC] = [-1]
    with pytest.raises(Refused, match="offset of t-0: LEADER_NOT_AVAILABLE"):
        offsets(kafka, {0: 5})


def test_permanent_error_is_raised_at_once(kafka: FakeKafka) -> None:
    kafka.leaders[TOPIC] = [1]
    kafka.script(ListOffsetsRequest, lambda request: response(request, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(Refused, match="offset of t-0: TOPIC_AUTHORIZATION_FAILED"):
        offsets(kafka, {0: 5})
    assert len(kafka.of(ListOffsetsRequest)) == 1


@pytest.mark.parametrize("leaders", [{}, {TOPIC: [1]}])
def test_missing_topic_or_partition_is_not_found(kafka: FakeKafka, leaders: dict[str, list[int]]) -> None:
    kafka.leaders = leaders
    with pytest.raises(NotFound):
        offsets(kafka, {3: 5})
