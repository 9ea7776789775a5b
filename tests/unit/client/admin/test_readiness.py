"""Waits until all brokers serve and all replicas are in sync."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.client import ClientError, Cluster, wait_until_all_serve, wait_until_in_sync, wait_until_serving
from odradek.client.admin.readiness import READY_TIMEOUT_S, missing_items
from odradek.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    ResponsePartitionData,
    ResponseTopicData,
)
from odradek.protocol.messages.metadata import MetadataRequest
from tests.support.fake_kafka import FakeKafka, run

QUORUM = DescribeQuorumResponse(topics=[ResponseTopicData("__cluster_metadata", [ResponsePartitionData(leader_id=2)])])


def with_isr(kafka: FakeKafka, isr: list[int]) -> Any:
    """Return a step with metadata whose partitions have these in-sync replicas."""

    def respond(request: MetadataRequest) -> Any:
        response = kafka._metadata(request)
        for topic in response.topics:
            for partition in topic.partitions:
                partition.isr_nodes = isr
        return response

    return respond


def test_missing_brokers_leaders_and_replicas_are_named(kafka: FakeKafka) -> None:
    kafka.leaders = {"t": [1, -1], "u": [3]}
    kafka.script(MetadataRequest, with_isr(kafka, [1, 2, 3]), with_isr(kafka, [1]))

    async def test() -> list[str]:
        async with Cluster(kafka.bootstrap) as cluster:
            return missing_items(await cluster.fetch_metadata(None), 4, lambda replicas: replicas)

    assert run(kafka, test()) == [
        "only 3 of 4 brokers serve (1, 2, 3)", "t-0 lacks 2, 3", "t-1 lacks 2, 3", "u-0 lacks 2, 3",
    ]  # fmt: skip


@pytest.mark.parametrize(("isr", "serving"), [([1, 2, 3], True), ([1, 3], True), ([3], False)])
def test_a_cluster_serves_with_a_majority_of_replicas_and_is_in_sync_with_all(
    kafka: FakeKafka, isr: list[int], serving: bool
) -> None:
    kafka.leaders = {"t": [1]}
    kafka.script(MetadataRequest, with_isr(kafka, isr), with_isr(kafka, isr))
    kafka.script(DescribeQuorumRequest, QUORUM)
    run(kafka, wait_until_serving(kafka.bootstrap, 3))
    assert len(kafka.of(MetadataRequest)) == (2 if serving else 4)
    kafka.received.clear()
    kafka.script(MetadataRequest, with_isr(kafka, isr), with_isr(kafka, isr))
    kafka.script(DescribeQuorumRequest, QUORUM)
    assert run(kafka, wait_until_in_sync(kafka.bootstrap, 3)) == 2
    assert len(kafka.of(MetadataRequest)) == (2 if len(isr) == 3 else 4)


def test_brokers_that_start_late_are_awaited_and_the_first_address_is_preferred(kafka: FakeKafka) -> None:
    kafka.script(DescribeQuorumRequest, QUORUM)

    async def test() -> int | None:
        kafka.stop(1)
        kafka.script(MetadataRequest, *[with_isr(kafka, [])] * 4)
        kafka.leaders = {"t": [-1]}

        def complete() -> None:
            kafka.leaders = {}
            kafka.scripts[MetadataRequest].clear()
            kafka.loop.create_task(kafka.start(1))

        kafka.loop.call_later(0.08, complete)
        return await wait_until_in_sync(kafka.bootstrap, 3)

    assert run(kafka, test()) == 2
    assert kafka.of(DescribeQuorumRequest)[0].node_id == 1


def test_a_broker_with_old_metadata_is_awaited(kafka: FakeKafka) -> None:
    """A broker that was isolated knows neither its fencing nor the later elections."""
    views = {1: [(1, 3), (1, 3), (2, 2), (2, 2)], 2: [], 3: []}

    def respond(request: MetadataRequest) -> Any:
        remaining = views[kafka.of(MetadataRequest)[-1].node_id]
        leader, brokers = remaining.pop(0) if remaining else (2, 3)
        kafka.leaders = {"t": [leader]}
        response = kafka._metadata(request)
        response.brokers = response.brokers[:brokers]
        return response

    kafka.script(MetadataRequest, *[respond] * 50)
    run(kafka, wait_until_all_serve([kafka.address(node_id) for node_id in (1, 2, 3)]))
    assert views[1] == []
    last = kafka.of(MetadataRequest)[-6:]
    assert {received.node_id for received in last} == {1, 2, 3}


def test_a_cluster_that_stays_incomplete_fails_with_the_reason(kafka: FakeKafka) -> None:
    async def test() -> None:
        for node_id in (1, 2, 3):
            kafka.stop(node_id)
        with pytest.raises(
            ClientError, match=r"not in sync within 120 s: cannot connect to a broker at kafka.sim:9091"
        ):
            await wait_until_serving(kafka.bootstrap, 3)
        assert READY_TIMEOUT_S <= kafka.loop.time() < READY_TIMEOUT_S + 10

    run(kafka, test())
