"""Partitions join a transaction, or are asked after (kafka-facts 5.5)."""

from odradek.coordinator.txn.changes import to_ongoing
from odradek.coordinator.txn.commands import AddPartitions, PartitionErrors, Situation, VerifyPartitions, again
from odradek.coordinator.txn.records import to_record
from odradek.coordinator.txn.state import Transaction, TxnState
from odradek.coordinator.txn.transitions import Event, Outcome, look_up
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.runtime.shard import Again, Decision


def decide_add(command: AddPartitions, now: Situation) -> Decision[PartitionErrors] | Again:
    """Make `partitions` part of the running transaction, or start one with them. Raises Refusal.

    Pending is tested before the identity: a producer that is ahead of its own Complete record (TV2 tells it the new
    identity at Prepare) would otherwise be fenced by itself (KAFKA-18464). A Complete or Ongoing record need only be
    written: what follows it is committed with it or not at all, and the answer waits for that (docs/decisions/0058).
    """
    txn = now.txn
    if txn is None:
        raise Refusal(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if now.completing or (now.uncommitted and not (txn.state is TxnState.ONGOING or txn.state.is_complete)):
        return again(command.transactional_id)
    _check_identity(txn, command.producer_id, command.producer_epoch)
    if look_up(txn.state, Event.ADD) is Outcome.AGAIN:
        return again(command.transactional_id)
    if txn.state is TxnState.ONGOING and all(partition in txn.partitions for partition in command.partitions):
        return Decision(_all_in(command))
    after = to_ongoing(
        txn,
        command.partitions,
        client_version=command.client_version,
        client_id=command.client_id,
        now_ms=now.now_ms,
    )
    record = to_record(after, now.feature_level)
    return Decision(_all_in(command), records=(record,), keys=(command.transactional_id,))


def decide_verify(command: VerifyPartitions, now: Situation) -> Decision[PartitionErrors] | Again:
    """Which of `partitions` are part of the running transaction? Raises Refusal.

    Pending is ignored on purpose (KAFKA-14904): the guard at the append is the final test.
    """
    txn = now.txn
    if txn is None:
        raise Refusal(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    _check_identity(txn, command.producer_id, command.producer_epoch)
    if look_up(txn.state, Event.VERIFY) is Outcome.AGAIN:
        return again(command.transactional_id)
    inside = txn.partitions
    return Decision(
        {
            partition: ErrorCode.NONE if partition in inside else ErrorCode.TRANSACTION_ABORTABLE
            for partition in command.partitions
        }
    )


def _all_in(command: AddPartitions) -> PartitionErrors:
    return dict.fromkeys(command.partitions, ErrorCode.NONE)


def _check_identity(txn: Transaction, producer_id: int, producer_epoch: int) -> None:
    if producer_id != txn.producer_id:
        raise Refusal(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if producer_epoch != txn.producer_epoch:
        raise Refusal(ErrorCode.PRODUCER_FENCED)
