"""TxnOffsetCommit: v0-5

Behavior:
* As with Produce the coordinator of the transaction is asked first (KIP-890): up to v4 whether the partition of
  `__consumer_offsets` was added, from v5 on to add it. What the log gave out before that goes along to the append: a
  transaction that was ended in between is refused there (KAFKA-15784).
* The offsets count from the commit of the transaction on. Until then OffsetFetch says what was there before, or
  UNSTABLE_OFFSET_COMMIT to who requires stable offsets.
* Topics and partitions that do not exist are answered each by itself, whatever is said to the others.

Version notes:
* v2 leader epoch; COORDINATOR_LOAD_IN_PROGRESS, which v0-1 get as COORDINATOR_NOT_AVAILABLE · v3 member, generation and
  instance of the consumer (KIP-447); flexible · v4 TRANSACTION_ABORTABLE, which v0-3 get as INVALID_TXN_STATE · v5 adds
  the partition to the transaction itself (KIP-890)
"""

from collections.abc import Awaitable
from dataclasses import replace
from typing import Final

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.coordinators.group_requests import (
    allowed_topics,
    caller_of,
    check_group,
    joined,
    split_existing,
    topic_error,
)
from odradek.broker.coordinators.txn_verification import Outcome, Terms, TransactionalBatch
from odradek.broker.requests.api import Api
from odradek.broker.requests.error_map import wire_error
from odradek.cluster.authorizer import AclOperation, ResourceType
from odradek.protocol.batch import NO_SEQUENCE
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.internal_topics import CONSUMER_OFFSETS
from odradek.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

IMPLICIT_ADD_MIN_VERSION: Final = 5

_E = ErrorCode
_TOLD: Final = {
    _E.PRODUCER_FENCED: _E.INVALID_PRODUCER_EPOCH,
    _E.CLUSTER_AUTHORIZATION_FAILED: _E.INVALID_TXN_STATE,
    # Clients come again to the same coordinator with it, without looking for another one.
    _E.NETWORK_EXCEPTION: _E.COORDINATOR_LOAD_IN_PROGRESS,
    _E.UNKNOWN_TOPIC_OR_PARTITION: _E.COORDINATOR_NOT_AVAILABLE,
    _E.NOT_ENOUGH_REPLICAS: _E.COORDINATOR_NOT_AVAILABLE,
    _E.REQUEST_TIMED_OUT: _E.COORDINATOR_NOT_AVAILABLE,
    _E.NOT_LEADER_OR_FOLLOWER: _E.NOT_COORDINATOR,
    _E.KAFKA_STORAGE_ERROR: _E.NOT_COORDINATOR,
}
"""What the log or the coordinator of the transaction says -> what the client is told."""


def handle(
    context: BrokerRequestContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse | Awaitable[TxnOffsetCommitResponse]:
    if not context.allowed(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        raise Refusal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    check_group(context, AclOperation.READ, request.group_id)
    allowed = allowed_topics(context, AclOperation.READ, [topic.name for topic in request.topics])
    refused: list[TxnOffsetCommitResponseTopic] = []
    wanted: list[TxnOffsetCommitRequestTopic] = []
    for topic in request.topics:
        error = topic_error(context.node.metadata.image, allowed, topic.name)
        there, others = split_existing(context.node.metadata.image, topic.name, topic.partitions)
        if error is not ErrorCode.NONE:
            refused.append(_refused(topic.name, topic.partitions, error))
            continue
        if others:
            refused.append(_refused(topic.name, others, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        if there:
            wanted.append(replace(topic, partitions=there))
    if not wanted:
        return TxnOffsetCommitResponse(topics=joined(refused, (), _name))
    return _committed(context, replace(request, topics=wanted), _verified(context, request), refused)


def refuse(
    context: BrokerRequestContext, request: TxnOffsetCommitRequest, error: ErrorCode, message: str | None
) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(topics=[_refused(topic.name, topic.partitions, error) for topic in request.topics])


def _verified(
    context: BrokerRequestContext, request: TxnOffsetCommitRequest
) -> "list[Outcome] | Awaitable[list[Outcome]]":
    if not request.group_id:
        return [Refusal(ErrorCode.INVALID_GROUP_ID)]
    try:
        partition = context.broker.partitions.find(
            CONSUMER_OFFSETS, context.broker.groups.partition_of(request.group_id)
        )
    except Refusal as refusal:
        return [refusal]
    batch = TransactionalBatch(partition, request.producer_id, request.producer_epoch, NO_SEQUENCE)
    terms = Terms(context.api_version >= IMPLICIT_ADD_MIN_VERSION, _refusal)
    return context.broker.verifier.start(request.transactional_id, terms, [batch])


def _refusal(error: ErrorCode) -> Refusal:
    return Refusal(_TOLD.get(error, error))


async def _committed(
    context: BrokerRequestContext,
    request: TxnOffsetCommitRequest,
    verified: "list[Outcome] | Awaitable[list[Outcome]]",
    refused: list[TxnOffsetCommitResponseTopic],
) -> TxnOffsetCommitResponse:
    try:
        response = await _decided(context, request, verified)
    except Refusal as refusal:
        error = wire_error(context.api_key, context.api_version, refusal.error)
        response = refuse(context, request, error, refusal.message)
    return replace(response, topics=joined(refused, response.topics, _name))


def _name(topic: TxnOffsetCommitResponseTopic) -> str:
    return topic.name


async def _decided(
    context: BrokerRequestContext, request: TxnOffsetCommitRequest, verified: "list[Outcome] | Awaitable[list[Outcome]]"
) -> TxnOffsetCommitResponse:
    """Raises Refusal."""
    (outcome,) = verified if isinstance(verified, list) else await verified
    if isinstance(outcome, Refusal):
        raise _refusal(outcome.error)
    return await context.broker.groups.commit_offsets_in_transaction(request, caller_of(context), outcome)


def _refused(
    name: str, partitions: list[TxnOffsetCommitRequestPartition], error: ErrorCode
) -> TxnOffsetCommitResponseTopic:
    answers = [TxnOffsetCommitResponsePartition(partition.partition_index, error) for partition in partitions]
    return TxnOffsetCommitResponseTopic(name, answers)


API: Final = Api(
    key=28,
    min_version=0,
    max_version=5,
    request=TxnOffsetCommitRequest,
    response=TxnOffsetCommitResponse,
    handle=handle,
    refuse=refuse,
    acl="WRITE on the transactional id; READ on the group and on each topic",
)
