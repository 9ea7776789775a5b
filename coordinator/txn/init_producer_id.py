"""Decide InitProducerId: return the identity of a producer, and abort or keep an ongoing transaction of its id."""

from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from odradek.coordinator.txn.changes import to_empty, to_kept
from odradek.coordinator.txn.commands import (
    DecisionContext,
    InitProducerId,
    RecoveredProducer,
    RecoverProducer,
    retry_after,
)
from odradek.coordinator.txn.end_txn import abort_by_broker
from odradek.coordinator.txn.epochs import is_exhausted
from odradek.coordinator.txn.identities import raised
from odradek.coordinator.txn.records import to_record
from odradek.coordinator.txn.state import ProducerIdentity, Transaction
from odradek.coordinator.txn.transitions import Event, Outcome, look_up
from odradek.protocol.batch import NO_PRODUCER_EPOCH
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.txn_state import NEVER_TIMES_OUT_MS, TxnState
from odradek.runtime.machine import To
from odradek.runtime.shard import Decision, RetryAfter

R = TypeVar("R")

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
    txn = _current(command, context)
    if isinstance(txn, RetryAfter):
        return txn
    action = look_up(txn.state, Event.INIT)
    if action is Outcome.RETRY:
        return retry_after(command.transactional_id)
    assert isinstance(action, To)
    if action.state is TxnState.PREPARE_ABORT:
        if command.expected is not None and command.expected != txn.client_identity:
            # Kafka aborts the transaction of the current producer, and fences the former one at its next attempt.
            raise Refusal(ErrorCode.PRODUCER_FENCED, "a later producer has an ongoing transaction")
        return abort_by_broker(txn, context, retry_after(command.transactional_id))
    after = _emptied(txn, command, context)
    return _decided(after.own_identity, after, command, context)


def decide_recovery(command: RecoverProducer, context: DecisionContext) -> Decision[RecoveredProducer] | RetryAfter:
    """Decide the next identity of a producer. An ongoing transaction is kept for it, and its former owner is fenced.

    Raises:
        Refusal: The errors of `decide_init`.
    """
    init = command.init
    txn = _current(init, context)
    if isinstance(txn, RetryAfter):
        return txn
    action = look_up(txn.state, Event.INIT_KEEP)
    if action is Outcome.RETRY:
        return retry_after(init.transactional_id)
    assert isinstance(action, To)
    if action.state is TxnState.EMPTY:
        after = _emptied(txn, init, context)
        return _decided(RecoveredProducer(after.own_identity, None), after, init, context)
    client, expected, last_epoch = txn.client_identity, init.expected, NO_PRODUCER_EPOCH
    if expected is not None:
        is_retry = txn.is_kept and expected == (txn.prev_producer_id, txn.last_producer_epoch)
        if is_retry:  # the first response was lost
            return Decision(RecoveredProducer(client, txn.own_identity))
        if expected != client:
            raise Refusal(ErrorCode.PRODUCER_FENCED, "a later producer has an ongoing transaction")
        last_epoch = client.producer_epoch
    after = to_kept(
        txn,
        raised(client, context.take_producer_id),
        last_epoch,
        # The owner may have recorded the decision to commit: a time-out that this request sets would break it.
        timeout_ms=NEVER_TIMES_OUT_MS if init.timeout_ms == NEVER_TIMES_OUT_MS else txn.timeout_ms,
        client_id=init.client_id,
        now_ms=context.now_ms,
    )
    return _decided(RecoveredProducer(after.client_identity, after.own_identity), after, init, context)


def _current(command: InitProducerId, context: DecisionContext) -> Transaction | RetryAfter:
    """Return the transaction of the id, which is new for an unknown id.

    Raises:
        Refusal: PRODUCER_FENCED or COORDINATOR_NOT_AVAILABLE.
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
    if command.expected is not None and not _may_be_current(txn, command.expected):
        raise Refusal(ErrorCode.PRODUCER_FENCED)
    return txn


def _emptied(txn: Transaction, command: InitProducerId, context: DecisionContext) -> Transaction:
    expected = command.expected
    identity, last_epoch = _identity(
        txn, None if expected is None else expected.producer_epoch, context.take_producer_id
    )
    return to_empty(
        txn, identity, last_epoch, timeout_ms=command.timeout_ms, client_id=command.client_id, now_ms=context.now_ms
    )


def _decided(reply: R, after: Transaction, command: InitProducerId, context: DecisionContext) -> Decision[R]:
    client = command.client
    claim = () if client is None else (partial(context.shares.claim, command.transactional_id, client),)
    record = to_record(after, context.feature_level)
    return Decision(reply, records=(record,), keys=(command.transactional_id,), soft=claim)


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
        or expected.producer_id == txn.client_identity.producer_id
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
    if expected_epoch is None:
        return raised(txn.own_identity, take_producer_id), NO_PRODUCER_EPOCH
    if expected_epoch == stored:
        return raised(txn.own_identity, take_producer_id), stored
    if is_exhausted(stored):
        raise Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, "the producer epoch is exhausted")
    if expected_epoch == txn.last_producer_epoch:
        return txn.own_identity, txn.last_producer_epoch
    raise Refusal(ErrorCode.PRODUCER_FENCED)
