"""ListTransactions: list the transactions that this broker coordinates (KIP-664).

Behavior:
* A transaction is listed if it matches all given filters. A state name that does not exist matches no transaction; the
  response contains it in `unknown_state_filters`.
* The response omits transactional ids that the client may not describe. Nodes may describe all.
* With a tagged field, and with CLUSTER_ACTION, the response names the partitions of `__transaction_state` that are
  listed, if it omits no id for that reason. A broker that aborts a hanging transaction must know all transactions
  (KIP-664). Without CLUSTER_ACTION, the field would show whether a hidden id matches the filters.

Errors:
* COORDINATOR_LOAD_IN_PROGRESS while the broker loads a partition of `__transaction_state`. INVALID_REGULAR_EXPRESSION
  for an invalid pattern.

Version notes:
* v1 has the filter by duration (KIP-994). v2 has the pattern of transactional ids (KIP-1152): RE2 syntax, and the
  pattern must match the whole id.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

from odradek.broker.contexts import BrokerRequestContext
from odradek.broker.requests.api import Api, Ordered
from odradek.broker.requests.slices import collect_charged, visit_slices
from odradek.cluster.authorizer import AclOperation, ResourceType
from odradek.coordinator.txn.core import TransactionShard
from odradek.coordinator.txn.state import Transaction
from odradek.protocol.errors import ErrorCode
from odradek.protocol.extensions import LISTED_PARTITIONS_TAG, PARTITION
from odradek.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from odradek.protocol.patterns import CHARACTERS_PER_SLICE, compiled
from odradek.protocol.txn_state import STATE_BY_NAME
from odradek.runtime.shards import LedShard

VISITED_COST: Final = 1
"""Work on one transaction that the filters leave out, in characters of CHARACTERS_PER_SLICE."""
LISTED_COST: Final = 8
"""Work on one transaction that is listed, in characters of CHARACTERS_PER_SLICE: about 4 µs."""

Matches = Callable[[str], bool]


def handle(context: BrokerRequestContext, request: ListTransactionsRequest) -> Ordered[ListTransactionsResponse]:
    transactions, pattern = context.broker.transactions, request.transactional_id_pattern
    keeps, matches = _filter(request, context.now_ms), _matcher(pattern)
    names_partitions = context.permits_on_cluster(AclOperation.CLUSTER_ACTION)
    listed_partitions: list[int] = []
    hidden = 0

    async def list_shards(shards: Sequence[LedShard[TransactionShard]]) -> list[TransactionState]:
        listed = await transactions.list_transactions(shards)
        listed_partitions.extend(led.shard for led, _ in listed)
        states: list[TransactionState] = []

        def add(some: list[Transaction]) -> None:
            nonlocal hidden
            matching = [txn for txn in some if matches(txn.transactional_id)]
            visible = _visible(context, matching)
            hidden += len(matching) - len(visible)
            states.extend(visible)

        each = chain.from_iterable(listed_transactions for _, listed_transactions in listed)
        await visit_slices(context, _slices(each, keeps, has_pattern=bool(pattern)), add)
        return states

    def response(states: list[TransactionState]) -> ListTransactionsResponse:
        return ListTransactionsResponse(
            unknown_state_filters=[name for name in request.state_filters if name not in STATE_BY_NAME],
            transaction_states=states,
            unknown_tagged_fields=_tagged(request, listed_partitions if names_partitions and not hidden else []),
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
    if not context.is_node:
        names = context.permitted(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, names)
    visible = dict.fromkeys(names)
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


def _slices(
    transactions: Iterable[Transaction], keeps: Callable[[Transaction], bool], *, has_pattern: bool
) -> Iterator[list[Transaction]]:
    """Yield the transactions that the filters keep, in slices for one turn of the event loop each."""
    some: list[Transaction] = []
    total = 0
    for txn in transactions:
        is_kept = keeps(txn)
        cost = LISTED_COST + (len(txn.transactional_id) if has_pattern else 0) if is_kept else VISITED_COST
        if total and total + cost > CHARACTERS_PER_SLICE:
            yield some
            some, total = [], 0
        total += cost
        if is_kept:
            some.append(txn)
    yield some


def _filter(request: ListTransactionsRequest, now_ms: int) -> Callable[[Transaction], bool]:
    """Return the predicate of all filters except the pattern."""
    producer_ids, states = dict.fromkeys(request.producer_id_filters), dict.fromkeys(request.state_filters)
    duration_ms = request.duration_filter

    def keeps(txn: Transaction) -> bool:
        return (
            (not producer_ids or txn.producer_id in producer_ids)
            and (not states or txn.state.kafka_name in states)
            and (duration_ms < 0 or now_ms - txn.start_ms > duration_ms)
        )

    return keeps


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
    acl="DESCRIBE on each transactional id that is listed, unless the client is a node",
)
