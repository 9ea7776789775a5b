"""Status of a cluster with a fenced broker and a broker that does not respond."""

from __future__ import annotations

import pytest

from odradek.client import BrokerDescription, Cluster, PartitionDescription, Settings, cluster_status
from odradek.client.admin.status import with_log_dirs
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from odradek.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from odradek.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from odradek.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from odradek.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from odradek.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from odradek.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from tests.support.fake_kafka import FakeKafka, run

TOPIC, GROUP = "t", "g"


def log_dirs(*indexes: int, failed: str = "") -> DescribeLogDirsResponse:
    """Return a response with these partitions, 100 bytes each, and with a directory that failed."""
    sizes = [DescribeLogDirsPartition(partition_index=index, partition_size=100) for index in indexes]
    results = [DescribeLogDirsResult(log_dir="/data", topics=[DescribeLogDirsTopic(name=TOPIC, partitions=sizes)])]
    if failed:
        results.append(DescribeLogDirsResult(log_dir=failed, error_code=ErrorCode.KAFKA_STORAGE_ERROR))
    return DescribeLogDirsResponse(results=results)


def offsets(request: ListOffsetsRequest) -> ListOffsetsResponse:
    indexes = [partition.partition_index for partition in request.topics[0].partitions]
    rows = [ListOffsetsPartitionResponse(partition_index=index, offset=8) for index in indexes]
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=TOPIC, partitions=rows)])


def test_status_continues_without_brokers_that_are_fenced_or_do_not_respond(kafka: FakeKafka) -> None:
    kafka.leaders[TOPIC] = [1, 3]
    brokers = [DescribeClusterBroker(broker_id=node_id, is_fenced=node_id == 2) for node_id in (3, 2, 1)]
    kafka.script(DescribeClusterRequest, DescribeClusterResponse(brokers=brokers))
    kafka.script(ListOffsetsRequest, *[offsets] * 4)
    kafka.script(ListTransactionsRequest, *[ListTransactionsResponse()] * 2)
    kafka.script(ListGroupsRequest, ListGroupsResponse(groups=[ListedGroup(group_id=GROUP)]), ListGroupsResponse())
    committed = OffsetFetchResponsePartitions(partition_index=0, committed_offset=5)
    topics = [OffsetFetchResponseTopics(name=TOPIC, partitions=[committed])]
    groups = [OffsetFetchResponseGroup(group_id=GROUP, topics=topics)]
    kafka.script(OffsetFetchRequest, OffsetFetchResponse(groups=groups))
    kafka.script(DescribeLogDirsRequest, log_dirs(0, 1))
    kafka.script(DescribeQuorumRequest, DescribeQuorumResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))

    async def test() -> None:
        async with Cluster(kafka.bootstrap, Settings(request_timeout_s=5.0)) as cluster:
            kafka.stop(3)
            status = await cluster_status(cluster)
        assert [(broker.node_id, broker.fenced) for broker in status.brokers] == [(1, False), (2, True), (3, False)]
        assert list(status.unreachable) == [3]
        assert [broker.log_bytes for broker in status.brokers] == [200, None, None]
        assert status.under_replicated == ["t-0", "t-1"]
        assert [(row.leader, row.high_watermark) for row in status.partitions] == [(1, 8), (3, None)]
        assert [(group.group, group.lag, group.stable_lag) for group in status.groups] == [(GROUP, 3, 3)]
        assert (status.transactions, status.controller, status.voters) == ([], None, None)

    run(kafka, test())


@pytest.mark.parametrize(
    ("first", "second", "offline"),
    [
        (log_dirs(0), log_dirs(0), ["t-1"]),
        (log_dirs(0), log_dirs(0, 1), []),  # the broker had not yet created the replica
        (log_dirs(failed="/data2"), log_dirs(failed="/data2"), ["t-0", "t-1"]),
    ],
)
def test_partition_that_a_broker_twice_does_not_serve_is_offline(
    kafka: FakeKafka, first: DescribeLogDirsResponse, second: DescribeLogDirsResponse, offline: list[str]
) -> None:
    kafka.leaders[TOPIC] = [1, 1]
    kafka.script(DescribeLogDirsRequest, first, second)
    partitions = [PartitionDescription(TOPIC, index, False, 1, 1, [1], [1], 0, 0, 0, 0) for index in range(2)]

    async def test() -> None:
        async with Cluster(kafka.bootstrap) as cluster:
            (broker,) = await with_log_dirs(
                cluster, [BrokerDescription(1, "a", 1, None, fenced=False)], {1}, partitions
            )
        assert broker.offline_partitions == offline
        assert broker.offline_log_dirs == [result.log_dir for result in first.results if result.error_code]

    run(kafka, test())
