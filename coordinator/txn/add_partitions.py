"""Decide AddPartitionsToTxn: add partitions to a transaction, or verify that they belong to it (KIP-890)."""

from odradek.coordinator.txn.changes import to_ongoing
from odradek.coordinator.txn.commands import (
    AddPartitions,
    DecisionContext,
    PartitionErrors,
    VerifyPartitions,
    retry_after,
)
from odradek.coordinator.txn.records import to_record
from odradek.coordinator.txn.state import Transaction, TxnState
from odradek.coordinator.txn.transitions import Event, Outcome, look_up
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.runtime.shard import Decision, RetryAfter


def decide_add(command: AddPartitions, context: DecisionContext) -> Decision[PartitionErrors] | RetryAfter:
    """Add `partitions` to the ongoing transaction, or begin one with them.

    Pending changes of the id are checked before the identity. A TV2 producer receives its next identity at Prepare,
    before the Complete record is written, and an identity check would fence it (KAFKA-18464).

    The command does not wait for the commit of a Complete or Ongoing record. The new record is committed after it or
    not at all, and the reply waits for that (docs/decisions/0058).

    Raises:
        Refusal: INVALID_PRODUCER_ID_MAPPING or PRODUCER_FENCED.
    """
    txn = context.txn
    if txn is None:
        raise Refusal(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if context.completing or (context.uncommitted and not (txn.state is TxnState.ONGOING or txn.state.is_complete)):
        return retry_after(command.transactional_id)
    _check_identity(txn, command.producer_id, command.producer_epoch)
    if look_up(txn.state, Event.ADD) is Outcome.RETRY:
        return retry_after(command.transactional_id)
    if txn.state is TxnState.ONGOING and all(partition in txn.partitions for partition in command.partitions):
        return Decision(_all_added(command))
    after = to_ongoing(
        txn,
        command.partitions,
        client_version=command.client_version,
        client_id=command.client_id,
        now_ms=context.now_ms,
    )
    record = to_record(after, context.feature_level)
    return Decision(_all_added(command), records=(record,), keys=(command.transactional_id,))


def decide_verify(command: VerifyPartitions, context: DecisionContext) -> Decision[PartitionErrors] | RetryAfter:
    """Return NONE for each partition that belongs to the ongoing transaction, TRANSACTION_ABORTABLE for the others.

    Pending changes of the id do not matter (KAFKA-14904): the verification guard is checked at the append.

    Raises:
        Refusal: INVALID_PRODUCER_ID_MAPPING or PRODUCER_FENCED.
    """
    txn = context.txn
    if txn is None:
        raise Refusal(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    _check_identity(txn, command.producer_id, command.producer_epoch)
    if look_up(txn.state, Event.VERIFY) is Outcome.RETRY:
        return retry_after(command.transactional_id)
    return Decision(
        {
            partition: ErrorCode.NONE if partition in txn.partitions else ErrorCode.TRANSACTION_ABORTABLE
            for partition in command.partitions
        }
    )


def _all_added(command: AddPartitions) -> PartitionErrors:
    return dict.fromkeys(command.partitions, ErrorCode.NONE)


def _check_identity(txn: Transaction, producer_id: int, producer_epoch: int) -> None:
    if producer_id != txn.producer_id:
        raise Refusal(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if producer_epoch != txn.producer_epoch:
        raise Refusal(ErrorCode.PRODUCER_FENCED)
