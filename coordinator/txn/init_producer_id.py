"""Decide InitProducerId: return the identity of a producer, and end an ongoing transaction of its transactional id."""

from collections.abc import Callable
from functools import partial
from typing import Final

from odradek.coordinator.txn.changes import to_empty
from odradek.coordinator.txn.commands import DecisionContext, InitProducerId, ProducerIdentity, retry_after
from odradek.coordinator.txn.end_txn import abort_by_broker
from odradek.coordinator.txn.epochs import is_exhausted
from odradek.coordinator.txn.records import to_record
from odradek.coordinator.txn.state import Transaction, TxnState
from odradek.coordinator.txn.transitions import Event, Outcome, look_up
from odradek.protocol.batch import NO_PRODUCER_EPOCH
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.runtime.machine import To
from odradek.runtime.shard import Decision, RetryAfter

TRANSACTIONAL_IDS_MAX: Final = 20_000
"""Maximum transactional ids per partition of `__transaction_state`. Kafka has no limit.

No id is evicted: its producer may be alive, and would be fenced. Ids leave by `transactional.id.expiration.ms`, or by
`odradek txns expire`. One client fills at most three quarters of the partition (`odradek.client_shares`).
"""


def decide_init(command: InitProducerId, context: DecisionContext) -> Decision[ProducerIdentity] | RetryAfter:
    """Decide the next identity of a producer. An ongoing transaction is aborted first.

    After the abort, Kafka responds with CONCURRENT_TRANSACTIONS, and the client sends the request again. Odradek lets
    the command wait until the transaction is complete.

    Raises:
        Refusal: PRODUCER_FENCED, COORDINATOR_NOT_AVAILABLE if the shard has no capacity for a new id of
            the client,
            COORDINATOR_LOAD_IN_PROGRESS if no producer id is available, or UNKNOWN_SERVER_ERROR if the epoch is
            exhausted.
    """
    txn = context.txn
    if txn is None:
        if not _has_capacity(command, context):
            # Clients send the request again after a back-off, until their own time-out.
            raise Refusal(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"The coordinator's partition has {len(context.ids)} of at most {TRANSACTIONAL_IDS_MAX} transactional"
                " ids and accepts no new one of this client.",
            )
        txn = Transaction(command.transactional_id)
    if context.pending:
        return retry_after(command.transactional_id)
    expected = command.expected
    if expected is not None and not _may_be_current(txn, expected):
        raise Refusal(ErrorCode.PRODUCER_FENCED)
    action = look_up(txn.state, Event.INIT)
    if action is Outcome.RETRY:
        return retry_after(command.transactional_id)
    assert isinstance(action, To)
    if action.state is TxnState.PREPARE_ABORT:
        if expected is not None and expected.producer_epoch != txn.producer_epoch:
            # Kafka aborts the transaction of the current producer, and fences the former one at its next attempt.
            raise Refusal(ErrorCode.PRODUCER_FENCED, "a later producer has an ongoing transaction")
        return abort_by_broker(txn, context, retry_after(command.transactional_id))
    identity, last_epoch = _identity(
        txn, None if expected is None else expected.producer_epoch, context.take_producer_id
    )
    after = to_empty(
        txn, identity, last_epoch, timeout_ms=command.timeout_ms, client_id=command.client_id, now_ms=context.now_ms
    )
    client = command.client
    claim = () if client is None else (partial(context.shares.claim, command.transactional_id, client),)
    return Decision(
        identity, records=(to_record(after, context.feature_level),), keys=(command.transactional_id,), soft=claim
    )


def _has_capacity(command: InitProducerId, context: DecisionContext) -> bool:
    ids = context.ids
    return ids.has_capacity_for(command.transactional_id, TRANSACTIONAL_IDS_MAX) and context.shares.allows(
        command.client, free_ids=TRANSACTIONAL_IDS_MAX - len(ids), free_bytes=ids.bytes_left
    )


def _may_be_current(txn: Transaction, expected: ProducerIdentity) -> bool:
    """Return True if a producer with the identity `expected` can be the current producer of the id.

    Its producer id may be the previous one: the id has changed at an epoch overflow, and the response was lost.
    """
    return (
        txn.is_new
        or expected.producer_id == txn.producer_id
        or (expected.producer_id == txn.prev_producer_id and is_exhausted(expected.producer_epoch))
    )


def _identity(
    txn: Transaction, expected_epoch: int | None, take_producer_id: Callable[[], int]
) -> tuple[ProducerIdentity, int]:
    """Return the new identity, and the epoch that a retry of this request may have as `expected_epoch`.

    Raises:
        Refusal: PRODUCER_FENCED, UNKNOWN_SERVER_ERROR or COORDINATOR_LOAD_IN_PROGRESS.
    """
    stored = txn.producer_epoch
    if txn.is_new:
        return ProducerIdentity(take_producer_id(), 0), NO_PRODUCER_EPOCH
    if is_exhausted(stored):
        if expected_epoch is None:
            return ProducerIdentity(take_producer_id(), 0), NO_PRODUCER_EPOCH
        if expected_epoch == stored:
            return ProducerIdentity(take_producer_id(), 0), stored
        raise Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, "the producer epoch is exhausted")
    if expected_epoch is None:
        return ProducerIdentity(txn.producer_id, stored + 1), NO_PRODUCER_EPOCH
    if expected_epoch == stored:
        return ProducerIdentity(txn.producer_id, stored + 1), stored
    if expected_epoch == txn.last_producer_epoch:
        return ProducerIdentity(txn.producer_id, stored), txn.last_producer_epoch
    raise Refusal(ErrorCode.PRODUCER_FENCED)
