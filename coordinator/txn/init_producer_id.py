"""InitProducerId: a producer asks for its identity, and ends whatever ran under the id before it (kafka-facts 5.4)."""

from collections.abc import Callable
from typing import Final

from odradek.coordinator.txn.changes import to_empty
from odradek.coordinator.txn.commands import InitProducerId, ProducerIdentity, Situation, again
from odradek.coordinator.txn.end_txn import abort_by_broker
from odradek.coordinator.txn.epochs import NO_EPOCH, is_exhausted
from odradek.coordinator.txn.records import to_record
from odradek.coordinator.txn.state import Transaction, TxnState
from odradek.coordinator.txn.transitions import Event, Outcome, look_up
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.runtime.machine import To
from odradek.runtime.shard import Again, Decision

TRANSACTIONAL_IDS_MAX: Final = 20_000
"""Ids in one partition of `__transaction_state` up to which a new one is taken in; Kafka has no limit. None is forgotten to make
room: its producer may only be silent, and would be fenced. `transactional.id.expiration.ms` makes room.
"""


def decide_init(command: InitProducerId, now: Situation) -> Decision[ProducerIdentity] | Again:
    """The identity to use from now on. Raises Refusal.

    An ongoing transaction is aborted first. Kafka then answers CONCURRENT_TRANSACTIONS, and the client comes back after
    its back-off; here the command waits for its id and finds the transaction complete.
    """
    txn = now.txn
    if txn is None:
        if not now.ids.has_capacity_for(command.transactional_id, TRANSACTIONAL_IDS_MAX):
            # clients come again after their back-off, until their own time is up
            raise Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, "There is no room for more ids here.")
        txn = Transaction(command.transactional_id)
    if now.pending:
        return again(command.transactional_id)
    expected = command.expected
    if expected is not None and not _may_be(txn, expected):
        raise Refusal(ErrorCode.PRODUCER_FENCED)
    action = look_up(txn.state, Event.INIT)
    if action is Outcome.AGAIN:
        return again(command.transactional_id)
    assert isinstance(action, To)
    if action.state is TxnState.PREPARE_ABORT:
        return abort_by_broker(txn, now, again(command.transactional_id))
    identity, last_epoch = _identity(txn, None if expected is None else expected.producer_epoch, now.take_producer_id)
    after = to_empty(
        txn, identity, last_epoch, timeout_ms=command.timeout_ms, client_id=command.client_id, now_ms=now.now_ms
    )
    return Decision(identity, records=(to_record(after, now.feature_level),), keys=(command.transactional_id,))


def _may_be(txn: Transaction, expected: ProducerIdentity) -> bool:
    """Could a producer that believes to be `expected` be the current one?

    One whose producer id was rotated away, and whose answer was lost, still believes in the old one.
    """
    return (
        txn.is_new
        or expected.producer_id == txn.producer_id
        or (expected.producer_id == txn.prev_producer_id and is_exhausted(expected.producer_epoch))
    )


def _identity(
    txn: Transaction, expected_epoch: int | None, take_producer_id: Callable[[], int]
) -> tuple[ProducerIdentity, int]:
    """(new identity, the epoch that a retry of this very request may still expect). Raises Refusal."""
    stored = txn.producer_epoch
    if txn.is_new:
        return ProducerIdentity(take_producer_id(), 0), NO_EPOCH
    if is_exhausted(stored):
        if expected_epoch is None:
            return ProducerIdentity(take_producer_id(), 0), NO_EPOCH
        if expected_epoch == stored:
            return ProducerIdentity(take_producer_id(), 0), stored
        raise Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, "the producer epoch is exhausted")
    if expected_epoch is None:
        return ProducerIdentity(txn.producer_id, stored + 1), NO_EPOCH
    if expected_epoch == stored:
        return ProducerIdentity(txn.producer_id, stored + 1), stored
    if expected_epoch == txn.last_producer_epoch:
        return ProducerIdentity(txn.producer_id, stored), txn.last_producer_epoch
    raise Refusal(ErrorCode.PRODUCER_FENCED)
