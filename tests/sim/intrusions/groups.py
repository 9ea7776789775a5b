"""Attempts of the hostile tenant on the groups and the transactions of other tenants."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from odradek.protocol.messages import (
    add_partitions_to_txn,
    join_group,
    leave_group,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
    txn_offset_commit,
)
from odradek.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from odradek.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from odradek.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.delete_groups import DeleteGroupsRequest
from odradek.protocol.messages.describe_groups import DescribeGroupsRequest
from odradek.protocol.messages.describe_transactions import DescribeTransactionsRequest
from odradek.protocol.messages.end_txn import EndTxnRequest
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.heartbeat import HeartbeatRequest
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest
from odradek.protocol.messages.list_groups import ListGroupsRequest
from odradek.protocol.messages.list_transactions import ListTransactionsRequest
from tests.sim.intrusions.attempt import GROUP, ID, TIMEOUT_MS, TOPIC, Attempt, Target
from tests.sim.options.tenants import MALLORY_GROUP, MALLORY_ID, MALLORY_TOPIC
from tests.sim.workloads.client import GROUP_KEY, TRANSACTION_KEY

if TYPE_CHECKING:
    from odradek.protocol.schema import Message

OTHER_IDENTITY: Final = (47, 48, 49, 51, 59, 67, 90)
"""Errors of a request with the producer id of another transactional id."""


def _commit(group: str, topic: str, member_id: str) -> "Message":
    rows = [
        offset_commit.OffsetCommitRequestTopic(
            topic, partitions=[offset_commit.OffsetCommitRequestPartition(0, 999_999)]
        )
    ]
    return offset_commit.OffsetCommitRequest(group, 1 if member_id else -1, member_id, topics=rows)


def _offset_fetch(group: str, topic: str) -> "Message":
    rows = [offset_fetch.OffsetFetchRequestTopics(topic, partition_indexes=[0])]
    return offset_fetch.OffsetFetchRequest(groups=[offset_fetch.OffsetFetchRequestGroup(group, topics=rows)])


def _offset_delete(target: Target) -> "Message":
    rows = [offset_delete.OffsetDeleteRequestTopic(target.topic, [offset_delete.OffsetDeleteRequestPartition(0)])]
    return offset_delete.OffsetDeleteRequest(target.group, rows)


def _join(target: Target) -> "Message":
    protocols = [join_group.JoinGroupRequestProtocol("range", b"")]
    return join_group.JoinGroupRequest(target.group, 10_000, 10_000, target.member_id, None, "consumer", protocols)


def _sync(target: Target) -> "Message":
    rows = [sync_group.SyncGroupRequestAssignment(target.member_id, b"")]
    return sync_group.SyncGroupRequest(target.group, 1, target.member_id, None, "consumer", "range", rows)


def _leave(target: Target) -> "Message":
    return leave_group.LeaveGroupRequest(target.group, members=[leave_group.MemberIdentity(target.member_id)])


def _consumer_beat(group: str, topic: str, member_id: str) -> "Message":
    return ConsumerGroupHeartbeatRequest(
        group, member_id, 0, rebalance_timeout_ms=5000, subscribed_topic_names=[topic], topic_partitions=[]
    )


def _txn_commit(target: Target, transactional_id: str, group: str) -> "Message":
    rows = [txn_offset_commit.TxnOffsetCommitRequestTopic(target.topic, partitions=[_txn_row()])]
    return txn_offset_commit.TxnOffsetCommitRequest(
        transactional_id, group, target.producer_id, target.producer_epoch, topics=rows
    )


def _txn_row() -> txn_offset_commit.TxnOffsetCommitRequestPartition:
    return txn_offset_commit.TxnOffsetCommitRequestPartition(0, 999_999)


def _add_partitions(target: Target, transactional_id: str, topic: str) -> "Message":
    return add_partitions_to_txn.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=target.producer_id,
        v3_and_below_producer_epoch=target.producer_epoch,
        v3_and_below_topics=[add_partitions_to_txn.AddPartitionsToTxnTopic(topic, [0])],
    )


ON_GROUPS: Final[Mapping[str, Attempt]] = {
    "OffsetCommit": Attempt(lambda t: _commit(t.group, t.topic, t.member_id), (7, 9), GROUP),
    "OffsetCommit of an own group": Attempt(lambda t: _commit(MALLORY_GROUP, t.topic, ""), (7, 9), TOPIC),
    "OffsetFetch": Attempt(lambda t: _offset_fetch(t.group, t.topic), (8, 9), GROUP),
    "OffsetFetch of an own group": Attempt(lambda t: _offset_fetch(MALLORY_GROUP, t.topic), (8, 9), TOPIC),
    "OffsetDelete": Attempt(_offset_delete, (0,), GROUP),
    "DescribeGroups": Attempt(lambda t: DescribeGroupsRequest([t.group]), (4, 5), GROUP),
    "DeleteGroups": Attempt(lambda t: DeleteGroupsRequest([t.group]), (1, 2), GROUP),
    "JoinGroup": Attempt(_join, (5, 9), GROUP),
    "SyncGroup": Attempt(_sync, (5,), GROUP),
    "Heartbeat": Attempt(lambda t: HeartbeatRequest(t.group, 1, t.member_id), (3, 4), GROUP),
    "LeaveGroup": Attempt(_leave, (4, 5), GROUP),
    "ConsumerGroupHeartbeat": Attempt(lambda t: _consumer_beat(t.group, MALLORY_TOPIC, t.member_id), (0, 1), GROUP),
    "ConsumerGroupHeartbeat with a topic": Attempt(lambda t: _consumer_beat(MALLORY_GROUP, t.topic, "m"), (1,), TOPIC),
    "ConsumerGroupDescribe": Attempt(lambda t: ConsumerGroupDescribeRequest([t.group]), (0, 1), GROUP),
    "TxnOffsetCommit": Attempt(lambda t: _txn_commit(t, t.transactional_id, t.group), (3, 4), ID),
    "TxnOffsetCommit of an own transaction": Attempt(lambda t: _txn_commit(t, MALLORY_ID, t.group), (3, 5), GROUP),
    "AddPartitionsToTxn": Attempt(lambda t: _add_partitions(t, t.transactional_id, t.topic), (0, 3), ID),
    "AddPartitionsToTxn of an own transaction": Attempt(lambda t: _add_partitions(t, MALLORY_ID, t.topic), (3,), TOPIC),
    "AddOffsetsToTxn": Attempt(
        lambda t: AddOffsetsToTxnRequest(t.transactional_id, t.producer_id, t.producer_epoch, t.group), (3,), ID
    ),
    "AddOffsetsToTxn of an own transaction": Attempt(
        lambda t: AddOffsetsToTxnRequest(MALLORY_ID, t.producer_id, t.producer_epoch, t.group), (3,), GROUP
    ),
    "EndTxn": Attempt(
        lambda t: EndTxnRequest(t.transactional_id, t.producer_id, t.producer_epoch, bool(t.seed % 2)), (3, 5), ID
    ),
    "EndTxn with another producer id": Attempt(
        lambda t: EndTxnRequest(MALLORY_ID, t.producer_id, t.producer_epoch, bool(t.seed % 2)),
        (3, 5),
        OTHER_IDENTITY,
        compared=False,
    ),
    "InitProducerId": Attempt(lambda t: InitProducerIdRequest(t.transactional_id, TIMEOUT_MS), (3, 5), ID),
    "InitProducerId with another producer id": Attempt(
        lambda t: InitProducerIdRequest(MALLORY_ID, TIMEOUT_MS, t.producer_id, t.producer_epoch),
        (3, 5),
        None,
        compared=False,
    ),
    "DescribeTransactions": Attempt(lambda t: DescribeTransactionsRequest([t.transactional_id]), (0,), ID),
    "ListTransactions": Attempt(lambda _: ListTransactionsRequest(), (0, 1), None),
    "ListTransactions of a producer id": Attempt(lambda t: ListTransactionsRequest([], [t.producer_id]), (0, 1), None),
    "ListGroups": Attempt(lambda _: ListGroupsRequest(), (3, 5), None),
    "FindCoordinator of a group": Attempt(
        lambda t: FindCoordinatorRequest(key_type=GROUP_KEY, coordinator_keys=[t.group]), (4,), GROUP
    ),
    "FindCoordinator of a transactional id": Attempt(
        lambda t: FindCoordinatorRequest(key_type=TRANSACTION_KEY, coordinator_keys=[t.transactional_id]), (4,), ID
    ),
}
"""Requests by name."""
