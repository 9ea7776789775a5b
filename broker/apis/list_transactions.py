"""ListTransactions: v0-2 (KIP-664)

Behavior:
* The transactions of every partition that this broker coordinates; COORDINATOR_LOAD_IN_PROGRESS while any of them
  loads.
* All filters that are given must hold. Names of states that do not exist are answered back, and match nothing.
* Ids that the caller may not describe are left out.

Version notes:
* v1 duration filter (KIP-994) · v2 pattern for the id (KIP-1152): RE2 syntax, the whole id must match.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.requests.api import Api
from odradek.cluster.authorizer import AclOperation, ResourceType
from odradek.coordinator.txn.state import STATE_BY_NAME, Transaction
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from odradek.protocol.patterns import compiled

Matches = Callable[[str], bool]


def handle(
    context: BrokerRequestContext, request: ListTransactionsRequest
) -> ListTransactionsResponse | Awaitable[ListTransactionsResponse]:
    return _listed(context, request, _matcher(request.transactional_id_pattern))


def refuse(
    context: BrokerRequestContext, request: ListTransactionsRequest, error: ErrorCode, message: str | None
) -> ListTransactionsResponse:
    return ListTransactionsResponse(error_code=error)


async def _listed(
    context: BrokerRequestContext, request: ListTransactionsRequest, matches: Matches
) -> ListTransactionsResponse:
    producer_ids, states = dict.fromkeys(request.producer_id_filters), dict.fromkeys(request.state_filters)
    found = [
        described.transaction
        for described in await context.broker.transactions.list_transactions()
        if _wanted(described.transaction, producer_ids, states)
        and _lasts(described.transaction, request.duration_filter, context.now_ms)
        and matches(described.transaction.transactional_id)
    ]
    names = [txn.transactional_id for txn in found]
    shown = dict.fromkeys(context.split_allowed(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, names)[0])
    return ListTransactionsResponse(
        unknown_state_filters=[name for name in request.state_filters if name not in STATE_BY_NAME],
        transaction_states=[
            TransactionState(
                transactional_id=txn.transactional_id,
                producer_id=txn.producer_id,
                transaction_state=txn.state.shown,
            )
            for txn in found
            if txn.transactional_id in shown
        ],
    )


def _wanted(txn: Transaction, producer_ids: Mapping[int, None], states: Mapping[str, None]) -> bool:
    if producer_ids and txn.producer_id not in producer_ids:
        return False
    return not states or txn.state.shown in states


def _lasts(txn: Transaction, duration_ms: int, now_ms: int) -> bool:
    return duration_ms < 0 or now_ms - txn.start_ms > duration_ms


def _matcher(pattern: str | None) -> Matches:
    """Raises Refusal(INVALID_REGULAR_EXPRESSION)."""
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
