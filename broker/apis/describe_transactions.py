"""DescribeTransactions: describe transactions by their transactional ids (KIP-664).

Behavior:
* Each transactional id has its own result. After the transaction is prepared, the result lists only the partitions that
  still lack its marker. It omits topics that the client may not describe.
* Tagged field 10000 of a result (UTF-8) is an addition to Kafka's protocol: the client id of the transaction's
  producer, if the producer has sent a request to this coordinator since it was elected. Clients skip tagged fields that
  they do not know.

Errors:
* Per transactional id: TRANSACTIONAL_ID_AUTHORIZATION_FAILED, TRANSACTIONAL_ID_NOT_FOUND, NOT_COORDINATOR,
  COORDINATOR_LOAD_IN_PROGRESS.
"""

from collections.abc import Awaitable
from typing import Final

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.requests.api import Api, split_by
from odradek.cluster.authorizer import AclOperation, ResourceType
from odradek.coordinator.txn.service import TransactionDescription
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.extensions import DESCRIBED_CLIENT_ID_TAG
from odradek.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)


def handle(
    context: BrokerRequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse | Awaitable[DescribeTransactionsResponse]:
    return _describe(context, request)


def refuse(
    context: BrokerRequestContext, request: DescribeTransactionsRequest, error: ErrorCode, message: str | None
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(transaction_states=[_error(name, error) for name in request.transactional_ids])


async def _describe(
    context: BrokerRequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    transactional_ids = request.transactional_ids
    _, denied = context.split_allowed(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_ids)
    hidden = dict.fromkeys(denied)
    states: list[TransactionState] = []
    for transactional_id in dict.fromkeys(transactional_ids):
        if transactional_id in hidden:
            states.append(_error(transactional_id, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
            continue
        try:
            states.append(_state(context, await context.broker.transactions.describe(transactional_id)))
        except Refusal as refusal:
            states.append(_error(transactional_id, refusal.error))
    return DescribeTransactionsResponse(transaction_states=states)


def _error(transactional_id: str, error: ErrorCode) -> TransactionState:
    return TransactionState(transactional_id=transactional_id, error_code=error)


def _state(context: BrokerRequestContext, described: TransactionDescription) -> TransactionState:
    txn = described.transaction
    topics: dict[str, list[int]] = {}
    for topic, partition in described.partitions:
        topics.setdefault(topic, []).append(partition)
    visible, _ = context.split_allowed(AclOperation.DESCRIBE, ResourceType.TOPIC, list(topics))
    client_id = () if txn.client_id is None else ((DESCRIBED_CLIENT_ID_TAG, txn.client_id.encode()),)
    return TransactionState(
        transactional_id=txn.transactional_id,
        transaction_state=txn.state.kafka_name,
        transaction_timeout_ms=txn.timeout_ms,
        transaction_start_time_ms=txn.start_ms,
        producer_id=txn.producer_id,
        producer_epoch=txn.producer_epoch,
        topics=[TopicData(topic=topic, partitions=topics[topic]) for topic in visible],
        unknown_tagged_fields=client_id,
    )


API: Final = Api(
    key=65,
    min_version=0,
    max_version=0,
    request=DescribeTransactionsRequest,
    response=DescribeTransactionsResponse,
    handle=handle,
    refuse=refuse,
    splitting=split_by(("transactional_ids",), ("transaction_states",)),
    acl="DESCRIBE on each transactional id; DESCRIBE on each topic that is listed",
)
