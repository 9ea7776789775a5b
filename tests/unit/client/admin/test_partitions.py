"""Deletion of records: one request for the metadata of each topic, and one request to each leader."""

from __future__ import annotations

import pytest

from odradek.client import Cluster, NotFound, Settings, TopicPartition, delete_records
from odradek.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from odradek.protocol.messages.metadata import MetadataRequest
from tests.support.fake_kafka import FakeKafka, run

OFFSETS = {TopicPartition(topic, index): index + 5 for topic in ("a", "b") for index in range(3)}


def deleted(request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                topic.name,
                [DeleteRecordsPartitionResult(row.partition_index, row.offset) for row in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def test_records_of_many_partitions_are_deleted_by_one_request_per_leader(kafka: FakeKafka) -> None:
    kafka.leaders |= {"a": [1, 3, 1], "b": [1, 1, 1]}
    kafka.script(DeleteRecordsRequest, *[deleted] * 2)

    async def test() -> None:
        async with Cluster(kafka.bootstrap, Settings()) as cluster:
            before = len(kafka.of(MetadataRequest))
            assert await delete_records(cluster, OFFSETS) == OFFSETS
            assert len(kafka.of(MetadataRequest)) - before == 2
        assert sorted(received.node_id for received in kafka.of(DeleteRecordsRequest)) == [1, 3]

    run(kafka, test())


def test_no_records_are_deleted_if_a_partition_has_no_leader(kafka: FakeKafka) -> None:
    kafka.leaders |= {"a": [1, -1, 1], "b": [1, 1, 1]}

    async def test() -> None:
        async with Cluster(kafka.bootstrap, Settings()) as cluster:
            with pytest.raises(NotFound, match="a-1 has no leader; start its brokers"):
                await delete_records(cluster, OFFSETS)
        assert not kafka.of(DeleteRecordsRequest)

    run(kafka, test())
