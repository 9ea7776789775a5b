"""AddPartitionsToTxn: add partitions to transactions, or verify that they were added (KIP-98, KIP-890).

Behavior:
* v0 to v3 come from producers and name one transaction. The coordinator adds all partitions or none.
* v4 and v5 come from brokers and name several transactions. Each transaction has its own result. With `VerifyOnly` the
  coordinator checks that the transaction contains the partitions, and adds none.
* If the former transaction of a transactional id is not complete yet, the response waits for it. It waits at most
  about 1 s (v0 to v3), or 50 ms (v4 and v5, since the other transactions of the request wait, too). After that the
  error is CONCURRENT_TRANSACTIONS.

Errors:
* v0 to v3: if one partition is refused (TOPIC_AUTHORIZATION_FAILED, also for internal topics, or
  UNKNOWN_TOPIC_OR_PARTITION), all other partitions have the error OPERATION_NOT_ATTEMPTED.
* CONCURRENT_TRANSACTIONS also if the coordinator has no capacity for further partitions of the client
  (`PARTITIONS_MAX`). Clients retry it, and Kafka has no such limit.
* v4 and v5: CLUSTER_AUTHORIZATION_FAILED without CLUSTER_ACTION, or on a listener that does not serve brokers.

Version notes:
* v2 knows PRODUCER_FENCED. v0 and v1 receive INVALID_PRODUCER_EPOCH instead (KIP-588).
* v3 is flexible. v4 has several transactions, `VerifyOnly`, and an error for the whole request (KIP-890).
* v5 knows TRANSACTION_ABORTABLE (KIP-890).
* Partitions that v4 and v5 add belong to producers of TV2. The coordinator stores that protocol with the transaction.
"""

from asyncio import Future
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.requests.api import Api, Ordered
from odradek.broker.requests.error_map import wire_error
from odradek.broker.requests.futures import when_done
from odradek.broker.requests.listener import BROKER, CLIENT, SERVES_NO_BROKERS
from odradek.broker.requests.slices import distinct, respond_in_parts
from odradek.broker.requests.splitting import Splitting
from odradek.cluster.authorizer import AclOperation, ResourceType
from odradek.cluster.metadata.topic_names import is_internal
from odradek.coordinator.txn.commands import TV2, PartitionErrors
from odradek.coordinator.txn.ports import TopicPartition
from odradek.frozen import frozen_dataclass
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
PARTS: Final = Splitting(
    ("v3_and_below_topics", "partitions"), ("results_by_topic_v3_and_below", "results_by_partition")
)
"""Parts of a large request of a client. Brokers name the partitions of one Produce request."""
BATCHED_WAIT_MS_MAX: Final = 50
"""Maximum milliseconds that the response to a broker waits for one incomplete transaction. The broker then retries."""


@frozen_dataclass(frozen=True, slots=True)
class _Transaction:
    """One transaction of a request, with the errors of its partitions or a future of them."""

    transactional_id: str
    partitions: tuple[TopicPartition, ...]
    outcome: PartitionErrors | Future[PartitionErrors]


def handle(
    context: BrokerRequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse | Awaitable[AddPartitionsToTxnResponse] | Ordered[AddPartitionsToTxnResponse]:
    batched = context.api_version >= BATCHED_MIN_VERSION
    if batched and not _is_broker(context):
        raise Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if not batched and PARTS.is_large(request):
        return Ordered(_handle_large(context, request))
    started = [_start(context, transaction) for transaction in _transactions(context, request)]
    pending = [txn.outcome for txn in started if not (isinstance(txn.outcome, dict) or txn.outcome.done())]
    if pending:
        return when_done(lambda: _response(context, started), *pending)
    return _response(context, started)


async def _handle_large(
    context: BrokerRequestContext, request: AddPartitionsToTxnRequest
) -> Awaitable[AddPartitionsToTxnResponse]:
    """Check the partitions of a client's request in slices. Add all to the transaction, or none.

    The awaitable that is returned makes the response in slices.
    """
    [transaction] = _transactions(context, request)
    is_refused = False

    def partitions_of(part: AddPartitionsToTxnRequest) -> tuple[TopicPartition, ...]:
        nonlocal is_refused
        partitions = _flat(part.v3_and_below_topics)
        is_refused = is_refused or bool(_partition_errors(context, partitions, from_client=True))
        return partitions

    partitions = await distinct(context, PARTS, request, partitions_of)
    try:
        _check_id(context, transaction)
        if is_refused:
            return _respond_in_parts(context, partitions, partial(_refusals, context, from_client=True))
        outcome = _submit(context, transaction, tuple(partitions))
    except Refusal as refusal:
        return _respond_in_parts(context, partitions, partial(_same, refusal.error))
    return _respond_when_added(context, partitions, outcome)


async def _respond_when_added(
    context: BrokerRequestContext, partitions: Sequence[TopicPartition], outcome: Future[PartitionErrors]
) -> AddPartitionsToTxnResponse:
    try:
        await outcome
    except Refusal as refusal:
        return await _respond_in_parts(context, partitions, partial(_same, refusal.error))
    return await _respond_in_parts(context, partitions, partial(_same, ErrorCode.NONE))


async def _respond_in_parts(
    context: BrokerRequestContext,
    partitions: Sequence[TopicPartition],
    errors_of: Callable[[Sequence[TopicPartition]], PartitionErrors],
) -> AddPartitionsToTxnResponse:
    def respond(some: Sequence[TopicPartition]) -> AddPartitionsToTxnResponse:
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_wire_results(context, errors_of(some)))

    return await respond_in_parts(context, PARTS, AddPartitionsToTxnResponse, partitions, respond)


def _same(error: ErrorCode, partitions: Sequence[TopicPartition]) -> PartitionErrors:
    return dict.fromkeys(partitions, error)


def refuse(
    context: BrokerRequestContext, request: AddPartitionsToTxnRequest, error: ErrorCode, message: str | None
) -> AddPartitionsToTxnResponse:
    if context.api_version >= BATCHED_MIN_VERSION:
        return AddPartitionsToTxnResponse(error_code=error)
    partitions = _flat(request.v3_and_below_topics)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_grouped(dict.fromkeys(partitions, error)))


def _is_broker(context: BrokerRequestContext) -> bool:
    if BROKER not in context.session.roles:
        context.note_denied_node("transactions of brokers", SERVES_NO_BROKERS)
        return False
    return context.allowed_on_cluster(AclOperation.CLUSTER_ACTION)


def _transactions(
    context: BrokerRequestContext, request: AddPartitionsToTxnRequest
) -> Sequence[AddPartitionsToTxnTransaction]:
    if context.api_version >= BATCHED_MIN_VERSION:
        return request.transactions
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    return (transaction,)


def _start(context: BrokerRequestContext, transaction: AddPartitionsToTxnTransaction) -> _Transaction:
    partitions = _flat(transaction.topics)
    try:
        outcome: PartitionErrors | Future[PartitionErrors] = _add_or_verify(context, transaction, partitions)
    except Refusal as refusal:
        outcome = dict.fromkeys(partitions, refusal.error)
    return _Transaction(transaction.transactional_id, partitions, outcome)


def _add_or_verify(
    context: BrokerRequestContext, transaction: AddPartitionsToTxnTransaction, partitions: tuple[TopicPartition, ...]
) -> PartitionErrors | Future[PartitionErrors]:
    from_client = context.api_version < BATCHED_MIN_VERSION
    if from_client:
        _check_id(context, transaction)
    if _partition_errors(context, partitions, from_client=from_client):
        return _refusals(context, partitions, from_client=from_client)
    return _submit(context, transaction, partitions)


def _check_id(context: BrokerRequestContext, transaction: AddPartitionsToTxnTransaction) -> None:
    if not context.allowed(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transaction.transactional_id):
        raise Refusal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)


def _refusals(
    context: BrokerRequestContext, partitions: Sequence[TopicPartition], *, from_client: bool
) -> PartitionErrors:
    """Return the errors of partitions of a transaction to which none is added."""
    errors = _partition_errors(context, partitions, from_client=from_client)
    return {partition: errors.get(partition, ErrorCode.OPERATION_NOT_ATTEMPTED) for partition in partitions}


def _submit(
    context: BrokerRequestContext, transaction: AddPartitionsToTxnTransaction, partitions: tuple[TopicPartition, ...]
) -> Future[PartitionErrors]:
    batched = context.api_version >= BATCHED_MIN_VERSION
    transactions = context.broker.transactions
    if transaction.verify_only:
        return transactions.verify_partitions(
            transaction.transactional_id,
            transaction.producer_id,
            transaction.producer_epoch,
            partitions,
            wait_ms=BATCHED_WAIT_MS_MAX,
        )
    return transactions.add_partitions(
        transaction.transactional_id,
        transaction.producer_id,
        transaction.producer_epoch,
        partitions,
        client_version=TV2 if batched else 0,
        client_id=None if batched else context.client_id,
        wait_ms=BATCHED_WAIT_MS_MAX if batched else None,
    )


def _partition_errors(
    context: BrokerRequestContext, partitions: Sequence[TopicPartition], *, from_client: bool
) -> PartitionErrors:
    """Return the errors of the partitions that cannot be added."""
    topics = list(dict.fromkeys(partition.topic for partition in partitions))
    allowed = topics
    if from_client:
        allowed = context.split_allowed(AclOperation.WRITE, ResourceType.TOPIC, topics)[0]
        allowed = [topic for topic in allowed if not is_internal(topic)]
    writable = dict.fromkeys(allowed)
    image = context.node.metadata.image
    errors: PartitionErrors = {}
    for partition in partitions:
        if partition.topic not in writable:
            errors[partition] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif image.partition(partition.topic, partition.partition) is None:
            errors[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return errors


def _result(transaction: _Transaction) -> tuple[str, PartitionErrors]:
    """Return (transactional id, errors of its partitions) of a transaction whose future is done."""
    if isinstance(transaction.outcome, dict):
        return transaction.transactional_id, transaction.outcome
    try:
        return transaction.transactional_id, transaction.outcome.result()
    except Refusal as refusal:
        return transaction.transactional_id, dict.fromkeys(transaction.partitions, refusal.error)


def _response(context: BrokerRequestContext, transactions: list[_Transaction]) -> AddPartitionsToTxnResponse:
    results = [
        (transactional_id, _wire_results(context, errors)) for transactional_id, errors in map(_result, transactions)
    ]
    if context.api_version < BATCHED_MIN_VERSION:
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0][1])
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(transactional_id=transactional_id, topic_results=topics)
            for transactional_id, topics in results
        ]
    )


def _wire_results(context: BrokerRequestContext, errors: PartitionErrors) -> list[AddPartitionsToTxnTopicResult]:
    return _grouped(
        {partition: wire_error(context.api_key, context.api_version, error) for partition, error in errors.items()}
    )


def _flat(topics: Sequence[AddPartitionsToTxnTopic]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic.name, partition) for topic in topics for partition in topic.partitions)


def _grouped(errors: Mapping[TopicPartition, ErrorCode]) -> list[AddPartitionsToTxnTopicResult]:
    topics: dict[str, list[AddPartitionsToTxnPartitionResult]] = {}
    for (topic, index), error in errors.items():
        result = AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=error)
        topics.setdefault(topic, []).append(result)
    return [
        AddPartitionsToTxnTopicResult(name=topic, results_by_partition=results) for topic, results in topics.items()
    ]


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
