"""Samples of scripted brokers: history of charts, and changes of groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from odradek.client import Cluster
from odradek.console.model.observer import Observer
from odradek.console.settings import Settings
from odradek.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from odradek.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from odradek.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from odradek.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from odradek.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from tests.support.fake_kafka import FakeKafka, Fault, run, virtual_loop

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def kafka() -> Iterator[FakeKafka]:
    """One scripted broker on virtual time. The test starts it by `run`."""
    with virtual_loop() as loop:
        yield FakeKafka(loop, 1)


def offsets(request: ListOffsetsRequest) -> ListOffsetsResponse:
    row = ListOffsetsPartitionResponse(partition_index=0, offset=3 if request.isolation_level else 9)
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[row])])


def test_samples_have_gaps_where_a_broker_does_not_respond_and_record_changes_of_groups(kafka: FakeKafka) -> None:
    kafka.leaders["t"] = [1]
    groups = [ListedGroup(group_id="g", group_state="Stable", group_type="consumer")]
    kafka.script(ListOffsetsRequest, *[offsets] * 6)
    kafka.script(ListGroupsRequest, *[ListGroupsResponse(groups=groups)] * 2, Fault.SILENCE)
    kafka.script(ListTransactionsRequest, *[ListTransactionsResponse()] * 3)
    kafka.script(OffsetFetchRequest, *[OffsetFetchResponse()] * 2)
    epochs = [DescribedGroup(group_id="g", group_state="Stable", group_epoch=epoch) for epoch in (4, 5)]
    kafka.script(ConsumerGroupDescribeRequest, *[ConsumerGroupDescribeResponse(groups=[each]) for each in epochs])

    async def test() -> Observer:
        settings = Settings(kafka.bootstrap)
        observer = Observer(Cluster(kafka.bootstrap, settings.client_settings(None)))
        for _ in range(3):
            await observer.sample()
        observer.close()
        return observer

    found = run(kafka, test())
    assert found.history.rows("held_back") == {"t": [6, 6, 6]}
    assert found.history.rows("transactions")["Ongoing"] == [0, 0, 0]
    assert [each.text for each in found.groups.changes("g")] == ["epoch 4 → 5"]
    assert found.error
