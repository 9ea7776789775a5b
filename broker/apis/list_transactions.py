"""ListTransactions: list the transactions that this broker coordinates (KIP-664).

Behavior:
* A transaction is listed if it matches all given filters. A state name that does not exist matches no transaction; the
  response contains it in `unknown_state_filters`.
* The response omits transactional ids that the client may not describe.

Errors:
* COORDINATOR_LOAD_IN_PROGRESS while the broker loads a partition of `__transaction_state`. INVALID_REGULAR_EXPRESSION
  for an invalid pattern.

Version notes:
* v1 has the filter by duration (KIP-994). v2 has the pattern of transactional ids (KIP-1152): RE2 syntax, and the
  pattern must match the whole id.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.requests.api import Api, Ordered
from odradek.broker.requests.slices import collect_charged
from odradek.cluster.authorizer import AclOperation, ResourceType
from odradek.coordinator.txn.core import TransactionShard
from odradek.coordinator.txn.state import STATE_BY_NAME, Transaction
from odradek.protocol.errors import ErrorCode
from odradek.protocol.extensions import LISTED_PARTITIONS_TAG, PARTITION
from odradek.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from odradek.protocol.patterns import compiled
from odradek.runtime.shards import LedShard

Matches = Callable[[str], bool]


def handle(context: BrokerRequestContext, request: ListTransactionsRequest) -> Ordered[ListTransactionsResponse]:
    transactions, matches = context.broker.transactions, _matcher(request.transactional_id_pattern)
    producer_ids, states = dict.fromkeys(request.producer_id_filters), dict.fromkeys(request.state_filters)
    listed_partitions: list[int] = []

    async def list_shards(shards: Sequence[LedShard[TransactionShard]]) -> list[TransactionState]:
        listed = await transactions.list_transactions(shards)
        listed_partitions.extend(led.shard for led, _ in listed)
        matching = [
            txn
            for _, listed_transactions in listed
            for txn in listed_transactions
            if _matches_filters(txn, producer_ids, states)
            and _exceeds_duration(txn, request.duration_filter, context.now_ms)
            and matches(txn.transactional_id)
        ]
        return _visible(context, matching)

    def response(states: list[TransactionState]) -> ListTransactionsResponse:
        return ListTransactionsResponse(
            unknown_state_filters=[name for name in request.state_filters if name not in STATE_BY_NAME],
            transaction_states=states,
            unknown_tagged_fields=_tagged(request, listed_partitions),
        )

    return collect_charged(
        context,
        ListTransactionsResponse,
        transactions.all_shards(),
        transactions.listed_bytes_max,
        list_shards,
        response,
    )


def refuse(
    context: BrokerRequestContext, request: ListTransactionsRequest, error: ErrorCode, message: str | None
) -> ListTransactionsResponse:
    return ListTransactionsResponse(error_code=error)


def _visible(context: BrokerRequestContext, transactions: list[Transaction]) -> list[TransactionState]:
    """Return the transactions whose ids the client may describe."""
    names = [txn.transactional_id for txn in transactions]
    visible = dict.fromkeys(context.split_allowed(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, names)[0])
    return [
        TransactionState(
            transactional_id=txn.transactional_id,
            producer_id=txn.producer_id,
            transaction_state=txn.state.kafka_name,
        )
        for txn in transactions
        if txn.transactional_id in visible
    ]


def _tagged(request: ListTransactionsRequest, listed_partitions: list[int]) -> tuple[tuple[int, bytes], ...]:
    if LISTED_PARTITIONS_TAG not in dict(request.unknown_tagged_fields):
        return ()
    return ((LISTED_PARTITIONS_TAG, b"".join(map(PARTITION.pack, listed_partitions))),)


def _matches_filters(txn: Transaction, producer_ids: Mapping[int, None], states: Mapping[str, None]) -> bool:
    if producer_ids and txn.producer_id not in producer_ids:
        return False
    return not states or txn.state.kafka_name in states


def _exceeds_duration(txn: Transaction, duration_ms: int, now_ms: int) -> bool:
    return duration_ms < 0 or now_ms - txn.start_ms > duration_ms


def _matcher(pattern: str | None) -> Matches:
    """Return the predicate of a pattern. Raise Refusal(INVALID_REGULAR_EXPRESSION) if the pattern is invalid."""
    if not pattern:
        return lambda _transactional_id: True
    return compiled(pattern)


API: Final = Api(
    key=66,
    min_version=0,
    max_version=2,
    request=ListTransactionsRequest,
    response=ListTransactionsResponse,
    handle=handle,
    refuse=refuse,
    acl="DESCRIBE on each transactional id that is listed",
)
