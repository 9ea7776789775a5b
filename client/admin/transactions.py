"""Transactions by transactional id: list, describe, and abort by fencing the producer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from odradek.client.admin.client_fields import client_fields
from odradek.client.errors import ClientError, InvalidArgument, NotFound, check, name_of
from odradek.client.network.cluster import CoordinatorType
from odradek.client.network.fan_out import FanOut, PartialResult
from odradek.client.network.metadata import TopicPartition
from odradek.protocol.errors import ErrorCode
from odradek.protocol.extensions import EXPIRE_TAG, EXPIRED_ID
from odradek.protocol.messages.describe_transactions import DescribeTransactionsRequest
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest
from odradek.protocol.messages.list_transactions import ListTransactionsRequest
from odradek.protocol.txn_state import NEVER_TIMES_OUT_MS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from odradek.client.network.cluster import Cluster
    from odradek.protocol.messages import describe_transactions as describe_messages
    from odradek.protocol.messages import list_transactions as list_messages
    from odradek.protocol.schema import Message

    Listed = list[tuple[int, list_messages.TransactionState]]

OPEN_STATES: Final = ("Ongoing", "PrepareCommit", "PrepareAbort")
EXPIRABLE_STATES: Final = ("Empty", "CompleteCommit", "CompleteAbort")
"""States without an open transaction, in which an id can be removed."""
STATES: Final = ("Empty", *OPEN_STATES, "CompleteCommit", "CompleteAbort", "PrepareEpochFence")
EXPIRED_PER_REQUEST: Final = 500
"""Maximum transactional ids that one request removes. Brokers handle larger requests in parts."""
FENCE_TIMEOUT_MS: Final = 1_000
"""Transaction time-out of the InitProducerId request that fences a producer, in milliseconds.

No transaction uses it: the next producer with the id sets its own time-out.
"""


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id with the state of its transaction.

    `coordinator` is a node id. `producer_epoch` is None if the coordinator did not describe the id. `client_id` and
    `address` are None if the coordinator does not know the client: it was elected later. `idle_ms` is None if it is not
    an Odradek broker.
    """

    transactional_id: str
    state: str
    producer_id: int
    coordinator: int
    producer_epoch: int | None
    client_id: str | None = None
    address: str | None = None
    idle_ms: int | None = None


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id with its transaction.

    `started_ms` is in milliseconds since 1970, or None if no transaction is open. `client_id` is None if the broker
    does not return it.
    """

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    client_id: str | None
    coordinator: int
    timeout_ms: int
    started_ms: int | None
    partitions: list[TopicPartition]
    address: str | None = None
    idle_ms: int | None = None

    @property
    def never_times_out(self) -> bool:
        """True if the transactions of the id take part in a two-phase commit (KIP-939)."""
        return self.timeout_ms == NEVER_TIMES_OUT_MS

    @property
    def in_doubt(self) -> bool:
        """True if the transaction is ongoing, and only its owner or an operator ends it."""
        return self.state == "Ongoing" and self.never_times_out


async def list_transactions(cluster: Cluster, states: Sequence[str] = ()) -> PartialResult[TransactionListing]:
    """Return the transactional ids of all coordinators that respond. Empty `states` select all ids.

    A coordinator that is loading its log returns only a part of its ids, and counts as unreachable. Raise
    InvalidArgument if Kafka has no such state.
    """
    fan_out = FanOut(cluster, tolerant=True)
    listed = await listed_transactions(fan_out, states)
    described = {row.transactional_id: row for row in await described_transactions(fan_out, listed)}
    rows = [_listing(state, node_id, described.get(state.transactional_id)) for node_id, state in listed]
    return PartialResult(sorted(rows, key=lambda row: row.transactional_id), fan_out.unreachable)


def _listing(
    state: list_messages.TransactionState, node_id: int, row: TransactionDescription | None
) -> TransactionListing:
    listing = TransactionListing(state.transactional_id, state.transaction_state, state.producer_id, node_id, None)
    if row is None:
        return listing
    return replace(
        listing,
        producer_epoch=row.producer_epoch,
        client_id=row.client_id,
        address=row.address,
        idle_ms=row.idle_ms,
    )


async def open_transactions(fan_out: FanOut) -> list[TransactionDescription]:
    """Return the open transactions of all coordinators that respond, oldest first."""
    rows = await described_transactions(fan_out, await listed_transactions(fan_out, OPEN_STATES))
    return sorted(rows, key=lambda row: row.started_ms or 0)


async def listed_transactions(fan_out: FanOut, states: Sequence[str]) -> Listed:
    """Return the node id of the coordinator and the state of each transactional id. Empty `states` select all ids."""
    brokers = (await fan_out.cluster.fetch_metadata([])).brokers
    requests: dict[int, Message] = {node_id: ListTransactionsRequest(state_filters=list(states)) for node_id in brokers}
    rows: Listed = []
    for node_id, response in (await fan_out.request_each(requests)).items():
        if fan_out.tolerates(node_id, response.error_code):
            continue
        check(response.error_code, f"listing transactions on broker {node_id}")
        if response.unknown_state_filters:
            unknown = ", ".join(response.unknown_state_filters)
            raise InvalidArgument(f"no such state: {unknown}; use one of {', '.join(STATES)}")
        rows += [(node_id, state) for state in response.transaction_states]
    return rows


async def described_transactions(fan_out: FanOut, listed: Listed) -> list[TransactionDescription]:
    """Describe listed transactional ids.

    An id is left out if its transaction ended, or if its coordinator changed, after it was listed.
    """
    by_node: dict[int, list[str]] = {}
    for node_id, state in listed:
        by_node.setdefault(node_id, []).append(state.transactional_id)
    responses = await fan_out.request_names(by_node, lambda ids: DescribeTransactionsRequest(transactional_ids=ids))
    return [
        _description(state, node_id)
        for node_id, response in responses
        for state in response.transaction_states
        if state.error_code == ErrorCode.NONE
    ]


def _description(state: describe_messages.TransactionState, node_id: int) -> TransactionDescription:
    client_id, address, idle_ms = client_fields(state.unknown_tagged_fields)
    is_open = state.transaction_state in OPEN_STATES and state.transaction_start_time_ms >= 0
    return TransactionDescription(
        state.transactional_id,
        state.transaction_state,
        state.producer_id,
        state.producer_epoch,
        client_id or None,
        node_id,
        state.transaction_timeout_ms,
        state.transaction_start_time_ms if is_open else None,  # brokers return the begin of an ended transaction, too
        [TopicPartition(topic.topic, index) for topic in state.topics for index in topic.partitions],
        address,
        idle_ms,
    )


async def describe_transaction(cluster: Cluster, transactional_id: str) -> TransactionDescription:
    """Return a transactional id with its transaction. Raise NotFound if the id does not exist."""
    response = await cluster.request_coordinator(
        CoordinatorType.TRANSACTION,
        transactional_id,
        DescribeTransactionsRequest(transactional_ids=[transactional_id]),
        lambda response: int(response.transaction_states[0].error_code),
    )
    state = response.transaction_states[0]
    if state.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        remedy = "list the transactional ids with: odradek txns list"
        raise NotFound(f"transactional id {transactional_id} does not exist", remedy, code=state.error_code)
    check(state.error_code, f"transactional id {transactional_id}")
    return _description(state, await cluster.coordinator(CoordinatorType.TRANSACTION, transactional_id))


async def fence_producer(cluster: Cluster, transactional_id: str) -> TransactionDescription:
    """Fence the producer of a transactional id, which aborts its open transaction. Return the state before.

    It sends InitProducerId, as fenceProducers of Kafka's Admin. Raise NotFound if the id does not exist.
    """
    before = await describe_transaction(cluster, transactional_id)
    response = await cluster.request_coordinator(
        CoordinatorType.TRANSACTION,
        transactional_id,
        InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=FENCE_TIMEOUT_MS),
        lambda response: int(response.error_code),
    )
    check(response.error_code, f"transactional id {transactional_id} was not fenced")
    return before


async def expire_transactional_ids(cluster: Cluster, listed: Sequence[TransactionListing]) -> dict[str, str]:
    """Remove listed transactional ids from their coordinators. Return the ids that stay, with the reason.

    An id stays if its transaction is open, or if its producer id or epoch differs from the listing. The producer of a
    removed id receives INVALID_PRODUCER_ID_MAPPING, and must initialize the id again. Raise ClientError if a
    coordinator does not support the removal, as Kafka's brokers.
    """
    kept: dict[str, str] = {}
    by_node: dict[int, list[tuple[str, bytes]]] = {}
    for row in listed:
        if row.state not in EXPIRABLE_STATES:
            kept[row.transactional_id] = f"its state is {row.state}"
        elif row.producer_epoch is None:
            kept[row.transactional_id] = "its coordinator did not describe it"
        else:
            identity = EXPIRED_ID.pack(row.producer_id, row.producer_epoch)
            by_node.setdefault(row.coordinator, []).append((row.transactional_id, identity))
    for node_id, ids in by_node.items():
        for first in range(0, len(ids), EXPIRED_PER_REQUEST):
            part = ids[first : first + EXPIRED_PER_REQUEST]
            identities = b"".join(identity for _, identity in part)
            response = await cluster.request(
                node_id,
                DescribeTransactionsRequest(
                    transactional_ids=[transactional_id for transactional_id, _ in part],
                    unknown_tagged_fields=((EXPIRE_TAG, identities),),
                ),
            )
            errors = {state.transactional_id: state.error_code for state in response.transaction_states}
            kept |= {name: name_of(error) for name, error in errors.items() if error != ErrorCode.NONE}
            if EXPIRE_TAG not in dict(response.unknown_tagged_fields) and ErrorCode.NONE in errors.values():
                remedy = "only Odradek brokers can remove them"
                raise ClientError(f"broker {node_id} cannot remove transactional ids", remedy)
    return kept
