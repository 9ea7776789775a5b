"""Decide AddPartitionsToTxn: add partitions to a transaction, or verify that they belong to it (KIP-890)."""

from odradek.coordinator.txn.changes import to_ongoing
from odradek.coordinator.txn.commands import (
    AddPartitions,
    DecisionContext,
    PartitionErrors,
    VerifyPartitions,
    retry_after,
)
from odradek.coordinator.txn.identities import check_client
from odradek.coordinator.txn.records import to_record
from odradek.coordinator.txn.state import ProducerIdentity, Transaction
from odradek.coordinator.txn.table import PARTITIONS_MAX
from odradek.coordinator.txn.transitions import Event, Outcome, look_up
from odradek.protocol.errors import ErrorCode, Refusal
from odradek.protocol.txn_state import TxnState
from odradek.runtime.shard import Decision, RetryAfter


def decide_add(command: AddPartitions, context: DecisionContext) -> Decision[PartitionErrors] | RetryAfter:
    """Add `partitions` to the ongoing transaction, or begin one with them.

    Pending changes of the id are checked before the identity. A TV2 producer receives its next identity at Prepare,
    before the Complete record is written, and an identity check would fence it (KAFKA-18464).

    The command does not wait for the commit of a Complete or Ongoing record. The new record is committed after it or
    not at all, and the reply waits for that (docs/decisions/0058).

    Raises:
        Refusal: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, INVALID_TXN_STATE if InitProducerId has kept the
            transaction, or CONCURRENT_TRANSACTIONS if the shard has no capacity for further partitions of the client.
    """
    txn = context.txn
    if txn is None:
        raise Refusal(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if context.completing or (context.uncommitted and not (txn.state is TxnState.ONGOING or txn.state.is_complete)):
        return retry_after(command.transactional_id)
    _check_may_write(txn, ProducerIdentity(command.producer_id, command.producer_epoch))
    if look_up(txn.state, Event.ADD) is Outcome.RETRY:
        return retry_after(command.transactional_id)
    is_ongoing = txn.state is TxnState.ONGOING
    added = [key for key in dict.fromkeys(command.partitions) if not (is_ongoing and key in txn.partitions)]
    if is_ongoing and not added:
        return Decision(_all_added(command))
    if added and not context.ids.has_capacity_for_partitions(command.transactional_id, len(added)):
        # Clients send the request again after a back-off, until their own time-out. Transactions that end return their
        # capacity. So do those of clients that wait: the coordinator aborts them after the transaction time-out.
        raise Refusal(
            ErrorCode.CONCURRENT_TRANSACTIONS,
            f"The transactions of the coordinator's partition have {context.ids.partition_count} of at most"
            f" {PARTITIONS_MAX} partitions and accept no {len(added)} new ones of this client.",
        )
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
    _check_may_write(txn, ProducerIdentity(command.producer_id, command.producer_epoch))
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


def _check_may_write(txn: Transaction, given: ProducerIdentity) -> None:
    """Check that `given` is the client, and that its transaction can get further batches.

    The client of a kept transaction cannot write: the batches would have another identity than the markers.
    """
    check_client(txn, given)
    if txn.is_kept:
        raise Refusal(ErrorCode.INVALID_TXN_STATE, "a kept transaction can only be committed or aborted")
