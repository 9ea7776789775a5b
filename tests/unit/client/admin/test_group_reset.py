"""Planned and committed offsets of an offset reset."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from odradek.client import (
    ClientError,
    Cluster,
    InvalidArgument,
    NotFound,
    Refused,
    ResetTarget,
    TopicPartition,
    commit_offsets,
    plan_offset_reset,
    plan_offsets,
)
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from odradek.protocol.messages.describe_groups import DescribedGroup as ClassicGroup
from odradek.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from odradek.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from odradek.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from tests.support.fake_kafka import FakeKafka, run

if TYPE_CHECKING:
    from odradek.client import PlannedOffset

GROUP, TOPIC = "g", "t"
FIRST, LAST, AT_TIME = 10, 90, 42


def offsets(request: ListOffsetsRequest) -> ListOffsetsResponse:
    by_timestamp = {-2: FIRST, -1: LAST, 5: AT_TIME}
    [topic] = request.topics
    rows = [
        ListOffsetsPartitionResponse(
            partition_index=partition.partition_index, offset=by_timestamp.get(partition.timestamp, -1)
        )
        for partition in topic.partitions
    ]
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=topic.name, partitions=rows)])


@pytest.fixture
def kafka_with_group(kafka: FakeKafka) -> FakeKafka:
    """Return brokers with a group without members. The group has committed offset 50 of the first of two partitions."""
    kafka.leaders[TOPIC] = [1, 2]
    kafka.script(ListOffsetsRequest, *[offsets] * 20)
    absent = DescribedGroup(error_code=ErrorCode.GROUP_ID_NOT_FOUND, group_id=GROUP)
    kafka.script(ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse(groups=[absent]))
    kafka.script(DescribeGroupsRequest, DescribeGroupsResponse(groups=[ClassicGroup(group_state="Empty")]))
    committed(kafka, {0: 50})
    return kafka


def committed(kafka: FakeKafka, offsets_by_partition: dict[int, int]) -> None:
    rows = [
        OffsetFetchResponsePartitions(partition_index=index, committed_offset=offset)
        for index, offset in offsets_by_partition.items()
    ]
    group = OffsetFetchResponseGroup(group_id=GROUP, topics=[OffsetFetchResponseTopics(name=TOPIC, partitions=rows)])
    kafka.scripts.pop(OffsetFetchRequest, None)
    kafka.script(OffsetFetchRequest, OffsetFetchResponse(groups=[group]))


def plan(
    kafka: FakeKafka, target: ResetTarget, value: int | None = None, scope: dict[str, list[int]] | None = None
) -> dict[int, tuple[int | None, int]]:
    """Return committed and new offset by partition."""

    async def test() -> list[PlannedOffset]:
        async with Cluster(kafka.bootstrap) as cluster:
            return await plan_offset_reset(cluster, GROUP, target, value, scope)

    return {row.partition: (row.committed, row.new) for row in run(kafka, test())}


@pytest.mark.parametrize(
    ("target", "value", "new"),
    [
        (ResetTarget.EARLIEST, None, FIRST),
        (ResetTarget.LATEST, None, LAST),
        (ResetTarget.CURRENT, None, 50),
        (ResetTarget.OFFSET, 70, 70),
        (ResetTarget.OFFSET, 700, LAST),
        (ResetTarget.SHIFT, -5, 45),
        (ResetTarget.SHIFT, -500, FIRST),
        (ResetTarget.TIMESTAMP, 5, AT_TIME),
        (ResetTarget.TIMESTAMP, 6, LAST),
    ],
)
def test_a_new_offset_follows_its_rule_within_the_log(
    kafka_with_group: FakeKafka, target: ResetTarget, value: int | None, new: int
) -> None:
    assert plan(kafka_with_group, target, value) == {0: (50, new)}


def test_a_scope_names_all_partitions_of_a_topic_or_some(kafka_with_group: FakeKafka) -> None:
    assert plan(kafka_with_group, ResetTarget.CURRENT, scope={TOPIC: []}) == {0: (50, 50), 1: (None, LAST)}


@pytest.mark.parametrize(
    ("target", "value", "scope", "error", "message"),
    [
        (ResetTarget.SHIFT, 1, {TOPIC: [1]}, ClientError, "cannot shift t-1: the group has no committed offset for it"),
        (ResetTarget.OFFSET, None, None, InvalidArgument, "needs a number"),
        (ResetTarget.LATEST, None, {"none": []}, NotFound, "topic none does not exist"),
        (ResetTarget.LATEST, None, {TOPIC: [7]}, NotFound, "topic t has no partition 7"),
    ],
)
def test_an_impossible_reset_is_an_error(
    kafka_with_group: FakeKafka,
    target: ResetTarget,
    value: int | None,
    scope: dict[str, list[int]] | None,
    error: type[ClientError],
    message: str,
) -> None:
    with pytest.raises(error, match=message):
        plan(kafka_with_group, target, value, scope)


def test_a_reset_without_a_scope_needs_committed_offsets(kafka_with_group: FakeKafka) -> None:
    committed(kafka_with_group, {})
    with pytest.raises(ClientError, match="the group has no committed offsets"):
        plan(kafka_with_group, ResetTarget.EARLIEST)


def test_a_partition_without_a_leader_cannot_be_reset(kafka_with_group: FakeKafka) -> None:
    kafka_with_group.leaders[TOPIC] = [-1, 2]
    with pytest.raises(Refused, match="t-0 has no leader that responds; see: odradek topics describe t"):
        plan(kafka_with_group, ResetTarget.EARLIEST)


def test_a_group_with_members_cannot_be_reset(kafka_with_group: FakeKafka) -> None:
    kafka_with_group.scripts.pop(ConsumerGroupDescribeRequest)
    group = DescribedGroup(group_id=GROUP, group_state="Stable")
    kafka_with_group.script(ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse(groups=[group]))
    with pytest.raises(Refused, match="while it has no members, and it is Stable; stop its consumers first"):
        plan(kafka_with_group, ResetTarget.EARLIEST)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (ErrorCode.NONE, None),
        (ErrorCode.UNKNOWN_MEMBER_ID, "group g has members"),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, "AUTH"),
    ],
)
def test_given_offsets_are_limited_and_committed(
    kafka_with_group: FakeKafka, code: ErrorCode, message: str | None
) -> None:
    row = OffsetCommitResponsePartition(partition_index=1, error_code=code)
    topic = OffsetCommitResponseTopic(name=TOPIC, partitions=[row])
    kafka_with_group.script(OffsetCommitRequest, OffsetCommitResponse(topics=[topic]))

    async def test() -> None:
        async with Cluster(kafka_with_group.bootstrap) as cluster:
            planned = await plan_offsets(cluster, GROUP, {TopicPartition(TOPIC, 1): 7})
            await commit_offsets(cluster, GROUP, planned)

    if message is None:
        run(kafka_with_group, test())
    else:
        with pytest.raises(Refused, match=message):
            run(kafka_with_group, test())
    [received] = kafka_with_group.of(OffsetCommitRequest)
    [partition] = received.request.topics[0].partitions
    assert (partition.partition_index, partition.committed_offset) == (1, FIRST)
