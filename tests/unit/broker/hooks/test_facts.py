from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from odradek.broker.hooks.facts import as_json, names_in, partitions_in
from odradek.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from odradek.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.delete_groups import DeleteGroupsRequest
from odradek.protocol.messages.describe_groups import DescribeGroupsRequest
from odradek.protocol.messages.describe_transactions import DescribeTransactionsRequest
from odradek.protocol.messages.end_txn import EndTxnRequest
from odradek.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.join_group import JoinGroupRequest
from odradek.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from odradek.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitRequestTopic

if TYPE_CHECKING:
    from odradek.protocol.schema import Message

ORDERS = UUID(int=7)
PRODUCE = ProduceRequest(
    transactional_id="shop",
    topic_data=[TopicProduceData(name="orders", partition_data=[PartitionProduceData(records=b"12345")])],
)


@pytest.mark.parametrize(
    ("request_", "names"),
    [
        (EndTxnRequest("shop"), ([], [], ["shop"])),
        (PRODUCE, (["orders"], [], ["shop"])),
        (ProduceRequest(topic_data=[TopicProduceData(topic_id=ORDERS)]), (["orders"], [], [])),
        (ProduceRequest(topic_data=[TopicProduceData(topic_id=UUID(int=8))]), ([], [], [])),
        (
            FetchRequest(topics=[FetchTopic(topic="a"), FetchTopic(topic="b"), FetchTopic(topic="a")]),
            (["a", "b"], [], []),
        ),
        (MetadataRequest(topics=[MetadataRequestTopic(name="orders")]), (["orders"], [], [])),
        (MetadataRequest(topics=None), ([], [], [])),
        (CreateTopicsRequest(topics=[CreatableTopic(name="orders")]), (["orders"], [], [])),
        (JoinGroupRequest(group_id="g"), ([], ["g"], [])),
        (DeleteGroupsRequest(groups_names=["g", "h"]), ([], ["g", "h"], [])),
        (DescribeGroupsRequest(groups=["g", "h"]), ([], ["g", "h"], [])),
        (OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g")]), ([], ["g"], [])),
        (DescribeTransactionsRequest(transactional_ids=["shop", "b"]), ([], [], ["shop", "b"])),
        (OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t")]), (["t"], ["g"], [])),
        (
            TxnOffsetCommitRequest(
                transactional_id="shop", group_id="g", topics=[TxnOffsetCommitRequestTopic(name="t")]
            ),
            (["t"], ["g"], ["shop"]),
        ),
        (FindCoordinatorRequest(key="g", key_type=0), ([], ["g"], [])),
        (FindCoordinatorRequest(key_type=1, coordinator_keys=["shop"]), ([], [], ["shop"])),
        (
            AddPartitionsToTxnRequest(
                transactions=[
                    AddPartitionsToTxnTransaction(
                        transactional_id="shop", topics=[AddPartitionsToTxnTopic(name="orders", partitions=[0])]
                    )
                ]
            ),
            (["orders"], [], ["shop"]),
        ),
    ],
)
def test_names_in_a_request(request_: Message, names: tuple[list[str], list[str], list[str]]) -> None:
    found = names_in(request_, {ORDERS: "orders"}.get)
    assert (found["topics"], found["groups"], found["transactional_ids"]) == names


@pytest.mark.parametrize(
    ("request_", "partitions"),
    [
        (PRODUCE, [("orders", 0)]),
        (
            FetchRequest(topics=[FetchTopic(topic_id=ORDERS, partitions=[FetchPartition(partition=2)])]),
            [("orders", 2)],
        ),
        (
            FetchRequest(topics=[FetchTopic(topic_id=UUID(int=8), partitions=[FetchPartition(partition=2)])]),
            [],
        ),
        (
            OffsetCommitRequest(
                group_id="g",
                topics=[
                    OffsetCommitRequestTopic(name="t", partitions=[OffsetCommitRequestPartition(partition_index=1)]),
                    OffsetCommitRequestTopic(name="u", partitions=[OffsetCommitRequestPartition(partition_index=2)]),
                ],
            ),
            [("t", 1), ("u", 2)],
        ),
        (
            AddPartitionsToTxnRequest(
                transactions=[
                    AddPartitionsToTxnTransaction(
                        transactional_id="shop", topics=[AddPartitionsToTxnTopic(name="orders", partitions=[0, 3])]
                    )
                ]
            ),
            [("orders", 0), ("orders", 3)],
        ),
        (EndTxnRequest("shop"), []),
    ],
)
def test_partitions_in_a_request(request_: Message, partitions: list[tuple[str, int]]) -> None:
    assert partitions_in(request_, {ORDERS: "orders"}.get) == partitions


def test_fields_as_json_have_the_size_of_records_in_place_of_them() -> None:
    fields = as_json(PRODUCE)
    assert fields["transactional_id"] == "shop"
    [topic] = fields["topic_data"]
    assert topic["partition_data"] == [{"index": 0, "records": {"bytes": 5}}]
    assert as_json(FetchTopic(topic_id=ORDERS))["topic_id"] == str(ORDERS)
