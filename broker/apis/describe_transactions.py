"""DescribeTransactions: v0 (KIP-664)

Behavior:
* One answer per transactional id, errors included. Once a transaction is prepared, only the partitions are named that
  still lack its marker; topics that the caller may not describe are left out.
* Tagged field 10000 of a transaction (UTF-8) is an addition: the client id of its producer, where this coordinator has
  heard it since it took over. Clients skip tags that they do not know.
"""

from collections.abc import Awaitable
from typing import Final

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.requests.api import Api
from odradek.cluster.authorizer import AclOperation, ResourceType
from odradek.coordinator.txn.service import Described
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
    return _described(context, request)


def refuse(
    context: BrokerRequestContext, request: DescribeTransactionsRequest, error: ErrorCode, message: str | None
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(transaction_states=[_error(name, error) for name in request.transactional_ids])


async def _described(
    context: BrokerRequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    asked = request.transactional_ids
    _, denied = context.split_allowed(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, asked)
    hidden = dict.fromkeys(denied)
    states: list[TransactionState] = []
    for transactional_id in dict.fromkeys(asked):
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


def _state(context: BrokerRequestContext, described: Described) -> TransactionState:
    txn = described.transaction
    topics: dict[str, list[int]] = {}
    for topic, partition in described.partitions:
        topics.setdefault(topic, []).append(partition)
    shown, _ = context.split_allowed(AclOperation.DESCRIBE, ResourceType.TOPIC, list(topics))
    client_id = () if txn.client_id is None else ((DESCRIBED_CLIENT_ID_TAG, txn.client_id.encode()),)
    return TransactionState(
        transactional_id=txn.transactional_id,
        transaction_state=txn.state.shown,
        transaction_timeout_ms=txn.timeout_ms,
        transaction_start_time_ms=txn.start_ms,
        producer_id=txn.producer_id,
        producer_epoch=txn.producer_epoch,
        topics=[TopicData(topic=topic, partitions=topics[topic]) for topic in shown],
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
    acl="DESCRIBE on each transactional id, and on each topic that is named",
)
