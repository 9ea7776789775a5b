"""DescribeProducers: list the producer states of partitions (KIP-664).

Behavior:
* Each producer has its epoch, last sequence number, last timestamp, and the first offset of its open transaction if it
  has one. Operators use it to find the transaction that holds back the last stable offset.
* Every replica of the partition responds, not only the leader.

Errors:
* Per partition: INVALID_TOPIC_EXCEPTION, TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION,
  NOT_LEADER_OR_FOLLOWER.
"""

from typing import Final

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.requests.api import Api, split_by
from odradek.cluster.authorizer import AclOperation, ResourceType
from odradek.cluster.metadata import topic_names
from odradek.protocol.errors import ERRORS, ErrorCode, Refusal
from odradek.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


def handle(context: BrokerRequestContext, request: DescribeProducersRequest) -> DescribeProducersResponse:
    topics: list[TopicResponse] = []
    for topic in request.topics:
        allowed = context.allowed(AclOperation.READ, ResourceType.TOPIC, topic.name)
        partitions: list[PartitionResponse] = []
        for index in topic.partition_indexes:
            try:
                if not topic_names.is_valid(topic.name):
                    raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION)
                if not allowed:
                    raise Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                partitions.append(PartitionResponse(index, active_producers=_producers(context, topic.name, index)))
            except Refusal as refusal:
                partitions.append(_refused(index, refusal.error))
        topics.append(TopicResponse(topic.name, partitions))
    return DescribeProducersResponse(topics=topics)


def refuse(
    context: BrokerRequestContext, request: DescribeProducersRequest, error: ErrorCode, message: str | None
) -> DescribeProducersResponse:
    topics = [
        TopicResponse(topic.name, [_refused(index, error) for index in topic.partition_indexes])
        for topic in request.topics
    ]
    return DescribeProducersResponse(topics=topics)


def _refused(index: int, error: ErrorCode) -> PartitionResponse:
    return PartitionResponse(index, error, ERRORS[error].message)


def _producers(context: BrokerRequestContext, topic: str, index: int) -> list[ProducerState]:
    partition = context.broker.partitions.find(topic, index)
    partition.check_readable()
    return [
        ProducerState(
            state.producer_id,
            state.producer_epoch,
            state.last_sequence,
            state.last_timestamp,
            state.coordinator_epoch,
            state.current_txn_start_offset,
        )
        for state in partition.log.producers.active()
    ]


API: Final = Api(
    key=DescribeProducersRequest.API_KEY,
    min_version=0,
    max_version=0,
    request=DescribeProducersRequest,
    response=DescribeProducersResponse,
    handle=handle,
    refuse=refuse,
    splitting=split_by(("topics", "partition_indexes"), ("topics", "partitions")),
    acl="READ on each topic",
)
