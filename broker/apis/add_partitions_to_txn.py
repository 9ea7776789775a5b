"""AddPartitionsToTxn: v0-5

Behavior:
* v0-3 come from clients and name one transaction. All partitions are added or none: if one is refused (not allowed,
  internal topic, unknown), the good ones are told OPERATION_NOT_ATTEMPTED.
* v4-5 come from brokers (CLUSTER_ACTION, and a listener for brokers) and name many transactions, each judged by itself;
  `VerifyOnly` asks whether the partitions have been added, and adds nothing.
* A transaction that waits for the markers of its predecessor is waited for, see EndTxn; for a broker not so long, since the
  other transactions of its request wait with it.

Version notes:
* v2 PRODUCER_FENCED, which v0-1 get as INVALID_PRODUCER_EPOCH (KIP-588) · v3 flexible · v4 batches, VerifyOnly, an error
  for the whole request (KIP-890) · v5 TRANSACTION_ABORTABLE may be answered
* v4-5 add on behalf of producers of the second protocol generation, which is stored with the transaction
"""

from asyncio import Future
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.requests.api import Api
from odradek.broker.requests.error_map import wire_error
from odradek.broker.requests.futures import when_done
from odradek.broker.requests.listener import BROKER, CLIENT
from odradek.cluster.authorizer import AclOperation, ResourceType
from odradek.cluster.metadata.topic_names import is_internal
from odradek.coordinator.txn.commands import TV2, PartitionErrors
from odradek.coordinator.txn.ports import TopicPartition
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

BATCHED_MIN_VERSION: Final = 4
BATCHED_WAIT_MS_MAX: Final = 50
"""How long one busy transactional id may hold up the answer to a broker; it asks again."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """One transaction of a request, and what became of it (so far)."""

    transactional_id: str
    partitions: tuple[TopicPartition, ...]
    outcome: PartitionErrors | Future[PartitionErrors]


def handle(
    context: BrokerRequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse | Awaitable[AddPartitionsToTxnResponse]:
    batched = context.api_version >= BATCHED_MIN_VERSION
    if batched and not (BROKER in context.session.listener.roles and _may_act(context)):
        raise Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    asked = [_ask(context, transaction) for transaction in _transactions(context, request)]
    waiting = [one.outcome for one in asked if not (isinstance(one.outcome, dict) or one.outcome.done())]
    if waiting:
        return when_done(lambda: _response(context, asked), *waiting)
    return _response(context, asked)


def refuse(
    context: BrokerRequestContext, request: AddPartitionsToTxnRequest, error: ErrorCode, message: str | None
) -> AddPartitionsToTxnResponse:
    if context.api_version >= BATCHED_MIN_VERSION:
        return AddPartitionsToTxnResponse(error_code=error)
    partitions = _flat(request.v3_and_below_topics)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_grouped(dict.fromkeys(partitions, error)))


def _may_act(context: BrokerRequestContext) -> bool:
    return context.allowed_on_cluster(AclOperation.CLUSTER_ACTION)


def _transactions(
    context: BrokerRequestContext, request: AddPartitionsToTxnRequest
) -> Sequence[AddPartitionsToTxnTransaction]:
    if context.api_version >= BATCHED_MIN_VERSION:
        return request.transactions
    only = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    return (only,)


def _ask(context: BrokerRequestContext, asked: AddPartitionsToTxnTransaction) -> _Asked:
    partitions = _flat(asked.topics)
    try:
        outcome: PartitionErrors | Future[PartitionErrors] = _add_or_verify(context, asked, partitions)
    except Refusal as refusal:
        outcome = dict.fromkeys(partitions, refusal.error)
    return _Asked(asked.transactional_id, partitions, outcome)


def _add_or_verify(
    context: BrokerRequestContext, asked: AddPartitionsToTxnTransaction, partitions: tuple[TopicPartition, ...]
) -> PartitionErrors | Future[PartitionErrors]:
    batched = context.api_version >= BATCHED_MIN_VERSION
    if not batched and not context.allowed(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, asked.transactional_id):
        raise Refusal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    bad = _bad_partitions(context, partitions, from_client=not batched)
    if bad:
        return {partition: bad.get(partition, ErrorCode.OPERATION_NOT_ATTEMPTED) for partition in partitions}
    transactions = context.broker.transactions
    if asked.verify_only:
        return transactions.verify_partitions(
            asked.transactional_id, asked.producer_id, asked.producer_epoch, partitions, wait_ms=BATCHED_WAIT_MS_MAX
        )
    return transactions.add_partitions(
        asked.transactional_id,
        asked.producer_id,
        asked.producer_epoch,
        partitions,
        client_version=TV2 if batched else 0,
        client_id=None if batched else context.client_id,
        wait_ms=BATCHED_WAIT_MS_MAX if batched else None,
    )


def _bad_partitions(
    context: BrokerRequestContext, partitions: tuple[TopicPartition, ...], *, from_client: bool
) -> PartitionErrors:
    topics = list(dict.fromkeys(partition.topic for partition in partitions))
    allowed = topics
    if from_client:
        allowed = context.split_allowed(AclOperation.WRITE, ResourceType.TOPIC, topics)[0]
        allowed = [topic for topic in allowed if not is_internal(topic)]
    writable = dict.fromkeys(allowed)
    image = context.node.metadata.image
    bad: PartitionErrors = {}
    for partition in partitions:
        if partition.topic not in writable:
            bad[partition] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif image.partition(partition.topic, partition.partition) is None:
            bad[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return bad


def _settled(one: _Asked) -> tuple[str, PartitionErrors]:
    if isinstance(one.outcome, dict):
        return one.transactional_id, one.outcome
    try:
        return one.transactional_id, one.outcome.result()
    except Refusal as refusal:
        return one.transactional_id, dict.fromkeys(one.partitions, refusal.error)


def _response(context: BrokerRequestContext, asked: list[_Asked]) -> AddPartitionsToTxnResponse:
    told = [
        (
            transactional_id,
            _grouped(
                {
                    partition: wire_error(context.api_key, context.api_version, error)
                    for partition, error in errors.items()
                }
            ),
        )
        for transactional_id, errors in map(_settled, asked)
    ]
    if context.api_version < BATCHED_MIN_VERSION:
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=told[0][1])
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(transactional_id=transactional_id, topic_results=topics)
            for transactional_id, topics in told
        ]
    )


def _flat(topics: Sequence[AddPartitionsToTxnTopic]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic.name, partition) for topic in topics for partition in topic.partitions)


def _grouped(errors: Mapping[TopicPartition, ErrorCode]) -> list[AddPartitionsToTxnTopicResult]:
    topics: dict[str, list[AddPartitionsToTxnPartitionResult]] = {}
    for (topic, index), error in errors.items():
        result = AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=error)
        topics.setdefault(topic, []).append(result)
    return [AddPartitionsToTxnTopicResult(name=topic, results_by_partition=found) for topic, found in topics.items()]


API: Final = Api(
    key=24,
    min_version=0,
    max_version=5,
    request=AddPartitionsToTxnRequest,
    response=AddPartitionsToTxnResponse,
    handle=handle,
    refuse=refuse,
    listeners=(CLIENT, BROKER),
    acl="v0-3: WRITE on the transactional id and on each topic; v4-5: CLUSTER_ACTION on the cluster",
)
