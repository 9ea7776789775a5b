"""Committed offsets of a group, with and without a wait for transactions."""

from __future__ import annotations

import pytest

from odradek.client import Cluster, CommittedOffset, Refused, TopicPartition, committed_offsets
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from tests.support.fake_kafka import FakeKafka, run

GROUP, TOPIC = "g", "t"
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT
STABLE = {TopicPartition(TOPIC, 0): CommittedOffset(5, ""), TopicPartition(TOPIC, 1): CommittedOffset(7, "")}


def response(*rows: int | ErrorCode) -> OffsetFetchResponse:
    """Return a response with an offset, or an error, for each partition from 0."""
    partitions = [
        OffsetFetchResponsePartitions(partition_index=index, committed_offset=-1, error_code=row)
        if isinstance(row, ErrorCode)
        else OffsetFetchResponsePartitions(partition_index=index, committed_offset=row)
        for index, row in enumerate(rows)
    ]
    topics = [OffsetFetchResponseTopics(name=TOPIC, partitions=partitions)]
    return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id=GROUP, topics=topics)])


def fetched(kafka: FakeKafka, *, require_stable: bool) -> dict[TopicPartition, CommittedOffset]:
    async def test() -> dict[TopicPartition, CommittedOffset]:
        async with Cluster(kafka.bootstrap) as cluster:
            return await committed_offsets(cluster, GROUP, require_stable=require_stable)

    return run(kafka, test())


def test_stable_offsets_are_fetched_again_until_no_transaction_is_open(kafka: FakeKafka) -> None:
    kafka.script(OffsetFetchRequest, response(5, UNSTABLE), response(UNSTABLE, 7), response(5, 7))
    assert fetched(kafka, require_stable=True) == STABLE
    assert [received.request.require_stable for received in kafka.of(OffsetFetchRequest)] == [True] * 3


def test_another_error_of_a_partition_is_raised(kafka: FakeKafka) -> None:
    kafka.script(OffsetFetchRequest, response(5, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(Refused):
        fetched(kafka, require_stable=True)


def test_without_stable_the_first_response_is_the_result(kafka: FakeKafka) -> None:
    kafka.script(OffsetFetchRequest, response(5, 7))
    assert fetched(kafka, require_stable=False) == STABLE
    assert [received.request.require_stable for received in kafka.of(OffsetFetchRequest)] == [False]
