"""DescribeTransactions: describe transactions by their transactional ids (KIP-664).

Behavior:
* Each transactional id has its own result. After the transaction is prepared, the result lists only the partitions that
  still lack its marker. It omits topics that the client may not describe.
* Tagged fields of a result are additions to Kafka's protocol. Clients skip tagged fields that they do not know. The
  fields have the client id of the transaction's producer, the address of the client that has created the id, and the
  time since its last use. A new coordinator does not know client id and address before a request of the producer.
* With a tagged field that names the producer id and epoch of each id, the coordinator removes the ids, if they still
  have this identity and no open transaction (`odradek txns expire`). The producer of a removed id must initialize it
  again, as after `transactional.id.expiration.ms`. Kafka ignores the field.

Errors:
* CLUSTER_AUTHORIZATION_FAILED for the removal of ids without CLUSTER_ACTION; then per id PRODUCER_FENCED if the id has
  another identity, and INVALID_TXN_STATE if its transaction is open.
* Per transactional id: TRANSACTIONAL_ID_AUTHORIZATION_FAILED, TRANSACTIONAL_ID_NOT_FOUND, NOT_COORDINATOR,
  COORDINATOR_LOAD_IN_PROGRESS.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.requests.api import Api, Ordered, split_by
from odradek.broker.requests.described_clients import described_client
from odradek.broker.requests.slices import collect_charged
from odradek.broker.requests.splitting import DESCRIBED_PER_PART, ELEMENT_CHARGE_BYTES_MIN
from odradek.cluster.authorizer import AclOperation, ResourceType
from odradek.coordinator.txn.service import DESCRIBED_TRANSACTION_BYTES, TransactionDescription
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.extensions import EXPIRE_TAG, EXPIRED_ID
from odradek.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)


def handle(
    context: BrokerRequestContext, request: DescribeTransactionsRequest
) -> Ordered[DescribeTransactionsResponse]:
    expired, transactions = _identities(context, request), context.broker.transactions
    transactional_ids = request.transactional_ids
    denied: Sequence[str] = ()
    if not context.is_node:
        _, denied = context.split_allowed(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_ids)
    hidden = dict.fromkeys(denied)

    def bytes_max(transactional_id: str) -> int:
        if transactional_id in hidden:
            return DESCRIBED_TRANSACTION_BYTES
        return transactions.described_bytes_max(transactional_id)

    def response(states: list[TransactionState]) -> DescribeTransactionsResponse:
        return DescribeTransactionsResponse(
            transaction_states=states, unknown_tagged_fields=() if expired is None else ((EXPIRE_TAG, b""),)
        )

    return collect_charged(
        context,
        DescribeTransactionsResponse,
        list(dict.fromkeys(transactional_ids)),
        bytes_max,
        partial(_describe, context, hidden=hidden, expired=expired),
        response,
    )


def refuse(
    context: BrokerRequestContext, request: DescribeTransactionsRequest, error: ErrorCode, message: str | None
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(transaction_states=[_error(name, error) for name in request.transactional_ids])


async def _describe(
    context: BrokerRequestContext,
    transactional_ids: Sequence[str],
    hidden: Mapping[str, None],
    expired: Mapping[str, tuple[int, int]] | None,
) -> list[TransactionState]:
    """Describe some transactional ids of the request."""
    states: list[TransactionState] = []
    for transactional_id in transactional_ids:
        if transactional_id in hidden:
            states.append(_error(transactional_id, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
            continue
        try:
            described = await context.broker.transactions.describe(transactional_id)
            if expired is not None:
                await context.broker.transactions.expire_id(transactional_id, *expired[transactional_id])
            states.append(_state(context, described))
        except Refusal as refusal:
            states.append(_error(transactional_id, refusal.error))
    return states


def _identities(
    context: BrokerRequestContext, request: DescribeTransactionsRequest
) -> dict[str, tuple[int, int]] | None:
    """Return producer id and producer epoch of each id that the request removes; None if it only describes ids."""
    data = dict(request.unknown_tagged_fields).get(EXPIRE_TAG)
    if data is None:
        return None
    about = (f"transactional id {transactional_id}" for transactional_id in request.transactional_ids)
    if not context.allowed_change_of_cluster(AclOperation.CLUSTER_ACTION, about):
        raise Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if len(data) != EXPIRED_ID.size * len(request.transactional_ids):
        raise Refusal(ErrorCode.INVALID_REQUEST)
    return dict(zip(request.transactional_ids, EXPIRED_ID.iter_unpack(data), strict=True))


def _error(transactional_id: str, error: ErrorCode) -> TransactionState:
    return TransactionState(transactional_id=transactional_id, error_code=error)


def _state(context: BrokerRequestContext, described: TransactionDescription) -> TransactionState:
    txn = described.transaction
    topics: dict[str, list[int]] = {}
    for topic, partition in described.partitions:
        topics.setdefault(topic, []).append(partition)
    visible = list(topics)
    if not context.is_node:
        visible = context.permitted(AclOperation.DESCRIBE, ResourceType.TOPIC, visible)
    idle_ms = max(0, context.now_ms - txn.update_ms)
    tagged = described_client(txn.client_id, described.client, idle_ms)
    return TransactionState(
        transactional_id=txn.transactional_id,
        transaction_state=txn.state.kafka_name,
        transaction_timeout_ms=txn.timeout_ms,
        transaction_start_time_ms=txn.start_ms,
        producer_id=txn.producer_id,
        producer_epoch=txn.producer_epoch,
        topics=[TopicData(topic=topic, partitions=topics[topic]) for topic in visible],
        unknown_tagged_fields=tagged,
    )


API: Final = Api(
    key=65,
    min_version=0,
    max_version=0,
    request=DescribeTransactionsRequest,
    response=DescribeTransactionsResponse,
    handle=handle,
    refuse=refuse,
    splitting=split_by(("transactional_ids",), ("transaction_states",), DESCRIBED_PER_PART, hashed=str),
    parts_charge_bytes_min=ELEMENT_CHARGE_BYTES_MIN * DESCRIBED_PER_PART,
    acl="DESCRIBE on each transactional id and on each topic that is listed, unless the client is a node",
)
