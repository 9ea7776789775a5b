"""Groups of several coordinators and of both protocols."""

from __future__ import annotations

import pytest

from odradek.client import Cluster, GroupListing, InvalidArgument, describe_group, list_groups
from odradek.client.admin.group_members import members_of_groups
from odradek.client.admin.group_offsets import CommittedOffset
from odradek.client.admin.groups import with_lag
from odradek.client.network.fan_out import FanOut
from odradek.client.network.metadata import TopicPartition
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages import share_group_describe as shares
from odradek.protocol.messages import streams_group_describe as streams
from odradek.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from odradek.protocol.messages.consumer_group_describe import DescribedGroup as ConsumerGroup
from odradek.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from odradek.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from odradek.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from odradek.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from odradek.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from tests.support.fake_kafka import FakeKafka, run


@pytest.mark.parametrize(("states", "types"), [(["Stable", "Sleepy"], []), ([], ["sleepy"])])
def test_a_state_or_type_that_kafka_does_not_have_is_an_invalid_argument(
    kafka: FakeKafka, states: list[str], types: list[str]
) -> None:
    async def test() -> None:
        async with Cluster(kafka.bootstrap) as cluster:
            with pytest.raises(InvalidArgument, match=r"no such (state|type): [Ss]leepy; use one of "):
                await list_groups(cluster, states, types)

    run(kafka, test())
    assert kafka.of(ListGroupsRequest) == []


def test_groups_of_all_coordinators_are_listed_once_they_are_loaded(kafka: FakeKafka) -> None:
    loading = ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    loads: list[int] = []

    def listed(request: ListGroupsRequest) -> ListGroupsResponse:
        node_id = kafka.received[-1].node_id
        if node_id == 2 and len(loads) < 3:
            loads.append(node_id)
            return loading
        return ListGroupsResponse(groups=[ListedGroup(group_id=f"g{4 - node_id}", group_state="Stable")])

    kafka.script(ListGroupsRequest, *[listed] * 6)

    async def test() -> list[tuple[str, str, int]]:
        async with Cluster(kafka.bootstrap) as cluster:
            return [(row.group, row.type, row.coordinator) for row in await list_groups(cluster)]

    assert run(kafka, test()) == [("g1", "classic", 3), ("g2", "classic", 2), ("g3", "classic", 1)]


def test_a_share_group_is_described_with_its_members_and_start_offsets(kafka: FakeKafka) -> None:
    kafka.leaders["t"] = [2]
    absent = ErrorCode.GROUP_ID_NOT_FOUND
    kafka.script(ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse(groups=[ConsumerGroup(error_code=absent)]))
    kafka.script(DescribeGroupsRequest, DescribeGroupsResponse(groups=[DescribedGroup(error_code=absent)]))
    owned = shares.TopicPartitions(topic_name="t", partitions=[0])
    member = shares.Member(member_id="m", client_id="app", assignment=shares.Assignment(topic_partitions=[owned]))
    described = shares.DescribedGroup(group_id="g", group_state="Stable", group_epoch=3, members=[member])
    kafka.script(shares.ShareGroupDescribeRequest, shares.ShareGroupDescribeResponse(groups=[described]))
    row = DescribeShareGroupOffsetsResponsePartition(partition_index=0, start_offset=4)
    topic = DescribeShareGroupOffsetsResponseTopic(topic_name="t", partitions=[row])
    group = DescribeShareGroupOffsetsResponseGroup(group_id="g", topics=[topic])
    kafka.script(DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsResponse(groups=[group]))

    def ends(request: ListOffsetsRequest) -> ListOffsetsResponse:
        end = ListOffsetsPartitionResponse(partition_index=0, offset=6 if request.isolation_level else 9)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[end])])

    kafka.script(ListOffsetsRequest, *[ends] * 2)

    async def test() -> None:
        async with Cluster(kafka.bootstrap) as cluster:
            found = await describe_group(cluster, "g")
        assert (found.type, found.state, found.epoch, found.members[0].client_id) == ("share", "Stable", 3, "app")
        [partition] = found.partitions
        assert (partition.committed, partition.stable_lag, partition.lag, partition.member_id) == (4, 2, 5, "m")

    run(kafka, test())


def test_a_streams_group_is_described_with_the_inputs_of_its_active_tasks(kafka: FakeKafka) -> None:
    kafka.leaders.update({"a": [2, 2], "b": [2], "re": [2, 2]})
    absent = ErrorCode.GROUP_ID_NOT_FOUND
    kafka.script(ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse(groups=[ConsumerGroup(error_code=absent)]))
    kafka.script(DescribeGroupsRequest, DescribeGroupsResponse(groups=[DescribedGroup(error_code=absent)]))
    refused = shares.DescribedGroup(error_code=absent)
    kafka.script(shares.ShareGroupDescribeRequest, shares.ShareGroupDescribeResponse(groups=[refused]))
    first = streams.Subtopology(subtopology_id="0", source_topics=["a", "b"])
    second = streams.Subtopology(subtopology_id="1", repartition_source_topics=[streams.TopicInfo(name="re")])
    tasks = streams.Assignment(
        active_tasks=[streams.TaskIds("0", [0, 1]), streams.TaskIds("1", [1])],
        standby_tasks=[streams.TaskIds("1", [0])],
    )
    member = streams.Member(member_id="m", member_epoch=4, client_id="app", assignment=tasks)
    topology = streams.Topology(subtopologies=[first, second])
    described = streams.DescribedGroup(
        group_id="g", group_state="Stable", group_epoch=4, topology=topology, members=[member]
    )
    kafka.script(streams.StreamsGroupDescribeRequest, streams.StreamsGroupDescribeResponse(groups=[described]))
    committed = OffsetFetchResponseTopics(
        name="a", partitions=[OffsetFetchResponsePartitions(partition_index=0, committed_offset=4)]
    )
    kafka.script(
        OffsetFetchRequest, OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=[committed])])
    )

    def ends(request: ListOffsetsRequest) -> ListOffsetsResponse:
        topics = [
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(partition_index=row.partition_index, offset=9)
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return ListOffsetsResponse(topics=topics)

    kafka.script(ListOffsetsRequest, *[ends] * 2)

    async def test() -> None:
        async with Cluster(kafka.bootstrap) as cluster:
            found = await describe_group(cluster, "g")
        assert (found.type, found.state, found.epoch, found.assignor) == ("streams", "Stable", 4, "")
        assert [row.assignment for row in found.members] == [{"a": [0, 1], "b": [0, 1], "re": [1]}]
        rows = [(row.topic, row.partition, row.committed, row.lag, row.member_id) for row in found.partitions]
        assert rows == [
            ("a", 0, 4, 5, "m"),
            ("a", 1, None, None, "m"),
            ("b", 0, None, None, "m"),
            ("re", 1, None, None, "m"),
        ]

    run(kafka, test())


def test_members_of_listed_groups_are_requested_once_per_coordinator_and_type(kafka: FakeKafka) -> None:
    member = shares.Member(member_id="m")
    kafka.script(
        shares.ShareGroupDescribeRequest,
        shares.ShareGroupDescribeResponse(groups=[shares.DescribedGroup(group_id="s", members=[member])]),
    )
    kafka.script(
        ConsumerGroupDescribeRequest,
        ConsumerGroupDescribeResponse(
            groups=[
                ConsumerGroup(group_id="a", group_epoch=5),
                ConsumerGroup(group_id="b", error_code=ErrorCode.GROUP_ID_NOT_FOUND),
            ]
        ),
    )

    async def test() -> dict[str, tuple[str, int | None, int]]:
        rows = [GroupListing(name, kind, "", "Stable", 2) for name, kind in (("a", "consumer"), ("b", "consumer"))]
        rows += [GroupListing("s", "share", "", "Stable", 2), GroupListing("x", "unknown", "", "Stable", 2)]
        async with Cluster(kafka.bootstrap) as cluster:
            found = await members_of_groups(FanOut(cluster), rows)
        return {name: (group.type, group.epoch, len(group.members)) for name, group in found.items()}

    assert run(kafka, test()) == {"a": ("consumer", 5, 0), "s": ("share", 0, 1)}
    [received] = kafka.of(ConsumerGroupDescribeRequest)
    assert (received.node_id, received.request.group_ids) == (2, ["a", "b"])


def test_lag_of_a_group_is_unknown_if_no_leader_returned_an_offset() -> None:
    group = GroupListing("g", "consumer", "consumer", "Empty", 2)
    committed = {TopicPartition("t", index): CommittedOffset(4, "") for index in range(2)}
    for ends, expected in (
        ({}, (None, None)),
        ({("t", 0): (None, 9)}, (5, None)),
        ({("t", 0): (6, 9), ("t", 1): (4, 4)}, (5, 2)),
    ):
        [row] = with_lag([group], {"g": committed}, ends)
        assert (row.lag, row.stable_lag) == expected
    [row] = with_lag([group], {}, {})
    assert (row.lag, row.stable_lag) == (None, None)
