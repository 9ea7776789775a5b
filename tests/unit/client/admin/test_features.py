"""Features of a cluster, and registrations of its brokers."""

from __future__ import annotations

import pytest

from odradek.client import ClientError, Cluster, unregister_broker
from odradek.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from odradek.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from tests.support.fake_kafka import FakeKafka, run


def brokers(*, fenced: bool) -> DescribeClusterResponse:
    return DescribeClusterResponse(brokers=[DescribeClusterBroker(broker_id=3, host="h", port=1, is_fenced=fenced)])


async def unregister(kafka: FakeKafka, node_id: int) -> None:
    async with Cluster(kafka.bootstrap) as cluster:
        await unregister_broker(cluster, node_id)


def test_broker_that_is_not_fenced_is_not_unregistered(kafka: FakeKafka) -> None:
    kafka.script(DescribeClusterRequest, brokers(fenced=False))
    with pytest.raises(ClientError) as refused:
        run(kafka, unregister(kafka, 3))
    assert refused.value.problem == "broker 3 is not fenced, so it was not unregistered"
    assert "stop it" in refused.value.remedy
    assert kafka.of(UnregisterBrokerRequest) == []


@pytest.mark.parametrize("node_id", [3, 9], ids=["fenced", "unknown"])
def test_controller_decides_on_a_broker_that_is_fenced_or_unknown(kafka: FakeKafka, node_id: int) -> None:
    kafka.script(DescribeClusterRequest, brokers(fenced=True))
    kafka.script(UnregisterBrokerRequest, UnregisterBrokerResponse())
    run(kafka, unregister(kafka, node_id))
    assert [each.request.broker_id for each in kafka.of(UnregisterBrokerRequest)] == [node_id]
